package tests

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

var hour = pgtype.Interval{Microseconds: time.Hour.Microseconds(), Valid: true}

// sorted orders claimed jobs by id, as an exchange wants them.
func sorted(jobs []db.JobClaimRow) []db.JobClaimRow {
	slices.SortFunc(jobs, func(a, b db.JobClaimRow) int { return cmp.Compare(a.ID, b.ID) })
	return jobs
}

// end ends a claimed job and returns where it went.
func (q *queue) end(job db.JobClaimRow, ending db.Ending) string {
	q.Helper()
	ending.Slot, ending.Started = at(job), true
	ended := q.exchange(db.Exchange{Owner: "a", Endings: []db.Ending{ending}}).Ended
	require.Len(q, ended, 1)
	return ended[0].State
}

// What becomes of a job whose run did not simply succeed: the state, whether
// the run counts, whether the error is kept, and what the charts say.
func TestEndings(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	backoff, now, later := db.Delay{}, db.DelayOf(0), db.DelayOf(time.Hour)
	const free, last = 25, 1 // max_attempts
	for name, test := range map[string]struct {
		maxAttempts int
		cancelled   bool
		ending      db.Ending
		state       string
		attempts    int
		lastError   string
		stats       string // failed, retried, cancelled
	}{
		"failed":                        {free, false, db.Ending{Outcome: "failed", Delay: backoff}, "scheduled", 1, "e", "0,1,0"},
		"failed, at once":               {free, false, db.Ending{Outcome: "failed", Delay: now}, "available", 1, "e", "0,1,0"},
		"failed, later":                 {free, false, db.Ending{Outcome: "failed", Delay: later}, "scheduled", 1, "e", "0,1,0"},
		"failed, last attempt":          {last, false, db.Ending{Outcome: "failed", Delay: later}, "failed", 1, "e", "1,0,0"},
		"failed, for good":              {free, false, db.Ending{Outcome: "failed", Final: true}, "failed", 1, "e", "1,0,0"},
		"failed, to be cancelled":       {free, true, db.Ending{Outcome: "failed", Delay: now}, "cancelled", 1, "e", "0,0,1"},
		"last failed, to be cancelled":  {last, true, db.Ending{Outcome: "failed"}, "failed", 1, "e", "1,0,0"},
		"timed out":                     {free, false, db.Ending{Outcome: "timed_out", Delay: now}, "available", 1, "e", "0,1,0"},
		"timed out, last attempt":       {last, false, db.Ending{Outcome: "timed_out"}, "failed", 1, "e", "1,0,0"},
		"timed out, to be cancelled":    {free, true, db.Ending{Outcome: "timed_out"}, "cancelled", 1, "e", "0,0,1"},
		"cancelled":                     {free, true, db.Ending{Outcome: "cancelled"}, "cancelled", 0, "", "0,0,1"},
		"cancelled by itself":           {last, false, db.Ending{Outcome: "cancelled"}, "cancelled", 0, "", "0,0,1"},
		"released":                      {free, false, db.Ending{Outcome: "released"}, "available", 0, "", "0,0,0"},
		"released, last attempt":        {last, false, db.Ending{Outcome: "released"}, "available", 0, "", "0,0,0"},
		"released, final means nothing": {free, false, db.Ending{Outcome: "released", Final: true}, "available", 0, "", "0,0,0"},
		"released, to be cancelled":     {free, true, db.Ending{Outcome: "released"}, "cancelled", 0, "", "0,0,1"},
		"snoozed":                       {free, false, db.Ending{Outcome: "snoozed", Delay: later}, "scheduled", 0, "", "0,0,0"},
		"snoozed, last attempt":         {last, false, db.Ending{Outcome: "snoozed", Delay: later}, "scheduled", 0, "", "0,0,0"},
		"snoozed, to be cancelled":      {free, true, db.Ending{Outcome: "snoozed", Delay: later}, "cancelled", 0, "", "0,0,1"},
		"unreadable":                    {free, false, db.Ending{Outcome: "unreadable", Delay: later}, "scheduled", 0, "e", "0,0,0"},
		"unreadable, last attempt":      {last, false, db.Ending{Outcome: "unreadable", Delay: later}, "scheduled", 0, "e", "0,0,0"},
		"unreadable, to be cancelled":   {free, true, db.Ending{Outcome: "unreadable", Delay: later}, "cancelled", 0, "e", "0,0,1"},
	} {
		id := q.number("select jobq.enqueue('k', queue => $1, max_attempts => $2::integer, backoff_base => '1 hour')", name, test.maxAttempts)
		claimed := q.exchange(db.Exchange{Owner: "a", Claim: &db.JobClaimParams{Lease: hour, Owner: "a", Queue: name, Kinds: []string{"k"}, JobCount: 1}}).Claimed
		require.Len(t, claimed, 1, name)
		if test.cancelled {
			q.exec("select jobq.cancel($1)", id)
		}
		test.ending.Error = "e"
		require.Equal(t, test.state, q.end(claimed[0], test.ending), name)

		job, err := q.queries.JobGet(context.Background(), int64(id))
		require.NoError(t, err, name)
		require.Equal(t, test.state, job.State, name)
		require.EqualValues(t, test.attempts, job.Attempts, name)
		require.Equal(t, claimed[0].LeaseToken, job.LeaseToken, "%s: the token travels with the job", name)
		require.Zero(t, job.Crashes, name)
		if test.lastError == "" {
			require.Nil(t, job.LastError, name)
		} else {
			require.Equal(t, test.lastError, *job.LastError, name)
		}
		require.Equal(t, 1, q.number("select count(*) from jobq.attempt where job_id = $1 and number = 1 and error = 'e' and outcome::text = $2",
			id, test.ending.Outcome), name)
		var stats string
		require.NoError(t, q.pool.QueryRow(context.Background(), `select concat_ws(',', coalesce(sum(failed), 0), coalesce(sum(retried), 0),
			coalesce(sum(cancelled), 0)) from jobq.stats where queue = $1`, name).Scan(&stats))
		require.Equal(t, test.stats, stats, name)
	}
	require.Zero(t, q.number("select count(*) from jobq.job where state = 'running'"))
}

