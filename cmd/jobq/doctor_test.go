package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/doctor"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/internal/postgres"
)

// doctor says by its exit code how bad it is, in lines for people and in JSON, and
// with --quiet says nothing that is not wrong. Method: the test server has no fsync,
// which is critical, and the other settings can be made per database.
func TestDoctorCommand(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	out, stderr, code := invoke(t, "", "doctor", "--database-url", url)
	require.Equal(t, exitCritical, code)
	require.Empty(t, stderr)
	require.Contains(t, out, "critical  settings: fsync is off: ")
	require.Contains(t, out, ". To do: ")

	out, _, code = invoke(t, "", "doctor", "--database-url", url, "--json", "--quiet")
	require.Equal(t, exitCritical, code)
	var report doctor.Report
	require.NoError(t, json.Unmarshal([]byte(out), &report))
	require.False(t, report.Healthy)
	require.Equal(t, doctor.Critical, report.Worst())
	require.Equal(t, "settings", report.Findings[0].Check)
	require.Contains(t, report.Checks, "lost-leases")
	require.Equal(t, "jobq", report.Schema)

	_, stderr, code = invoke(t, "", "doctor", "--database-url", pgtest.EmptyURL(t))
	require.Equal(t, exitError, code)
	require.Contains(t, stderr, "jobq migrate up")
	_, _, code = invoke(t, "", "doctor", "--database-url", url, "more")
	require.Equal(t, exitUsage, code)
}

// On a server as in production, the real command ends with 0 while
// nothing is wrong, and is quiet if told so; and with 5 when there is a warning.
func TestDoctorOnASoundServer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	server, err := postgres.Start(ctx, postgres.Config{InMemory: true, Durable: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
	url := server.URL("postgres")
	jobq := func(args ...string) (out string, code int) {
		t.Helper()
		command := exec.CommandContext(ctx, os.Args[0], append(args, "--database-url", url)...) // #nosec G204 -- the test itself
		command.Env = append(os.Environ(), asCommand+"=1")
		text, _ := command.CombinedOutput() // its exit code is looked at
		return string(text), command.ProcessState.ExitCode()
	}
	out, code := jobq("migrate", "up")
	require.Zero(t, code, out)
	for _, run := range []struct{ flag, says string }{{"", "healthy: "}, {"--json", `"healthy": true`}, {"--quiet", ""}} {
		args := []string{"doctor"}
		if run.flag != "" {
			args = append(args, run.flag)
		}
		require.Eventually(t, func() bool { // on a busy machine a notification may be late, which is a warning
			out, code = jobq(args...)
			return code == exitOK
		}, patience, 10*time.Millisecond, "doctor %s: %s", run.flag, out)
		require.Contains(t, out, run.says)
		require.Equal(t, run.says == "", out == "", out)
	}
	_, err = pgtest.Connect(t, url).Exec(ctx, "insert into jobq.event (type, source, message) values ('error', 'j', 'disk full')")
	require.NoError(t, err)
	out, code = jobq("doctor", "--quiet")
	require.Equal(t, exitWarnings, code, out)
	require.Contains(t, out, "warning   janitor-errors: ")
}

// The worst finding decides the exit code, and --quiet hides what is healthy.
func TestDoctorAnswer(t *testing.T) {
	t.Parallel()
	for severity, want := range map[doctor.Severity]int{"": exitOK, doctor.Note: exitOK, doctor.Warning: exitWarnings, doctor.Critical: exitCritical} {
		report := &doctor.Report{Healthy: want == exitOK}
		if severity != "" {
			report.Findings = []doctor.Finding{{Check: "c", Severity: severity, Problem: "p\x1b", Advice: "a"}}
		}
		require.Equal(t, want, exitCode(doctorResult(report)), severity)
	}
}
