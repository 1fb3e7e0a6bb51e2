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
	require.EqualValues(t, 3, failures.Groups[0].Failed, "the most frequent is first")
	for _, f := range failures.Groups {
		page, err := w.Client.List(ctx, jobq.Filter{Match: f.Filter() + " age:<1h"})
		require.NoError(t, err, f.Filter())
		require.Len(t, page.Jobs, int(f.Failed), f.Filter())
		require.Equal(t, f.Example, page.Jobs[0].ID, f.Filter())
		require.Equal(t, *page.Jobs[0].FinishedAt, f.Last)
		require.Equal(t, *page.Jobs[f.Failed-1].FinishedAt, f.First)
		for _, job := range page.Jobs {
			require.Equal(t, [2]string{f.Queue, f.Kind}, [2]string{job.Queue, job.Kind})
		}
	}
	_, err = w.Operator.Bulk(ctx, operator.BulkParams{Action: jobq.ActionRequeue, Filter: jobq.Filter{Match: failures.Groups[0].Filter()}})
	require.NoError(t, err)
	failures, err = w.Monitor.Failures(ctx, monitor.FailureQuery{Span: time.Hour})
	require.NoError(t, err)
	require.Len(t, failures.Groups, len(groups))
	require.Equal(t, [2]int64{0, 3}, [2]int64{failures.Groups[0].Failed, failures.Groups[0].Retrying}, "what was requeued is to be tried again")
}

// Jobs that have failed and are to be tried again are in the groups of those that have failed for good in
// the same way, or in groups of their own; and a filter finds them. What was requeued, or runs, is not among them.
func TestFailureGroupsOfRetries(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	retry := func(kind, reason string, delay time.Duration) int64 {
		job := w.Run("q", kind)
		answer, err := w.Schema.Exchange(ctx, w.Client.Pool(), db.Exchange{Owner: "w", Endings: []db.Ending{{
			Slot: jobtest.At(job), Outcome: string(jobq.OutcomeFailed), Error: reason, Delay: db.DelayOf(delay), Started: true,
		}}})
		require.NoError(t, err)
		require.Len(t, answer.Ended, 1)
		return job.ID
	}
	groups := func(query monitor.FailureQuery) monitor.Failures {
		t.Helper()
		query.Span = time.Hour
		failures, err := w.Monitor.Failures(ctx, query)
		require.NoError(t, err)
		return failures
	}
	w.Fail("q", "A", "user 1: gone")
	both := []int64{retry("A", "user 2: gone", time.Hour), retry("A", "user 3: gone", 2*time.Hour)}
	alone := retry("B", "timeout", time.Hour)
	_, err := w.Client.Pool().Exec(ctx, "update jobq.pending set run_at = now(), position = nextval('jobq.position_seq') where id = $1", both[0])
	require.NoError(t, err)

	again := w.Fail("q", "C", "requeued")
	require.NoError(t, jobtest.Requeue(w.Client, again))
	waits := retry("E", "waits for others", time.Hour)
	_, err = w.Client.Pool().Exec(ctx, "update jobq.pending set waits = true where id = $1", waits)
	require.NoError(t, err)
	runs := retry("D", "runs", 0)
	answer, err := w.Schema.Exchange(ctx, w.Client.Pool(), db.Exchange{Owner: "w", Claim: &db.JobClaimParams{Lease: db.Interval(time.Hour), Owner: "w", Queue: "q", Kinds: []string{"D"}, JobCount: 1}})
	require.NoError(t, err)
	require.Len(t, answer.Claimed, 1)
	require.Equal(t, runs, answer.Claimed[0].ID)

	failures := groups(monitor.FailureQuery{})
	require.Len(t, failures.Groups, 3, "%v", failures.Groups)
	first, second, third := failures.Groups[0], failures.Groups[1], failures.Groups[2]
	require.Equal(t, []any{"A", "user #: gone", int64(1), int64(2), both[1]}, []any{first.Kind, first.Error, first.Failed, first.Retrying, first.Example})
	require.Equal(t, first.First, first.Last, "of the one that has failed for good")
	require.Equal(t, monitor.Failure{ID: second.ID, Queue: "q", Kind: "B", Error: "timeout", Retrying: 1, Example: alone}, second)
	require.Equal(t, []any{"C", int64(0), int64(1), again}, []any{third.Kind, third.Failed, third.Retrying, third.Example})
	require.Equal(t, []monitor.Failure{second}, groups(monitor.FailureQuery{ID: second.ID}).Groups)
	require.Equal(t, []monitor.Failure{second}, groups(monitor.FailureQuery{Kind: "B"}).Groups)
	require.False(t, failures.More || failures.MoreRetrying)
	for _, group := range failures.Groups {
		page, err := w.Client.List(ctx, jobq.Filter{Match: group.RetryFilter()})
		require.NoError(t, err, group.RetryFilter())
		require.Len(t, page.Jobs, int(group.Retrying), group.RetryFilter())
	}

	add := func(attempts int) {
		_, err := w.Client.Pool().Exec(ctx, `
			insert into jobq.pending (kind, queue, position, last_error, attempts)
			select 'A', 'q', null, 'user 4: gone', $2 from generate_series(1, $1::integer) i`, monitor.FailuresMax, attempts)
		require.NoError(t, err)
	}
	add(0) // as those are that were given back
	require.Equal(t, failures, groups(monitor.FailureQuery{}), "they have not failed, and hide none that have")
	add(1)
	failures = groups(monitor.FailureQuery{})
	require.True(t, failures.MoreRetrying)
	require.False(t, failures.More)
	require.Len(t, failures.Groups, 1, "the newest are looked at")
	require.Equal(t, [2]int64{1, monitor.FailuresMax}, [2]int64{failures.Groups[0].Failed, failures.Groups[0].Retrying})
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