// The wait before a retry is drawn from what the row says, doubles, and stops
// at its cap; a snooze and a given delay are exact.
func TestDelays(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	seconds := func() float64 {
		var seconds float64
		require.NoError(t, q.pool.QueryRow(context.Background(), "select extract(epoch from run_at - clock_timestamp())::float8 from jobq.pending where id = 1").Scan(&seconds))
		return seconds
	}
	again := func() db.JobClaimRow {
		q.exec("select jobq.requeue(1)")
		jobs := q.claim("a", 1)
		require.Len(t, jobs, 1)
		return jobs[0]
	}
	q.exec("select jobq.enqueue('k', backoff_base => '1000 s', backoff_max => '3000 s')")
	longest := 0.0
	for i := range 12 {
		q.end(again(), db.Ending{Outcome: "failed"})
		require.LessOrEqual(t, seconds(), min(3000, 1000*float64(int(1)<<i)))
		longest = max(longest, seconds())
	}
	require.Greater(t, longest, 300.0, "twelve draws up to 3000 are not all below 300")
	q.end(again(), db.Ending{Outcome: "failed", Delay: db.DelayOf(time.Hour)})
	require.InDelta(t, 3600, seconds(), 30)
	q.end(again(), db.Ending{Outcome: "snoozed", Delay: db.DelayOf(2 * time.Hour)})
	require.InDelta(t, 7200, seconds(), 30)
}

