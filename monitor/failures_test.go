package monitor_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
)

// A group of failures is of one queue, kind and error, whose pattern is the
// reason, and its filter finds the jobs of the group and no others, whatever the
// error is made of.
func TestFailureGroups(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	long := strings.Repeat("a long reason * ", 6)
	groups := [][3]string{
		{"q", "A", "timeout"},
		{"q", "A", "http timeout"},
		{"q", "B", "timeout"},
		{"q two", "A", "timeout"},
		{"q", "A", "TIMEOUT"},
		{"q", "A", ""},
		{"q", "A", long + "1"},
		{"q", "A", `quoted "it", 100% \ done`},
		{"q", "A*", "timeout"},
		{"q", "A", "línea\r\nzwei"},
	}
	for _, group := range groups {
		w.Fail(group[0], group[1], group[2]+"\nline 1")
		w.Fail(group[0], group[1], group[2]+"\nline 2")
	}
	w.Fail("q", "A", long+"2") // the first words are the same
	failures, err := w.Monitor.Failures(ctx, monitor.FailureQuery{Span: time.Hour})
	require.NoError(t, err)
	require.Len(t, failures.Groups, len(groups))
	require.False(t, failures.More)
	require.Zero(t, failures.Left)
	require.EqualValues(t, 3, failures.Groups[0].Jobs, "the most frequent is first")
	for _, f := range failures.Groups {
		page, err := w.Client.List(ctx, jobq.Filter{Match: f.Filter() + " age:<1h"})
		require.NoError(t, err, f.Filter())
		require.Len(t, page.Jobs, int(f.Jobs), f.Filter())
		require.Equal(t, f.Example, page.Jobs[0].ID, f.Filter())
		require.Equal(t, *page.Jobs[0].FinishedAt, f.Last)
		require.Equal(t, *page.Jobs[f.Jobs-1].FinishedAt, f.First)
		for _, job := range page.Jobs {
			require.Equal(t, [2]string{f.Queue, f.Kind}, [2]string{job.Queue, job.Kind})
		}
	}
	_, err = w.Operator.Bulk(ctx, operator.BulkParams{Action: jobq.ActionRequeue, Filter: jobq.Filter{Match: failures.Groups[0].Filter()}})
	require.NoError(t, err)
	failures, err = w.Monitor.Failures(ctx, monitor.FailureQuery{Span: time.Hour})
	require.NoError(t, err)
	require.Len(t, failures.Groups, len(groups)-1, "what was requeued has not failed any more")
}

// That not all jobs were looked at is told also where none of those that were is wanted.
func TestFailuresBeyondThoseLookedAt(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	w.Fail("email", "Send", "timeout")
	wanted := func(query monitor.FailureQuery) monitor.Failures {
		t.Helper()
		query.Span = time.Hour
		failures, err := w.Monitor.Failures(ctx, query)
		require.NoError(t, err)
		return failures
	}
	email := wanted(monitor.FailureQuery{Queue: "email"})
	require.Len(t, email.Groups, 1)
	require.Equal(t, monitor.Failures{Groups: []monitor.Failure{}}, wanted(monitor.FailureQuery{Queue: "none"}))
	_, err := w.Client.Pool().Exec(ctx, `
		insert into jobq.run (id, lease_id, slot, state, finished_at, run_at, created_at, priority, attempts, max_attempts, crashes, args_apart, queue, kind)
		select nextval('jobq.job_id_seq'), jobq.lease_id_next(), 0, 'cancelled', clock_timestamp(), now(), now(), 0, 0, 1, 0, false, 'q', 'k'
		from generate_series(1, $1)`, monitor.FailuresMax)
	require.NoError(t, err)
	for _, query := range []monitor.FailureQuery{{}, {Queue: "email"}, {Kind: "Send"}, {ID: email.Groups[0].ID}} {
		require.Equal(t, monitor.Failures{Groups: []monitor.Failure{}, More: true}, wanted(query))
	}
}

// A run is silent when it has neither reported progress nor written output for
// longer than such runs usually take: three times their average of the last hour,
// ten minutes at least, and an hour where none has ended.
func TestSilentRuns(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	exec := func(sql string, args ...any) {
		_, err := w.Client.Pool().Exec(ctx, sql, args...)
		require.NoError(t, err, sql)
	}
	begun := func(queue, kind, ago string) db.JobClaimRow {
		job := w.Run(queue, kind)
		require.NoError(t, pgtest.UpdateRunning(ctx, w.Client.Pool(), pgtest.Columns{"started_at": "now() - interval '" + ago + "'"}, "id = $1", job.ID))
		return job
	}
	usually := func(kind string, seconds float64) {
		exec(`insert into jobq.stat_delta (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
			values (date_trunc('minute', now()), 'other', $1, 8, 1, 1, 0, 0, $2::float8 * 10, 0)`, kind, seconds)
	}
	usually("quick", 0.1)
	usually("slow", 1200)
	begun("q", "quick", "9 minutes")
	quick := begun("q", "quick", "11 minutes")
	longer := begun("q", "quick", "12 minutes")
	begun("q", "slow", "59 minutes")
	slow := begun("q", "slow", "61 minutes")
	begun("q", "unknown", "59 minutes")
	unknown := begun("q", "unknown", "2 hours")
	reports := begun("q", "quick", "3 hours")
	require.NoError(t, pgtest.UpdateRunning(ctx, w.Client.Pool(), pgtest.Columns{"progressed_at": "now() - interval '9 minutes'"}, "id = $1", reports.ID))
	writes := begun("q", "quick", "3 hours")
	for at, ago := range []string{"2 hours", "9 minutes"} {
		exec("insert into jobq.output (job_id, lease_token, begins_at, ends_at, written_at, content) values ($1, $2, $3::integer, $3::integer + 1, now() - $4::text::interval, 'x')",
			writes.ID, writes.LeaseToken, at, ago)
	}
	silent, err := w.Monitor.Silent(ctx)
	require.NoError(t, err)
	require.Len(t, silent, 3)
	for i, want := range []struct {
		kind    string
		runs    int64
		example int64
		usual   time.Duration
	}{{"unknown", 1, unknown.ID, 0}, {"slow", 1, slow.ID, 20 * time.Minute}, {"quick", 2, longer.ID, 100 * time.Millisecond}} {
		require.Equal(t, want, struct {
			kind    string
			runs    int64
			example int64
			usual   time.Duration
		}{silent[i].Kind, silent[i].Runs, silent[i].Example, silent[i].Usual})
	}
	require.NoError(t, pgtest.UpdateRunning(ctx, w.Client.Pool(), pgtest.Columns{"progressed_at": "now()"}, "id in ($1, $2)", quick.ID, longer.ID))
	require.NoError(t, pgtest.UpdateRunning(ctx, w.Client.Pool(), pgtest.Columns{"progressed_at": "null"}, "id = $1", reports.ID))
	exec("update jobq.output set written_at = now() - interval '11 minutes' where begins_at = 1")
	silent, err = w.Monitor.Silent(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 2, silent[0].Runs)
	require.Equal(t, reports.ID, silent[0].Example, "silent since it has begun")
}
