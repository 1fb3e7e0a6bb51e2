package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/operator"
)

// editor makes a script the operator's editor, for processes of the test.
func editor(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "editor")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\nset -eu\n"+script), 0o700)) // #nosec G306 -- it is to be run
	return path
}

// Flags change jobs by id and by filter, refusals have their exit codes, and
// an undo takes the edit back.
func TestEditCommand(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	command := func(want int, args ...string) string {
		t.Helper()
		out, stderr, code := invoke(t, "", append(args, "--database-url", url)...)
		require.Equal(t, want, code, stderr)
		return out + stderr
	}
	query[int64](t, pool, "select max(jobq.enqueue('a', queue => 'email')) from generate_series(1, 5)")
	file := filepath.Join(t.TempDir(), "args.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"n": 2}`), 0o600))
	require.Equal(t, "1 edited, scheduled\n2 edited, scheduled\n", command(exitOK, "edit", "1", "2", "--args", "@"+file, "--priority", "-4", "--run-at",
		"2200-01-01T00:00:00Z", "-q", "sms", "--max-attempts", "3", "--tag", "a", "--tag", "b", "--metadata", `{"m": 1}`))
	require.Equal(t, `{"n": 2} -4 2200-01-01 00:00:00+00 sms 3 {a,b} {"m": 1}`,
		query[string](t, pool, "select concat_ws(' ', args, priority, run_at at time zone 'UTC' || '+00', queue, max_attempts, tags::text, metadata) from jobq.job where id = 2"))
	require.Equal(t, "1 was so already\n", command(exitOK, "edit", "1", "--queue", "sms"))
	require.Contains(t, command(exitOK, "undo", "1"), "2 of 2 undone")
	var acted operator.Acted
	require.NoError(t, json.Unmarshal([]byte(command(exitOK, "edit", "1", "--tag", "", "--priority", "1", "--json")), &acted))
	require.Equal(t, []operator.ActedJob{{ID: 1, Before: jobq.StateAvailable, After: jobq.StateAvailable, Changed: true}}, acted.Jobs)

	require.Contains(t, command(exitNotFound, "edit", "99", "--priority", "1"), "no such job")
	require.Contains(t, command(exitUsage, "edit", "1", "--queue", strings.Repeat("q", 129)), "queue must be 1 to 128 characters")
	require.Contains(t, command(exitUsage, "edit", "1", "--args", "{"), "--args: not JSON")
	require.Contains(t, command(exitUsage, "edit", "1", "--run-at", "tomorow"), "not a time: write 2h")
	require.Contains(t, command(exitUsage, "edit", "1", "2"), "say what to change")
	require.Contains(t, command(exitUsage, "edit", "--filter", "queue:email"), "say what to change")
	command(exitOK, "cancel", "5")
	require.Contains(t, command(exitConflict, "edit", "5", "--priority", "1"), "job 5 is cancelled")
	require.Contains(t, command(exitConflict, "edit", "5"), "job 5 is cancelled")

	require.Contains(t, command(exitOK, "edit", "--filter", "queue:email", "--priority", "7", "--dry-run"), "would edit 4 jobs")
	require.Contains(t, command(exitUsage, "edit", "--filter", "queue:email", "--priority", "7"), "give --yes")
	require.Contains(t, command(exitOK, "edit", "--filter", "queue:email", "--priority", "7", "--max", "3", "--rate", "1000/s", "--yes"), "edit: 3 jobs, 0 refused")
	require.Equal(t, 3, query[int](t, pool, "select count(*)::integer from jobq.pending where priority = 7"))
	require.Contains(t, command(exitOK, "audit"), `{"priority":7}`)

	id := strings.TrimSpace(command(exitOK, "clone", "5", "--tag", "again", "--queue", "copies"))
	require.Equal(t, "6", id)
	require.Equal(t, "available copies {again}", query[string](t, pool, "select concat_ws(' ', state, queue, tags::text) from jobq.job where id = 6"))
	require.Contains(t, command(exitOK, "clone", "5", "--json"), `"id": 7`)
	require.Contains(t, command(exitNotFound, "clone", "99"), "no such job")
	require.Contains(t, command(exitOK, "audit"), "of job 5")
}

// In an editor, a job is changed as the text is left; what cannot be read or
// stored comes back with what is wrong, and is never lost.
func TestEditInEditor(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	query[int64](t, pool, "select jobq.enqueue('a', args => '{\"n\": 1}')")
	start := func(script string) *process {
		t.Helper()
		environment := []string{"VISUAL=", "EDITOR=" + editor(t, script), "TMPDIR=" + t.TempDir()}
		return startProcessWith(t, environment, "edit", "1", "--database-url", url)
	}
	edit := func(script string) (string, int) {
		t.Helper()
		p := start(script)
		_ = p.Wait()
		return p.log.String(), p.ProcessState.ExitCode()
	}
	// kept is what was left in the file that the command names.
	kept := func(log string) string {
		t.Helper()
		name := regexp.MustCompile(`what you wrote is in (\S+)`).FindStringSubmatch(log)
		require.NotNil(t, name, log)
		content, err := os.ReadFile(name[1])
		require.NoError(t, err)
		return string(content)
	}
	log, code := edit(`sed -i 's/"n": 1/"n": 2/; s/"default"/"other"/' "$1"`)
	require.Zero(t, code)
	require.Contains(t, log, "1 edited, available")
	require.Equal(t, `{"n": 2} other`, query[string](t, pool, "select concat_ws(' ', args, queue) from jobq.job"))
	for _, script := range []string{"true", `: > "$1"`} {
		log, code = edit(script)
		require.Zero(t, code)
		require.Contains(t, log, "nothing was changed")
	}

	// First it leaves what is no JSON, then what the database refuses, then it mends that.
	log, code = edit(`
		if grep -q '^#! .*line 5' "$1"; then sed -i 's/"priority": x/"priority": 5/; s/"other"/""/' "$1"
		elif grep -q '^#! .*queue must be' "$1"; then sed -i 's/""/"mended"/' "$1"
		else sed -i 's/"priority": 0/"priority": x/' "$1"; fi`)
	require.Zero(t, code, log)
	require.Equal(t, "5 mended", query[string](t, pool, "select priority || ' ' || queue from jobq.job"))

	log, code = edit(`sed -i 's/"queue"/"qeue"/; s/mended/kept/' "$1"`)
	require.Equal(t, exitUsage, code)
	require.Contains(t, log, `unknown field "qeue"`)
	require.Contains(t, kept(log), `"qeue": "kept"`)
	log, code = edit(`sed -i 's/mended/kept/' "$1"; exit 1`)
	require.Equal(t, exitError, code)
	require.Contains(t, kept(log), "kept")

	// While the editor is open, somebody else changes the same, or ends the job.
	for _, test := range []struct{ meanwhile, want string }{
		{"update jobq.pending set queue = 'third' returning 'done'", "its queue has changed meanwhile"},
		{"select jobq.cancel(1)::text", "it has changed meanwhile, and is cancelled now"},
	} {
		marks := t.TempDir()
		p := start(fmt.Sprintf(`touch %[1]s/open; until [ -e %[1]s/go ]; do sleep 0.02; done; sed -i 's/"queue": ".*"/"queue": "kept"/' "$1"`, marks))
		require.Eventually(t, func() bool {
			_, err := os.Stat(marks + "/open")
			return err == nil
		}, patience, 5*time.Millisecond)
		query[string](t, pool, test.meanwhile)
		require.NoError(t, os.WriteFile(marks+"/go", nil, 0o600))
		_ = p.Wait()
		require.Equal(t, exitConflict, p.ProcessState.ExitCode())
		require.Contains(t, p.log.String(), test.want)
		require.Contains(t, kept(p.log.String()), "kept")
	}
}

// A worker that is asked to drain takes no new work, lets what runs end, and
// leaves, whether it can listen or not. Its log says how long it took to obey.
func TestWorkersDrain(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{nil, {"--poll-only"}} {
		t.Run(fmt.Sprint(flags), func(t *testing.T) {
			t.Parallel()
			p := newProfile(t)
			w := p.worker(append([]string{"--drain-timeout", "1ms"}, flags...)...)
			p.enqueue("")
			p.begun(1, 1)
			id := query[string](t, p.pool, "select id from jobq.worker")
			command := func(want int, args ...string) string {
				out, stderr, code := invoke(t, "", append(args, "--database-url", p.url)...)
				require.Equal(t, want, code, stderr)
				return out + stderr
			}
			began := time.Now()
			require.Contains(t, command(exitOK, "workers", "drain", id), "was asked to drain")
			require.Contains(t, command(exitOK, "workers", "drain", id), "drains already")
			require.Contains(t, command(exitOK, "workers"), id+" (draining)")
			require.Contains(t, command(exitNotFound, "workers", "drain", "nobody"), "no such worker")
			w.awaitLog(t, "worker takes no new work")
			t.Logf("obeyed after %s", time.Since(began))
			later := p.enqueue("")
			p.end(1, 1)
			require.NoError(t, w.Wait(), "it ends well")
			require.Equal(t, "completed", query[string](t, p.pool, "select state::text from jobq.job where id = 1"), "it had all the time it took")
			require.Equal(t, "available", query[string](t, p.pool, "select state::text from jobq.job where id = $1", later))
			require.Zero(t, query[int](t, p.pool, "select count(*)::integer from jobq.worker"))
			require.Contains(t, command(exitOK, "audit"), "drain")
			require.Contains(t, command(exitConflict, "undo", "1"), "is not called back")
		})
	}
}

// An action by filter that is interrupted goes on from its row in the audit.
func TestAuditResume(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	makeFailed(t, url, "email", 30)
	p := startProcess(t, "requeue", "--filter", "queue:email", "--yes", "--rate", "2/s", "--database-url", url)
	eventually(t, pool, true, "select done >= 2 from jobq.audit where id = 1")
	require.NoError(t, p.Process.Signal(syscall.SIGINT))
	require.Error(t, p.Wait())
	require.Contains(t, p.log.String(), "go on with jobq audit resume 1")
	command := func(want int, args ...string) string {
		t.Helper()
		out, stderr, code := invoke(t, "", append(args, "--database-url", url)...)
		require.Equal(t, want, code, stderr)
		return out + stderr
	}
	require.Contains(t, command(exitOK, "audit"), "not at its end")
	require.Contains(t, command(exitOK, "audit", "resume", "1", "--rate", "1000/s"), "action 1: 30 jobs, 0 refused")
	require.Equal(t, 30, query[int](t, pool, "select count(*)::integer from jobq.pending"))
	require.Contains(t, command(exitConflict, "audit", "resume", "1"), "has come to its end")
	require.Contains(t, command(exitNotFound, "audit", "resume", "9"), "action 9")
	require.Contains(t, command(exitOK, "undo", "1"), "30 of 30 undone")
}
