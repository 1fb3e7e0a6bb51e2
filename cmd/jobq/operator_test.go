package main

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/monitor"
)

// failedJobs enqueues jobs and lets them fail for good, without a worker.
const failedJobs = `with added as (select jobq.enqueue('SendInvoice', '{"tenant": 4411}', queue => $1) as id from generate_series(1, $2::integer)),
	gone as (select jobq.cancel(id) from added) select count(*) from gone`

// makeFailed makes jobs of a queue that have failed, and returns their ids.
func makeFailed(t *testing.T, url, queue string, count int) (ids []int64) {
	t.Helper()
	pool := pgtest.Connect(t, url)
	query[int](t, pool, failedJobs, queue, count)
	require.NoError(t, pgtest.UpdateFinished(context.Background(), pool, pgtest.Columns{
		"state": "'failed'", "attempts": "1", "last_error": "'smtp 421 rate limited'",
	}, "queue = $1", queue))
	return query[[]int64](t, pool, "select array_agg(id order by id) from jobq.job where queue = $1 and state = 'failed'", queue)
}

// An operator finds failed jobs by filter, in every format, requeues them by
// filter, undoes that, and the audit tells the story.
func TestOperator(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	ids := makeFailed(t, url, "email", 3)
	command := func(want int, args ...string) string {
		t.Helper()
		out, stderr, code := invoke(t, "", append(args, "--database-url", url)...)
		require.Equal(t, want, code, stderr)
		return out + stderr
	}
	const match = `state:failed queue:email kind:Send* err:"smtp 421" age:<2h args.tenant=4411`
	list := strings.TrimSpace(command(exitOK, "list", match, "-o", "id"))
	require.Equal(t, fmt.Sprintf("%d\n%d\n%d", ids[2], ids[1], ids[0]), list)
	require.Contains(t, command(exitOK, "list", match, "-o", "wide"), "CREATED")
	require.Equal(t, 3, strings.Count(command(exitOK, "list", match, "-o", "jsonl"), `"state":"failed"`))
	require.Equal(t, 4, strings.Count(command(exitOK, "list", match, "-o", "csv"), "\n"))
	require.Contains(t, command(exitOK, "list", match, "--sort", "finished", "--limit", "2"), "more: --after ")
	require.Contains(t, command(exitUsage, "list", "state:fialed"), `no state "fialed"`)
	require.Contains(t, command(exitUsage, "list", "-o", "xml"), "must be table, wide")

	require.Contains(t, command(exitOK, "requeue", "--filter", match, "--dry-run"), "would requeue 3 jobs")
	require.Contains(t, command(exitUsage, "requeue", "--filter", match), "give --yes")
	require.Contains(t, command(exitUsage, "requeue", "--filter", match, "--yes", "--rate", "fast"), "jobs a second")
	require.Contains(t, command(exitUsage, "requeue"), "name jobs by id, or --filter")
	require.Contains(t, command(exitOK, "requeue", "--filter", match, "--yes", "--max", "2", "--rate", "1000/s"), "requeue: 2 jobs, 0 refused; take it back with: jobq undo 1")
	require.Contains(t, command(exitOK, "undo", "1"), "2 of 2 undone")
	require.Contains(t, command(exitConflict, "undo", "1"), "undone already")
	require.Contains(t, command(exitNotFound, "undo", "99"), "no such action")
	require.Contains(t, command(exitNotFound, "audit", "resume", "99"), "no such action")
	require.Contains(t, command(exitOK, "delete", fmt.Sprint(ids[0])), "deleted")
	require.Contains(t, command(exitNotFound, "requeue", fmt.Sprint(ids[0])), "no such job")
	command(exitOK, "queues", "pause", "email", "--reason", "smtp down")

	var entries []monitor.AuditEntry
	out, _, _ := invoke(t, "", "audit", "--json", "--database-url", url)
	require.NoError(t, json.Unmarshal([]byte(out), &entries))
	var story []string
	for _, entry := range entries {
		story = append(story, fmt.Sprint(entry.Action, " ", entry.Done))
		require.Contains(t, entry.Actor, " via jobq")
	}
	require.Equal(t, []string{"pause 0", "requeue 0", "delete 1", "undo 2", "requeue 2"}, story)
	require.Contains(t, command(exitOK, "audit"), "undone by 2")
	require.Equal(t, "action 5 undone\n", command(exitOK, "undo", fmt.Sprint(entries[0].ID)))
}

