package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A shell script adds other jobs once, although it is killed, waits for them without a slot,
// and has their results.
func TestSpawningScript(t *testing.T) {
	t.Parallel()
	owner, as := rolesServer(t)
	_, err := owner.Exec(context.Background(), "create role my_script login in role jobq_runner, jobq_producer, jobq_viewer")
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "book"), []byte(`set -e
		a=$("$JOBQ" job spawn "page a" --kind page '{"page": "a"}' --queue pages --unique-key "$JOBQ_JOB_ID a")
		b=$("$JOBQ" job spawn "page b" --kind page '{"page": "b"}' --queue pages --max-attempts 1 --tag t --partition-key p)
		[ "$JOBQ_ATTEMPT" != 1 ] || kill -9 $$
		"$JOBQ" job await pages "$b" "$a" || echo "exit $?"
		echo "one: $("$JOBQ" job await "page a again" "$a")"`), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "page"), []byte(`grep -q '"a"' && "$JOBQ" job result '{"done": "a"}'`), 0o600))
	file := filepath.Join(folder, "jobq.yaml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `kinds:
  book: {command: [sh, %q], steps: true, env: {DATABASE_URL: %q, JOBQ: %[3]q, %[4]s: '1'}}
  page: {command: [sh, %[5]q], env: {JOBQ: %[3]q, %[4]s: '1'}}
`, filepath.Join(folder, "book"), as("script"), self, asCommand, filepath.Join(folder, "page")), 0o600))
	work := func(queue string) {
		t.Helper()
		_, stderr, code := invoke(t, "", "worker", "--database-url", as("worker"), "--config", file, "--queue", queue, "--exit-when-empty", "--log-level", "error")
		require.Zero(t, code, stderr)
	}
	id := query[int64](t, owner, "select jobq.enqueue('book', backoff_base => '1 h')")
	state := func() string { return query[string](t, owner, "select state::text from jobq.job where id = $1", id) }
	work("default")
	require.Equal(t, "scheduled", state(), "it was killed")
	query[string](t, owner, "select jobq.requeue($1)::text", id)
	work("default")
	require.Equal(t, "waiting", state())
	require.Contains(t, query[string](t, owner, "select output from jobq.attempt where job_id = $1 and outcome = 'snoozed'", id), "exit 75\n")
	work("pages")
	require.Equal(t, "completed failed", query[string](t, owner, "select string_agg(state::text, ' ' order by id) from jobq.job where kind = 'page'"))
	require.Equal(t, "p", query[string](t, owner, "select partition_key from jobq.job where id = 3"))
	work("default")
	require.Equal(t, "completed", state())
	require.Equal(t, 1, query[int](t, owner, "select attempts from jobq.job where id = $1", id))
	output := query[string](t, owner, "select output from jobq.attempt where job_id = $1 and outcome = 'completed'", id)
	for _, want := range []string{`{"id":3,"state":"failed","error":"exit code 1","finished_at":`, `{"id":2,"state":"completed","result":{"done":"a"},"finished_at":`, "jobq: job 3 is failed: exit code 1\n", "exit 7\n", `one: {"done":"a"}`} {
		require.Contains(t, output, want)
	}

	out, stderr, code := invoke(t, "", "show", "--database-url", as("viewer"), fmt.Sprint(id))
	require.Zero(t, code, stderr)
	require.Regexp(t, `(?s)steps\n  page a  done .*\[\{"id": 2, "duplicate": false\}\].*\n  pages  awaited .*"state": "completed"`, out)
}

// What a script may not do, or gives wrongly, is said.
func TestSpawnCommandsAreRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"spawn", "a", "--kind", "k"}, {"await", "a", "1"}} {
		_, stderr, code := invoke(t, "", append([]string{"job"}, args...)...)
		require.Equal(t, exitUsage, code)
		require.Contains(t, stderr, "JOBQ_RUN_TOKEN is not set")
	}
	for want, args := range map[string][]string{
		"--kind is missing":                  {"spawn", "a"},
		"an argument is missing":             {"await", "a"},
		`must be a positive number`:          {"await", "a", "b"},
		"--max-attempts must be more than 0": {"spawn", "a", "--kind", "k", "--max-attempts", "0"},
		"is one argument too many; usa":      {"spawn", "a", "{}", "b", "--kind", "k"},
	} {
		_, stderr, code := invoke(t, "", append([]string{"job"}, args...)...)
		require.Equal(t, exitUsage, code, want)
		require.Contains(t, stderr, want)
	}
}
