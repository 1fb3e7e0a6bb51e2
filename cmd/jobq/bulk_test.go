package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/operator"
)

// What bounds an action, or only asks what it would do, is never passed over:
// with ids, with a bound that is none, and with a filter that a script left empty.
func TestActionGuards(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	query[int64](t, pool, "select max(jobq.enqueue('a', queue => 'email')) from generate_series(1, 3)")
	command := func(want int, args ...string) string {
		t.Helper()
		out, stderr, code := invoke(t, "", append(args, "--database-url", url)...)
		require.Equal(t, want, code, stderr)
		return out + stderr
	}
	require.Equal(t, "would delete 2 of 3 jobs\n", command(exitOK, "delete", "1", "2", "99", "--dry-run"))
	require.Equal(t, "would requeue 0 of 1 job\n", command(exitOK, "requeue", "1", "--dry-run"))
	require.Equal(t, "would edit 1 of 1 job\n", command(exitOK, "edit", "1", "--priority", "3", "--dry-run"))
	require.Contains(t, command(exitUsage, "edit", "1", "--dry-run"), "say what to change")
	ids := []string{"cancel", "--dry-run"}
	for id := range 500 {
		ids = append(ids, fmt.Sprint(1e17+int64(id)))
	}
	require.Equal(t, "would cancel 1 of 501 jobs\n", command(exitOK, append(ids, "1")...))

	all := []string{"delete", "--filter", "queue:email", "--yes"}
	for _, test := range []struct {
		want string
		args []string
	}{
		{"need --filter", []string{"delete", "1", "--max", "1"}},
		{"need --filter", []string{"delete", "1", "--rate", "1/s"}},
		{"--max must be at least 1", append(all, "--max", "0")},
		{"--max must be at least 1", append(all, "--max", "-1")},
		{"--max must be at least 1", []string{"audit", "resume", "1", "--max", "0"}},
		{"--rate is empty", append(all, "--rate", "")},
		{"id:>0", []string{"delete", "--yes", "--filter", " "}},
		{"id:>0", []string{"edit", "--priority", "3", "--yes", "--filter", "\t\n"}},
		{"--filter is empty", []string{"delete", "--yes", "--filter", ""}},
		{"not both", []string{"delete", "--yes", "--filter", "", "1"}},
	} {
		require.Contains(t, command(exitUsage, test.args...), test.want, test.args)
	}
	require.Equal(t, 3, query[int](t, pool, "select count(*)::integer from jobq.pending where priority = 0"))
	require.Contains(t, command(exitOK, "delete", "--filter", "id:>0", "--yes"), "delete: 3 jobs")
}

// An action by filter that was refused for every job is told apart by its exit code; one that changed some
// has done what it was told.
func TestBulkRefused(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	makeFailed(t, url, "email", 2)
	require.NoError(t, pgtest.UpdateFinished(context.Background(), pool, pgtest.Columns{"unique_key": "'k' || id % 2", "kind": "'a'"}, "true"))
	query[int64](t, pool, "select max(e.id) from generate_series(0, 1) i cross join lateral jobq.enqueue('a', unique_key => 'k' || i) e(id)")
	requeue := func(want int) string {
		t.Helper()
		out, stderr, code := invoke(t, "", "requeue", "--filter", "state:failed", "--yes", "--database-url", url)
		require.Equal(t, want, code, stderr)
		return out + stderr
	}
	require.Contains(t, requeue(exitConflict), "requeue: every job was refused")
	query[string](t, pool, "select jobq.cancel(id)::text from jobq.pending where unique_key = 'k0'")
	require.Contains(t, requeue(exitOK), "requeue: 1 job, 1 refused")
}

// An edit by filter says all as JSON when it is asked to.
func TestBulkJSON(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	query[int64](t, pool, "select max(jobq.enqueue('a')) from generate_series(1, 3)")
	edit := func(flag string, into any) {
		t.Helper()
		out, stderr, code := invoke(t, "", "edit", "--filter", "id:>1", "--priority", "3", "--json", flag, "--database-url", url)
		require.Zero(t, code, stderr)
		require.NoError(t, json.Unmarshal([]byte(out), into), out)
	}
	var would struct {
		Action jobq.Action
		Count  int
	}
	edit("--dry-run", &would)
	require.Equal(t, jobq.ActionEdit, would.Action)
	require.Equal(t, 2, would.Count)
	var progress operator.BulkProgress
	edit("--yes", &progress)
	require.Equal(t, operator.BulkProgress{AuditID: 1, Done: 2}, progress)
}

// An action by filter that the database cuts off says how it goes on, as one
// that is interrupted does.
func TestBulkCut(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	proxy := pgtest.StartProxy(t, url)
	makeFailed(t, url, "email", 30)
	p := startProcess(t, "requeue", "--filter", "queue:email", "--yes", "--rate", "2/s", "--database-url", proxy.URL)
	eventually(t, pgtest.Connect(t, url), true, "select done >= 2 from jobq.audit where id = 1")
	proxy.Close()
	require.Error(t, p.Wait())
	require.Equal(t, exitError, p.ProcessState.ExitCode())
	require.Contains(t, p.log.String(), "go on with jobq audit resume 1")
}

// An interrupt ends the question, and nothing is done.
func TestAskInterrupted(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	query[int64](t, pool, "select jobq.enqueue('a')")
	term := openTerminal(t, 120, 20)
	term.run("delete", "--filter", "id:>0", "--database-url", url)
	term.await(`Type "delete"`)
	term.keys("C-c")
	term.await("nothing was done")
	require.Equal(t, 1, query[int](t, pool, "select count(*)::integer from jobq.job"))
}

// What producers write cannot drive the terminal of who reads an error or a
// table of CSV; a file has it as it is.
func TestHostileText(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	const key = "\x1b[31mred"
	first := query[int64](t, pool, "select jobq.enqueue('a', unique_key => $1)", key)
	query[string](t, pool, "select jobq.cancel($1)::text", first)
	query[int64](t, pool, "select jobq.enqueue('a', unique_key => $1)", key)
	_, stderr, code := invoke(t, "", "requeue", fmt.Sprint(first), "--database-url", url)
	require.Equal(t, exitConflict, code)
	require.Contains(t, stderr, "red")
	require.NotContains(t, stderr, "\x1b")
	out, _, _ := invoke(t, "", "list", "-o", "csv", "--database-url", url)
	require.Equal(t, 2, strings.Count(out, key))
	term := openTerminal(t, 200, 20)
	term.run("list", "-o", "csv", "--database-url", url)
	term.await("␛[31mred")
}

// Who stops watching has not met an error, also when that ends a query.
func TestWatchInterrupted(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	id := query[int64](t, pool, "select jobq.enqueue('a')")
	client, err := jobq.NewClient(pool, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, args := range [][]string{{"stats", "--watch"}, {"logs", "-f", fmt.Sprint(id)}} {
		a := &app{}
		root := newRootCommand(a)
		command, rest, err := root.Find(args)
		require.NoError(t, err)
		command.SetContext(ctx)
		require.NoError(t, command.ParseFlags(rest))
		switch args[0] {
		case "stats":
			require.NoError(t, watchOverview(command, 1e9, func() error { return a.writeOverview(command, client, 3600e9) }))
		case "logs":
			require.NoError(t, (&follower{client: client, id: id, out: command.OutOrStdout()}).run(ctx, true))
		}
	}
}
