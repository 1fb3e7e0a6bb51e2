package db_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// lock keeps the rows of running jobs locked until the function returned is called.
func (q *queue) lock(ids ...int64) (release func()) {
	q.Helper()
	ctx := context.Background()
	tx, err := q.pool.Begin(ctx)
	require.NoError(q, err)
	require.NoError(q, pgtest.LockRunning(ctx, tx, ids...))
	return func() { require.NoError(q, tx.Rollback(ctx)) }
}

// An exchange waits for no row: it does what it can, and tells what somebody
// else has locked from what is lost.
func TestExchangeWaitsForNoRow(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("select jobq.enqueue('k') from generate_series(1, 5)")
	require.Len(t, q.claim("a", 4), 4)
	q.change(pgtest.Columns{"lease_owner": "'b'"}, "id = 4")
	release := q.lock(1, 2)
	exchange := db.Exchange{
		Owner:       "a",
		Completions: []db.Completion{{ID: 1, Token: 1}, {ID: 3, Token: 1}},
		Endings:     []db.Ending{{ID: 2, Token: 1, Outcome: "failed", Started: true}, {ID: 4, Token: 1, Outcome: "failed", Started: true}},
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
	require.ElementsMatch(t, []int64{1, 2}, answer.Busy)
	require.Len(t, answer.Claimed, 1)

	release()
	exchange.Claim = nil
	answer = q.exchange(exchange)
	require.Equal(t, []int64{1}, answer.Completed)
	require.Len(t, answer.Ended, 1)
	require.Empty(t, answer.Busy)
}

// In a handler's own transaction, a completion waits for whoever has the row.
func TestCompletionInTransactionWaits(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("select jobq.enqueue('k')")
	require.Len(t, q.claim("a", 1), 1)
	release := q.lock(1)
	type answer struct {
		ids []int64
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		ids, err := q.queries.JobComplete(context.Background(), db.JobCompleteParams{
			Ids: []int64{1}, Tokens: []int64{1}, Results: []json.RawMessage{nil}, Owner: "a",
		})
		answers <- answer{ids, err}
	}()
	require.Eventually(t, func() bool {
		return q.number("select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'") > 0
	}, eventually, tick)
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
	q.claim("a", 1)
	tx, err := q.pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(ctx)) }()
	held, err := q.schema.Queries(tx).LeaseHold(ctx, 1, 1, "a")
	require.NoError(t, err)
	require.EqualValues(t, 1, held)
	stored, err := q.queries.JobProgress(ctx, db.JobProgressParams{ID: 1, Token: 1, Owner: "a"})
	require.NoError(t, err)
	require.EqualValues(t, 1, stored)
	answers, err := q.queries.LeaseExtend(ctx, db.LeaseExtendParams{Ids: []int64{1}, Tokens: []int64{1}, Owner: "a", Lease: hour})
	require.NoError(t, err)
	require.Contains(t, answers, db.LeaseExtendRow{ID: 1, Answer: "ok"})
}