// A run that is recorded has begun as long before its end as its worker says, but
// never before its claim; where the worker does not know, with the claim.
func TestRunBeginsAfterItsClaim(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("select jobq.enqueue('k') from generate_series(1, 5)")
	jobs := sorted(q.claim("a", 5))
	require.Len(t, jobs, 5)
	q.exec("update jobq.lease set claimed_at = claimed_at - interval '1 hour'")
	for i := range jobs {
		jobs[i].StartedAt.Time = jobs[i].StartedAt.Time.Add(-time.Hour)
	}
	q.exchange(db.Exchange{
		Owner: "a",
		Completions: []db.Completion{
			{Slot: at(jobs[0]), Output: "x", Ran: 3 * time.Second},
			{Slot: at(jobs[1]), Output: "x"},
		},
		Endings: []db.Ending{
			{Slot: at(jobs[2]), Outcome: "failed", Error: "e", Final: true, Started: true, Ran: 3 * time.Second},
			{Slot: at(jobs[3]), Outcome: "failed", Error: "e", Final: true, Started: true},
			{Slot: at(jobs[4]), Outcome: "failed", Error: "e", Final: true, Started: true, Ran: 3 * time.Hour},
		},
	})
	// In minutes: what the test itself takes is no part of it.
	for id, minutes := range map[int]int{1: 0, 2: 60, 3: 0, 4: 60, 5: 60} {
		const took = "select round(extract(epoch from finished_at - started_at) / 60)::integer from "
		require.Equal(t, minutes, q.number(took+"jobq.attempt where job_id = $1", id), id)
		require.Equal(t, minutes, q.number(took+"jobq.job where id = $1", id), id)
	}
	require.Equal(t, 3*60, q.number("select round(sum(run_seconds) / 60)::integer from jobq.stat_delta"))
}

// A batch with some leases lost does what it can under the others, and says
// which those were.
func TestBatchWithLostLeases(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("select jobq.enqueue('k') from generate_series(1, 6)")
	jobs := make(map[int64]db.Slot)
	for range 6 { // a lease for each
		job := q.claim("a", 1)[0]
		jobs[job.ID] = at(job)
	}
	q.change(pgtest.Columns{"lease_owner": "'b'"}, "id in (2, 5)")
	wrong := jobs[3]
	wrong.Token += 1000
	answer := q.exchange(db.Exchange{
		Owner: "a",
		Completions: []db.Completion{
			{Slot: jobs[1], Result: json.RawMessage(`{"n":1}`), Output: "one"},
			{Slot: jobs[2], Result: json.RawMessage(`{"n":2}`), Output: "two"},
			{Slot: wrong, Result: json.RawMessage(`{"n":3}`), Output: "three"},
		},
		Endings: []db.Ending{
			{Slot: jobs[4], Outcome: "failed", Error: "four", Started: true},
			{Slot: jobs[5], Outcome: "failed", Error: "five", Started: true},
		},
	})
	require.Equal(t, []int64{1}, answer.Completed)
	require.Len(t, answer.Ended, 1)
	require.EqualValues(t, 4, answer.Ended[0].ID)
	require.Equal(t, 4, q.number("select count(*) from jobq.job where state = 'running' and id in (2, 3, 5, 6)"))
	require.Equal(t, 1, q.number("select count(*) from jobq.job where finished_at is not null and result = '{\"n\": 1}'"))
	require.Equal(t, 2, q.number("select count(*) from jobq.attempt"), "the output of a lost run is kept nowhere")
	require.Equal(t, 1, q.number("select count(*) from jobq.attempt where output = 'one' and outcome = 'completed'"))
}

// An exchange is all or nothing: when its claim is refused, nothing is finished.
func TestExchangeIsAtomic(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("select jobq.enqueue('k') from generate_series(1, 2)")
	job := q.claim("a", 1)[0]
	_, err := q.schema.Exchange(context.Background(), q.pool, db.Exchange{
		Owner: "a", Completions: []db.Completion{plainly(job)},
		Claim: &db.JobClaimParams{Lease: hour, Owner: "a", Queue: "default", Kinds: []string{"k\x00"}, JobCount: 1},
	})
	require.Error(t, err)
	require.Equal(t, 1, q.number("select count(*) from jobq.job where state = 'running'"))
	require.Zero(t, q.number("select count(*) from jobq.job where finished_at is not null"))
}