// The list of the command line and that of the terminal UI say the same about the
// same job, in the same columns.
func TestListsAgree(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	makeFailed(t, url, "failed", 1)
	makeFailed(t, url, "completed", 1)
	query[int](t, pool, `with f as (update jobq.run set state = 'completed', began_at = finished_at - interval '92.3 s' where queue = 'completed' returning id)
		select count(*)::integer from f`)
	makeFailed(t, url, "retrying", 1)
	query[string](t, pool, "select jobq.requeue(id)::text from jobq.job where queue = 'retrying'")
	query[int](t, pool, `with p as (update jobq.pending set position = null, attempts = 3, run_at = now() + interval '36.5 hours' where queue = 'retrying' returning id)
		select count(*)::integer from p`)
	query[int64](t, pool, "select jobq.enqueue('New', queue => 'available')")
	list, _, _ := invoke(t, "", "list", "--database-url", url)
	frame, _, _ := invoke(t, "", "tui", "--print", "jobs", "--size", "160x40", "--ascii", "--database-url", url)
	age := regexp.MustCompile(` \d+(ms|s)\b`) // has changed between the two
	words := func(line string) string {
		return age.ReplaceAllString(strings.Join(strings.Fields(strings.TrimLeft(line, "> ")), " "), " now")
	}
	var shown []string
	for line := range strings.Lines(frame) {
		shown = append(shown, words(line))
	}
	lines := strings.Split(strings.TrimSpace(list), "\n")
	require.Len(t, lines, 5)
	for _, line := range lines {
		require.Contains(t, shown, words(line))
	}
	require.Contains(t, list, "retrying")
	require.Contains(t, list, "1m32s")
	require.Equal(t, 2, strings.Count(list, "smtp 421 rate limited"), list)
}

// A job is shown with its runs in the order in which they were, whatever attempt
// each was, and a time to come is not one long ago.
func TestShowCountsRuns(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	id := makeFailed(t, url, "email", 1)[0]
	query[int](t, pool, `with a as (insert into jobq.attempt (job_id, finished_at, started_at, lease_token, outcome, number, worker_id)
		select $1, now(), now() - interval '1.5 s', i, 'failed', 1, 'w' from generate_series(1, 3) i returning 1) select count(*)::integer from a`, id)
	out, _, _ := invoke(t, "", "show", fmt.Sprint(id), "--database-url", url)
	require.Contains(t, out, "attempt      1 of 25, 0 crashed")
	for run := 1; run <= 3; run++ {
		require.Equal(t, 1, strings.Count(out, fmt.Sprintf("\nrun %d  failed after 1.5s, ", run)), out)
	}
	later := query[int64](t, pool, "select jobq.enqueue('k', run_at => now() + interval '1 hour 30 minutes')")
	out, _, _ = invoke(t, "", "show", fmt.Sprint(later), "--database-url", url)
	require.Regexp(t, `run at +\S+ \(in 1h\)`, out)
}

// A watched list writes each job once, and again when it has changed, as JSON
// lines that a program can follow.
func TestListWatch(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	id := query[int64](t, pool, "select jobq.enqueue('a')")
	p := startProcess(t, "list", "queue:default", "--watch=20ms", "--database-url", url)
	p.awaitLog(t, fmt.Sprintf(`{"id":%d,"state":"available"`, id))
	other := query[int64](t, pool, "select jobq.enqueue('b')")
	p.awaitLog(t, fmt.Sprintf(`{"id":%d,"state":"available"`, other))
	query[string](t, pool, "select jobq.cancel($1)::text", id)
	p.awaitLog(t, fmt.Sprintf(`{"id":%d,"state":"cancelled"`, id))
	require.NoError(t, p.Process.Signal(syscall.SIGINT))
	require.NoError(t, p.Wait())
	require.Equal(t, 3, strings.Count(p.log.String(), "\n"))
}

// One frame needs no terminal; the UI itself does, and says what works without.
func TestTUIPrint(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	ids := makeFailed(t, url, "email", 2)
	frame, stderr, code := invoke(t, "", "tui", "--print", "overview", "--size", "80x24", "--database-url", url)
	require.Zero(t, code, stderr)
	require.Equal(t, 24, strings.Count(frame, "\n"))
	require.Contains(t, frame, "email")
	frame, _, _ = invoke(t, "", "tui", "--print", fmt.Sprintf("job/%d", ids[0]), "--size", "120x35", "--ascii", "--read-only", "--database-url", url)
	require.Contains(t, frame, "smtp 421 rate limited")
	require.Contains(t, frame, "RO")
	_, stderr, code = invoke(t, "", "tui", "--database-url", url)
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "jobq stats --watch")
	require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
	for _, args := range [][]string{{"--print", "nowhere"}, {"--print", "overview", "--size", "big"}} {
		_, _, code = invoke(t, "", append([]string{"tui", "--database-url", url}, args...)...)
		require.Equal(t, exitUsage, code)
	}
}
