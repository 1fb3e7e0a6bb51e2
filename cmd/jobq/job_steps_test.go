package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// stepsWorker runs jobs of kind durable with a shell script that calls jobq as $JOBQ, as a
// runner, until nothing is available.
func stepsWorker(t *testing.T, as func(role string) string, script string) (work func(), ledger string) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	folder := t.TempDir()
	ledger = filepath.Join(folder, "ledger")
	require.NoError(t, os.WriteFile(filepath.Join(folder, "script"), []byte(script), 0o600))
	file := filepath.Join(folder, "jobq.yaml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "kinds:\n  durable:\n    command: [sh, %q]\n    steps: true\n    env: {DATABASE_URL: %q, JOBQ: %q, %s: '1', LEDGER: %q}\n",
		filepath.Join(folder, "script"), as("runner"), self, asCommand, ledger), 0o600))
	return func() {
		t.Helper()
		_, stderr, code := invoke(t, "", "worker", "--database-url", as("worker"), "--config", file, "--exit-when-empty", "--janitor", "off", "--log-level", "warn")
		require.Zero(t, code, stderr)
		require.NotContains(t, stderr, "its transaction had ended the job", "a script that is suspended does as it should")
	}, ledger
}

// A shell script does each step once, although it is killed, sleeps and waits for an
// event; operators see its steps, and make it do some again.
func TestDurableScript(t *testing.T) {
	t.Parallel()
	owner, as := rolesServer(t)
	work, ledger := stepsWorker(t, as, `set -e
		n=$("$JOBQ" job step count -- sh -c 'echo x >> "$LEDGER"; wc -l < "$LEDGER"')
		[ "$JOBQ_ATTEMPT" != 1 ] || kill -9 $$
		"$JOBQ" job sleep 1h
		p=$("$JOBQ" job wait-event "paid $JOBQ_JOB_ID" --timeout 1d)
		echo "had $n and $p"`)
	id := query[int64](t, owner, "select jobq.enqueue('durable', backoff_base => '1 h')")
	job := fmt.Sprint(id)
	next := func(want string) {
		t.Helper()
		work()
		require.Equal(t, want, query[string](t, owner, "select concat_ws(' ', state, attempts, (select string_agg(a.outcome::text, ' ' order by a.lease_token) from jobq.attempt a where a.job_id = j.id)) from jobq.job j where id = $1", id))
	}
	wake := func() {
		t.Helper()
		_, err := owner.Exec(context.Background(), "update jobq.step set wake_at = now() where finished_at is null")
		require.NoError(t, err)
		query[string](t, owner, "select jobq.requeue($1)::text", id)
	}
	next("scheduled 1 failed") // killed
	query[string](t, owner, "select jobq.requeue($1)::text", id)
	next("scheduled 1 failed snoozed") // it sleeps
	wake()
	next("scheduled 1 failed snoozed snoozed") // it waits
	out, stderr, code := invoke(t, "", "emit", "--database-url", as("producer"), "paid "+job, `{"by": "ann"}`)
	require.Zero(t, code, stderr)
	require.Equal(t, "emitted\n", out)
	out, _, _ = invoke(t, "", "emit", "--database-url", as("producer"), "--json", "paid "+job)
	require.Contains(t, out, `"first": false`)
	next("completed 1 failed snoozed snoozed completed")
	require.Contains(t, query[string](t, owner, "select output from jobq.attempt where outcome = 'completed'"), `had 1 and {"by": "ann"}`)
	content, err := os.ReadFile(ledger)
	require.NoError(t, err)
	require.Equal(t, "x\n", string(content))

	out, stderr, code = invoke(t, "", "show", "--database-url", as("viewer"), job)
	require.Zero(t, code, stderr)
	require.Regexp(t, `(?s)steps\n  count  done .*  "1\\n"\n  sleep 1h  slept until .*\n  paid `+job+`  event came .*  \{"by": "ann"\}\n`, out)
	out, _, _ = invoke(t, "", "show", "--database-url", as("viewer"), "--json", job)
	require.Contains(t, out, `"type": "sleep"`)

	_, stderr, code = invoke(t, "", "requeue", "--database-url", as("admin"), job, "--from-step", "none")
	require.Equal(t, exitNotFound, code)
	require.Contains(t, stderr, "job "+job+" has no step 'none'")
	_, stderr, code = invoke(t, "", "requeue", "--database-url", as("admin"), job, "7", "--from-step", "count")
	require.Equal(t, exitUsage, code, stderr)
	out, stderr, code = invoke(t, "", "requeue", "--database-url", as("admin"), job, "--from-step", "sleep 1h")
	require.Zero(t, code, stderr)
	require.Equal(t, job+" available, does 2 steps again\n", out)
	next("scheduled 1 failed snoozed snoozed completed snoozed")
	content, err = os.ReadFile(ledger)
	require.NoError(t, err)
	require.Equal(t, "x\n", string(content), "the step before is not done again")
	_, _, code = invoke(t, "", "requeue", "--database-url", as("admin"), "999999", "--from-step", "count")
	require.Equal(t, exitNotFound, code)
}

