package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/doctor"
	"github.com/jobq-dev/jobq/internal/pgtest"
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
