package tests

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// locked keeps locked what the function locks, until the function returned is called.
func (q *queue) locked(lock func(tx pgx.Tx) error) (release func()) {
	q.Helper()
	tx, err := q.pool.Begin(context.Background())
	require.NoError(q, err)
	require.NoError(q, lock(tx))
	return func() { require.NoError(q, tx.Rollback(context.Background())) }
}

// lock keeps running jobs and their leases locked.
func (q *queue) lock(ids ...int64) (release func()) {
	q.Helper()
	return q.locked(func(tx pgx.Tx) error { return pgtest.LockRunning(context.Background(), tx, ids...) })
}

// lockRuns keeps running jobs locked, and not their leases.
func (q *queue) lockRuns(ids ...int64) (release func()) {
	q.Helper()
	return q.locked(func(tx pgx.Tx) error { return pgtest.LockRuns(context.Background(), tx, ids...) })
}

// lockLeases keeps leases locked, and not their jobs.
func (q *queue) lockLeases(ids ...int64) (release func()) {
	q.Helper()
	return q.locked(func(tx pgx.Tx) error {
		_, err := tx.Exec(context.Background(), "select from jobq.lease where id = any($1) for update", ids)
		return err
	})
}

// awaitLock returns when a statement waits for a lock.
func (q *queue) awaitLock() {
	q.Helper()
	require.Eventually(q, func() bool {
		return q.number("select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'") > 0
	}, eventually, tick)
}

// claimEach claims so many jobs with a lease for each, and returns them by id.
func (q *queue) claimEach(owner string, count int32) map[int64]db.JobClaimRow {
	q.Helper()
	jobs := make(map[int64]db.JobClaimRow, count)
	for _, job := range q.exchange(db.Exchange{Owner: owner, Claim: &db.JobClaimParams{
		LeasePerJob: true,
		Lease:       hour, Owner: owner, Queue: "default", Kinds: []string{"k"}, JobCount: count,
	}}).Claimed {
		jobs[job.ID] = job
	}
	require.Len(q, jobs, int(count))
	return jobs
}

// An exchange waits for no row: it does what it can, and tells what somebody
// else has locked from what is lost.
func TestExchangeWaitsForNoRow(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("select jobq.enqueue('k') from generate_series(1, 5)")
	jobs := q.claimEach("a", 4)
	q.change(pgtest.Columns{"lease_owner": "'b'"}, "id = 4")
	release := q.lock(1, 2)
	exchange := db.Exchange{
		Owner:       "a",
		Completions: []db.Completion{plainly(jobs[1]), plainly(jobs[3])},
		Endings:     []db.Ending{{Slot: at(jobs[2]), Outcome: "failed", Started: true}, {Slot: at(jobs[4]), Outcome: "failed", Started: true}},
		Claim:       &db.JobClaimParams{Lease: hour, Owner: "a", Queue: "default", Kinds: []string{"k"}, JobCount: 1},
	}
	ctx, cancel := context.WithTimeout(context.Background(), eventually)
	defer cancel()
	answer, err := q.schema.Exchange(ctx, q.pool, exchange)
	require.ErrorIs(t, err, db.ErrBusy)
	require.True(t, db.IsTransient(err))
	require.False(t, db.IsStale(err))
	require.Equal(t, []int64{3}, answer.Completed)
	require.Empty(t, answer.Ended)
	require.Empty(t, answer.Unrecorded)
	require.ElementsMatch(t, []int64{1, 2}, answer.Busy)
	require.Len(t, answer.Claimed, 1)

	release()
	exchange.Claim = nil
	answer = q.exchange(exchange)
	require.ElementsMatch(t, []int64{1, 3}, answer.Completed, "3 is asked after, and was stored before")
	require.Len(t, answer.Ended, 1)
	require.Empty(t, answer.Busy)
	require.Equal(t, 2, q.number("select sum(completed) from jobq.stats"))
}

// In a handler's own transaction, a completion waits for whoever has the row.
func TestCompletionInTransactionWaits(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("select jobq.enqueue('k')")
	job := q.claim("a", 1)[0]
	release := q.lock(1)
	type answer struct {
		ids []int64
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		ids, err := q.queries.RunCompleteTx(context.Background(), db.RunCompleteTxParams{ID: 1, Token: job.LeaseToken, Owner: "a", ClaimedAt: job.StartedAt})
		answers <- answer{ids, err}
	}()
	q.awaitLock()
	release()
	got := <-answers
	require.NoError(t, got.err)
	require.Equal(t, []int64{1}, got.ids)
}

// What a run itself holds, while it writes in its job's name, is in the way of
// neither its progress nor its lease.
func TestHeldByTheRunItself(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.exec("select jobq.enqueue('k')")
	job := q.claim("a", 1)[0]
	tx, err := q.pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(ctx)) }()
	held, err := q.schema.Queries(tx).RunHold(ctx, db.RunHoldParams{ID: 1, Token: job.LeaseToken, Owner: "a", ClaimedAt: job.StartedAt})
	require.NoError(t, err)
	require.EqualValues(t, 1, held)
	require.True(t, writes["progress"](q, at(job), "a"))
	require.Equal(t, db.LeaseOK, q.extend("a", at(job), time.Hour))
}