// A command that fails stores nothing, and passes its exit code on; one that ends well
// although it was interrupted is done; what is no text is stored as well, up to a limit; an event that has not come in time has an exit code of its own, and a
// script that then goes on completes its job.
func TestDurableScriptExits(t *testing.T) {
	t.Parallel()
	owner, as := rolesServer(t)
	work, _ := stepsWorker(t, as, `
		"$JOBQ" job step fails -- sh -c 'echo said; exit 9' || echo "exit $?"
		"$JOBQ" job step killed -- sh -c 'kill -9 $$' || echo "exit $?"
		"$JOBQ" job step bytes -- printf '\377\001' | od -An -tx1
		zeros() { "$JOBQ" job step "$1 $2 zeros" -- sh -c "head -c $2 /dev/zero | tr '\\0' '$3'" | wc -c; }
		zeros text 1000000 0; zeros text 1000001 0; zeros binary 750000 '\0'; zeros binary 750001 '\0'
		"$JOBQ" job step trapped -- sh -c 'trap told=1 TERM; kill -TERM $PPID; until [ "$told" ]; do sleep 0.01; done; echo undeterred'
		"$JOBQ" job wait-event never --timeout 0.001s || { code=$?; [ $code != 75 ] || exit 75; echo "exit $code"; }
		[ "$JOBQ_ATTEMPT" != 1 ] || exit 1`)
	id := query[int64](t, owner, "select jobq.enqueue('durable')")
	for range 3 { // of which one only waits for the event
		work()
		query[string](t, owner, "select coalesce(jobq.requeue($1)::text, '') from jobq.job where id = $1 and state = 'scheduled' union all select '' limit 1", id)
	}
	require.Equal(t, "completed", query[string](t, owner, "select state::text from jobq.job where id = $1", id))
	for _, outcome := range []string{"failed", "completed"} {
		output := query[string](t, owner, "select output from jobq.attempt where outcome::text = $1", outcome)
		for _, want := range []string{"said\nexit 9\n", "exit 137\n", " ff 01\n", "\n1000000\n", "has written 1000001 bytes, and 1000000 of text can be stored", "\n750000\n", "has written 750001 bytes, and 750000 of what is no text can be stored", "undeterred\n", "exit 124\n", `event "never": the event has not come in time`} {
			require.Contains(t, output, want, outcome)
		}
	}
	require.Equal(t, "binary 750000 zeros, bytes, never, text 1000000 zeros, trapped", query[string](t, owner, "select string_agg(name, ', ' order by name) from jobq.step where finished_at is not null"))
	require.True(t, query[bool](t, owner, "select attempts > 1 from jobq.step where name = 'killed'"))
}

// Outside of a job that a worker runs with steps, the commands say what is missing.
func TestStepCommandsNeedARun(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"step", "a", "--", "true"}, {"sleep", "1h"}, {"wait-event", "e"}} {
		_, stderr, code := invoke(t, "", append([]string{"job"}, args...)...)
		require.Equal(t, exitUsage, code)
		require.Contains(t, stderr, "JOBQ_RUN_TOKEN is not set")
	}
	_, stderr, code := invoke(t, "", "job", "step", "a")
	require.Equal(t, exitUsage, code, stderr)
}

// What a command has written comes back byte by byte, however it is stored.
func TestStepOutput(t *testing.T) {
	t.Parallel()
	for _, output := range []string{"", "text\n", `"json"`, "{\"base64\": 1}", "\x00", "\xff\xfe", strings.Repeat("ä", 1000)} {
		back, err := decodeOutput(encodeOutput([]byte(output)))
		require.NoError(t, err)
		require.True(t, bytes.Equal([]byte(output), back), "%q", output)
	}
	back, err := decodeOutput([]byte("[1, 2]"))
	require.NoError(t, err)
	require.Equal(t, "[1, 2]", string(back))
}