// What a run leaves is bounded, and a refusal names the field; the row stays
// under its lease, so that the worker can end it in another way.
func TestRunLimits(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.exec("select jobq.enqueue('k')")
	job := at(q.claim("a", 1)[0])
	refused := func(err error, want string) {
		t.Helper()
		require.Error(t, err)
		reason, ok := db.Invalid(err)
		require.True(t, ok, err)
		require.Contains(t, reason, want)
		require.False(t, db.IsTransient(err))
		require.Equal(t, 1, q.number("select count(*) from jobq.job where state = 'running' and lease_token = $1", job.Token))
	}
	exchange := func(exchange db.Exchange) error {
		exchange.Owner = "a"
		_, err := q.schema.Exchange(ctx, q.pool, exchange)
		return err
	}
	large := json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)
	refused(exchange(db.Exchange{Completions: []db.Completion{{Slot: job, Result: large}}}), "result must be at most 1048576 bytes")
	refused(exchange(db.Exchange{Completions: []db.Completion{{Slot: job, Result: json.RawMessage(`"\u0000"`)}}}), "NUL")
	refused(exchange(db.Exchange{Completions: []db.Completion{{Slot: job, Output: strings.Repeat("x", 64<<10+1)}}}), "output must be at most 64 KiB")
	refused(exchange(db.Exchange{Endings: []db.Ending{{Slot: job, Outcome: "failed", Error: strings.Repeat("x", 64<<10+1), Started: true}}}), "error must be at most 64 KiB")
	refused(exchange(db.Exchange{Endings: []db.Ending{{Slot: job, Outcome: "failed", Error: "a\x00b", Started: true}}}), "UTF-8")
	progress := func(percent float32, stage, message string) error {
		_, err := q.queries.RunProgress(ctx, db.RunProgressParams{Percent: &percent, Stage: &stage, Message: &message, ID: job.ID, Token: job.Token, Owner: "a", ClaimedAt: db.Timestamp(job.ClaimedAt)})
		return err
	}
	refused(progress(101, "", ""), "progress_percent must be 0 to 100")
	refused(progress(-1, "", ""), "progress_percent must be 0 to 100")
	refused(progress(1, strings.Repeat("s", 129), ""), "progress_stage must be at most 128")
	refused(progress(1, "", strings.Repeat("m", 1025)), "progress_message must be at most 1024")
	_, err := q.queries.RunCheckpoint(ctx, db.RunCheckpointParams{Checkpoint: large, ID: job.ID, Token: job.Token, Owner: "a", ClaimedAt: db.Timestamp(job.ClaimedAt)})
	refused(err, "checkpoint must be at most 1048576 bytes")

	// Of the longest error, last_error has the beginning and the end, in whole
	// characters.
	longest := "begin" + strings.Repeat("é", 30_000) + "end"
	require.NoError(t, exchange(db.Exchange{Endings: []db.Ending{{Slot: job, Outcome: "failed", Error: longest, Started: true}}}))
	require.Equal(t, 1, q.number(`select count(*) from jobq.pending
		where last_error like E'beginé%é\n… 29048 characters cut …\né%éend' and char_length(last_error) between 960 and 1000`))
}

// Progress keeps what it is not told, and a claim forgets all of it.
func TestProgressIsMerged(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.exec("select jobq.enqueue('k')")
	job := q.claim("a", 1)[0]
	percent, stage := float32(40), "resize"
	for _, params := range []db.RunProgressParams{{Percent: &percent}, {Stage: &stage}} {
		params.ID, params.Token, params.Owner, params.ClaimedAt = job.ID, job.LeaseToken, "a", job.StartedAt
		count, err := q.queries.RunProgress(ctx, params)
		require.NoError(t, err)
		require.EqualValues(t, 1, count)
	}
	require.Equal(t, 1, q.number("select count(*) from jobq.job where state = 'running' and progress_percent = 40 and progress_stage = 'resize' and progress_message is null and progressed_at <= clock_timestamp()"))
}

