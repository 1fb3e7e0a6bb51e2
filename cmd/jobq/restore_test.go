package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

// A dump of a queue at work is a queue: what waited and what ran at the time of the
// dump runs again where it was restored, what had ended stays so, and ids and tokens
// go on growing, beyond those that were given out since. docs/backup.md says so. Method: pg_dump while a worker holds jobs,
// pg_restore into an empty database, and a worker there.
func TestDumpAndRestore(t *testing.T) {
	t.Parallel()
	url, restoredURL := pgtest.URL(t), pgtest.EmptyURL(t)
	pool := pgtest.Connect(t, url)
	folder := t.TempDir()
	// A job of kind held runs until there is a file that lets it go, or its worker dies.
	held := "--run=held=sh -c 'until [ -e " + folder + "/go ]; do sleep 0.02; done'"
	_, stderr, code := invoke(t, "", "queues", "set", "default", "lease=3s", "--database-url", url)
	require.Zero(t, code, stderr)
	w := startProcess(t, "worker", "--database-url", url, held, "--run=done=true", "--queue=default=3")
	done := query[int64](t, pool, "select jobq.enqueue('done')")
	running := query[int64](t, pool, "select jobq.enqueue('held')")
	eventually(t, pool, "completed", "select state::text from jobq.job where id = $1", done)
	eventually(t, pool, "running", "select state::text from jobq.job where id = $1", running)
	waiting := query[int64](t, pool, `select jobq.enqueue('later', '{"a": 1}', unique_key => 'only')`)
	scheduled := query[int64](t, pool, "select jobq.enqueue('later', run_at => now() + interval '1 day')")
	token := query[int64](t, pool, "select lease_id from jobq.run where id = $1", running)

	dump := filepath.Join(folder, "dump")
	postgresTool(t, "pg_dump", "--format=custom", "--schema=jobq", "--no-owner", "--no-privileges", "--file="+dump, url)
	require.NoError(t, w.Process.Kill())
	_ = w.Wait()
	postgresTool(t, "pg_restore", "--exit-on-error", "--no-owner", "--dbname="+restoredURL, dump)

	restored := pgtest.Connect(t, restoredURL)
	state := func(id int64) string {
		return query[string](t, restored, "select state::text from jobq.job where id = $1", id)
	}
	require.Equal(t, []string{"completed", "running", "available", "scheduled"}, []string{state(done), state(running), state(waiting), state(scheduled)})
	require.NoError(t, os.WriteFile(filepath.Join(folder, "go"), nil, 0o600))
	startProcess(t, "worker", "--database-url", restoredURL, held, "--run=later=true", "--reconcile=off", "--scan=100ms")
	for _, id := range []int64{running, waiting} {
		eventually(t, restored, "completed", "select state::text from jobq.job where id = $1", id)
	}
	require.Equal(t, 1, query[int](t, restored, "select crashes::int from jobq.job where id = $1", running), "the lease of the dump ended")
	require.Equal(t, "scheduled", state(scheduled))
	const gap = 1 << 30 // by it, ids and tokens are not those which were given out since the dump
	require.Greater(t, query[int64](t, restored, "select max(lease_id) from jobq.run where id = $1", running), token+gap)
	require.Greater(t, query[int64](t, restored, "select jobq.enqueue('later')"), scheduled+gap)
	out, _, _ := invoke(t, "", "doctor", "--json", "--database-url", restoredURL)
	require.NotContains(t, out, "as the migrations make it", "what was read from a text is the same as what the text was made of")
}

// postgresTool runs a program that comes with the server which the tests use.
func postgresTool(t *testing.T, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, pgtest.ServerProgram(t, name), args...).CombinedOutput()
	require.NoError(t, err, "%s: %s", name, out)
}
