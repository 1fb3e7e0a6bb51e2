package main

import (
	"context"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

// Waiting for a sweep ends when none of its jobs is open, with an exit code that says how they have ended, and its figures are
// those of stats.
func TestWaitForFilter(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	command := func(want int, input string, args ...string) string {
		t.Helper()
		stdout, stderr, code := invoke(t, input, append(args, "--database-url", url)...)
		require.Equal(t, want, code, "%v: %s", args, stderr)
		return stdout + stderr
	}
	const sweep = "tag:sweep1"
	require.Contains(t, command(exitNotFound, "", "wait", "--filter", sweep), "no job matches")
	command(exitOK, "n\n1\n2\n3\n", "enqueue", "good", "--csv", "-", "--tag", "sweep1")
	require.Contains(t, command(exitNotEnded, "", "wait", "--filter", sweep, "--timeout", "10ms"), "of tag:sweep1 not ended within 10ms")
	require.Regexp(t, `0 +0 +3 +0 +0 +0 +0 +3 +- +unknown +- +-\n`, command(exitOK, "", "stats", "--filter", sweep))

	worker := startProcess(t, "worker", "--database-url", url, "--run", "good=true", "--run", "bad=false")
	require.Equal(t, "3 jobs: 3 completed\n", command(exitOK, "", "wait", "--filter", sweep))
	id := query[int64](t, pool, `select jobq.enqueue('never', tags => '{sweep1}')`)
	waiting := startProcess(t, "wait", "--filter", sweep, "--database-url", url)
	_, err := pool.Exec(context.Background(), "select jobq.cancel($1)", id)
	require.NoError(t, err)
	require.Error(t, waiting.Wait())
	require.Equal(t, exitCancelled, waiting.ProcessState.ExitCode())
	require.Contains(t, waiting.log.String(), "4 jobs: 3 completed, 1 cancelled\n")

	command(exitOK, "", "enqueue", "bad", "--max-attempts", "1", "--tag", "sweep1")
	require.Contains(t, command(exitFailed, "", "wait", "--filter", sweep), "5 jobs: 3 completed, 1 failed, 1 cancelled\njobq: 1 job failed: jobq list 'state:failed tag:sweep1'")
	require.NoError(t, worker.Process.Signal(os.Interrupt))
	require.NoError(t, worker.Wait())

	var stats struct {
		Jobs, Open int
		States     map[string]int
		Usage      struct{ Runs int }
	}
	require.NoError(t, json.Unmarshal([]byte(command(exitOK, "", "stats", "--filter", sweep, "--json")), &stats))
	require.Equal(t, []int{5, 0, 4}, []int{stats.Jobs, stats.Open, stats.Usage.Runs})
	require.Equal(t, map[string]int{"completed": 3, "failed": 1, "cancelled": 1}, stats.States)
	for want, args := range map[string][]string{
		"name jobs by id, or --filter, and not both": {"wait", "1", "--filter", sweep},
		"--filter is empty":                          {"wait", "--filter", " "},
		`no state "fialed"`:                          {"wait", "--filter", "state:fialed"},
		"--since is not for --filter":                {"stats", "--since", "1h", "--filter", sweep},
		"--filter is empty: write id":                {"stats", "--filter", ""},
	} {
		require.Contains(t, command(exitUsage, "", args...), want)
	}
}