// halfway is a connection that fails after the first batch.
type halfway struct {
	db.Batcher
	batches int
}

func (h *halfway) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	h.batches++
	if h.batches > 1 {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		ctx = ended
	}
	return h.Batcher.SendBatch(ctx, batch)
}

// What was claimed is the worker's although the second half of the round trip,
// which asks again for what did not come back, has failed.
func TestClaimsOfHalfAnExchange(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("select jobq.enqueue('k')")
	answer, err := q.schema.Exchange(context.Background(), &halfway{Batcher: q.pool}, db.Exchange{
		Owner: "a", Completions: []db.Completion{{Slot: db.Slot{ID: 99, Token: 1, Slot: 1}}},
		Claim: &db.JobClaimParams{Lease: hour, Owner: "a", Queue: "default", Kinds: []string{"k"}, JobCount: 1},
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, answer.Claimed, 1)
	require.Equal(t, 1, q.number("select count(*) from jobq.job where state = 'running'"))
}

// The time of runs that were cancelled is no part of what runs take.
func TestRunSecondsOfCancelled(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("insert into jobq.pending (kind) select 'k' from generate_series(1, 3)")
	jobs := q.claim("a", 3)
	q.change(pgtest.Columns{"started_at": "started_at - interval '1 hour'"}, "true")
	for i := range jobs {
		jobs[i].StartedAt.Time = jobs[i].StartedAt.Time.Add(-time.Hour)
	}
	require.Equal(t, "cancelled", q.end(jobs[0], db.Ending{Outcome: "cancelled"}))
	q.exec("select jobq.cancel($1)", jobs[1].ID)
	require.Equal(t, "cancelled", q.end(jobs[1], db.Ending{Outcome: "failed"}))
	require.Zero(t, q.number("select sum(run_seconds)::integer from jobq.stats"))
	require.Equal(t, "scheduled", q.end(jobs[2], db.Ending{Outcome: "failed"}))
	require.InDelta(t, 3600, q.number("select sum(run_seconds)::integer from jobq.stats"), 100)
	q.exec("insert into jobq.pending (kind) values ('k')")
	lost := q.claim("a", 1)[0]
	q.exec("select jobq.cancel($1)", lost.ID)
	q.expire()
	_, err := q.schema.Reap(context.Background(), q.pool, nil, 10, "test")
	require.NoError(t, err)
	require.Zero(t, q.number("select sum(lost)::integer from jobq.stats"), "it counts as cancelled, and not as a run")
}

// Whatever backoff a job has, and however often it has failed, its end is stored, and so
// are those beside it: one statement ends many.
func TestAnyBackoff(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	const limits = `array['1 us', '1 s', '102 days', '3600 days', '86400 hours', '3599 days 24:00:00']::interval[]`
	q.exec(`insert into jobq.pending (kind, attempts, max_attempts, backoff_base, backoff_max)
		select 'k', attempts, 32767, base, cap from unnest(array[0, 15, 20, 32000]) attempts, unnest(` + limits + `) base, unnest(` + limits + `) cap`)
	claimed := sorted(q.exchange(db.Exchange{Owner: "a", Claim: &db.JobClaimParams{
		Lease: hour, Owner: "a", Queue: "default", Kinds: []string{"k"}, JobCount: 1000,
	}}).Claimed)
	require.Len(t, claimed, 4*6*6)
	endings := make([]db.Ending, len(claimed))
	for i, job := range claimed {
		endings[i] = db.Ending{Slot: at(job), Outcome: "failed", Error: "e", Started: true}
	}
	require.Len(t, q.exchange(db.Exchange{Owner: "a", Endings: endings}).Ended, len(claimed))
	require.Zero(t, q.number(`select count(*) from jobq.pending
		where run_at > clock_timestamp() + least(make_interval(secs => greatest(extract(epoch from backoff_max)::float8, 0)), interval '3653 days')`))
}
