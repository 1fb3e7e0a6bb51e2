package tests

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// retried are completions that were sent before, with an unknown outcome.
func (l lease) retried(slots ...int16) []db.Completion {
	completions := l.completions(slots...)
	for i := range completions {
		completions[i].Retried = true
	}
	return completions
}

// A plain end that is sent again while the server still works on the first try is
// counted once: it waits for that, and does not end on its own row beside it.
func TestRetryBesideTheFirstTry(t *testing.T) {
	t.Parallel()
	for _, commits := range []bool{true, false} {
		t.Run(fmt.Sprint("commit ", commits), func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			l := leaseOf(setUp(t), 4)
			tx, err := l.pool.Begin(ctx)
			require.NoError(t, err)
			first, err := l.schema.Exchange(ctx, tx, db.Exchange{Owner: "a", Completions: l.completions(1, 2)})
			require.NoError(t, err)
			require.Equal(t, l.ids(1, 2), first.Completed)
			answer, err := l.schema.Exchange(ctx, l.pool, db.Exchange{Owner: "a", Completions: append(l.retried(1, 2), l.completions(3)...)})
			require.ErrorIs(t, err, db.ErrBusy)
			require.Equal(t, l.ids(1, 2), answer.Busy)
			require.Equal(t, l.ids(3), answer.Completed, "on its own row, since it was not sent before")
			require.Equal(t, []db.Slot{at(l.jobs[3])}, answer.Unrecorded)
			if commits {
				require.NoError(t, tx.Commit(ctx))
			} else {
				require.NoError(t, tx.Rollback(ctx))
			}
			require.Equal(t, l.ids(1, 2), l.exchange(db.Exchange{Owner: "a", Completions: l.retried(1, 2)}).Completed)
			require.Empty(t, l.exchange(db.Exchange{Owner: "a", Unrecorded: answer.Unrecorded}).Unrecorded)
			require.Equal(t, l.ids(4), l.succeed(4))
			require.Zero(t, l.leases())
			require.Equal(t, 1, l.number("select count(*) from jobq.run where state is not null"), "3 alone")
			require.Equal(t, 4, l.number("select sum(completed) from jobq.stats"))
		})
	}
}

// So is one that has grown too old to end in its lease, and is sent again to end on
// its own row: it waits for the first try, of which that row knows nothing.
func TestOldRetryBesideTheFirstTry(t *testing.T) {
	t.Parallel()
	for _, commits := range []bool{true, false} {
		t.Run(fmt.Sprint("commit ", commits), func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			l := leaseOf(setUp(t), 2)
			tx, err := l.pool.Begin(ctx)
			require.NoError(t, err)
			_, err = l.schema.Exchange(ctx, tx, db.Exchange{Owner: "a", Completions: l.completions(1)})
			require.NoError(t, err)
			retry := db.Exchange{Owner: "a", Completions: l.retried(1)}
			retry.Completions[0].OnRow = true
			answer, err := l.schema.Exchange(ctx, l.pool, retry)
			require.ErrorIs(t, err, db.ErrBusy)
			require.Equal(t, l.ids(1), answer.Busy)
			if commits {
				require.NoError(t, tx.Commit(ctx))
			} else {
				require.NoError(t, tx.Rollback(ctx))
			}
			require.Equal(t, l.ids(1), l.exchange(retry).Completed)
			require.Equal(t, 1, l.number("select sum(completed) from jobq.stats"))
			require.Equal(t, !commits, l.number("select count(*) from jobq.run where state is not null") == 1)
			require.Equal(t, l.ids(2), l.succeed(2))
			require.Zero(t, l.leases())
		})
	}
}

// The first try may commit between the retry's snapshot and its lock of the lease:
// the lease as it is then has the end already.
func TestOldRetryMeetsTheFirstTry(t *testing.T) {
	t.Parallel()
	l := leaseOf(setUp(t), 2)
	retry := db.Exchange{Owner: "a", Completions: l.retried(1)}
	retry.Completions[0].OnRow = true
	var answer db.Exchanged
	l.meanwhile(runEndLooks, func(conn db.Batcher) {
		var err error
		if answer, err = l.schema.Exchange(context.Background(), conn, retry); err != nil {
			t.Error(err)
		}
	}, func() { require.Equal(t, l.ids(1), l.succeed(1)) })
	require.Equal(t, l.ids(1), answer.Completed)
	require.Equal(t, 1, l.number("select sum(completed) from jobq.stats"))
	require.Zero(t, l.number("select count(*) from jobq.run where state is not null"))
}

// Of what is sent again together, some may have been stored: the rest is busy
// once, and is then stored without it. What was taken away is neither.
func TestRetryOfWhatWasStoredInPart(t *testing.T) {
	t.Parallel()
	l := leaseOf(setUp(t), 3)
	require.Equal(t, l.ids(1), l.succeed(1))
	answer, err := l.schema.Exchange(context.Background(), l.pool, db.Exchange{Owner: "a", Completions: l.retried(1, 2)})
	require.ErrorIs(t, err, db.ErrBusy)
	require.Equal(t, l.ids(1), answer.Completed)
	require.Equal(t, l.ids(2), answer.Busy)
	require.Equal(t, l.ids(2), l.exchange(db.Exchange{Owner: "a", Completions: l.retried(2)}).Completed)
	require.Equal(t, 1, l.lose(100))
	require.Equal(t, l.ids(1, 2), l.exchange(db.Exchange{Owner: "a", Completions: l.retried(1, 2, 3)}).Completed)
	require.Equal(t, 2, l.number("select sum(completed) from jobq.stats"))
	require.Equal(t, 2, l.number("select count(*) from jobq.run where state is null"), "the lease alone knows")
}

// An end on its own row is told to the lease later also when the answer that said
// so was lost: it is stored, so the retry finds nothing that it could end, and
// the lease is locked still.
func TestUnrecordedEndAfterALostAnswer(t *testing.T) {
	t.Parallel()
	l := leaseOf(setUp(t), 5)
	exchange := db.Exchange{Owner: "a", Completions: l.completions(1, 2), Endings: []db.Ending{
		{Slot: at(l.jobs[3]), Outcome: "failed", Error: "e", Started: true},
		{Slot: at(l.jobs[4]), Outcome: "released"},
	}}
	exchange.Completions[0].OnRow = true
	stored := []db.Slot{at(l.jobs[1]), at(l.jobs[2]), at(l.jobs[3]), at(l.jobs[4])}
	release := l.lockLeases(l.id)
	require.ElementsMatch(t, stored, l.exchange(exchange).Unrecorded, "2 as well, since the lease did not take it")
	before := l.everything()
	for i := range exchange.Completions {
		exchange.Completions[i].Retried = true
		exchange.Completions[i].OnRow = true
	}
	again := l.exchange(exchange)
	require.Equal(t, before, l.everything())
	require.ElementsMatch(t, l.ids(1, 2), again.Completed)
	require.Empty(t, again.Ended)
	require.ElementsMatch(t, stored, again.Unrecorded)
	release()
	require.Empty(t, l.exchange(db.Exchange{Owner: "a", Unrecorded: again.Unrecorded}).Unrecorded)
	require.Equal(t, l.ids(5), l.succeed(5))
	require.Zero(t, l.leases(), "none of them is waited for")
}

// What is busy has not ended: the lease is not to be told of it.
func TestBusyEndIsNotUnrecorded(t *testing.T) {
	t.Parallel()
	l := leaseOf(setUp(t), 2)
	defer l.lock(l.jobs[1].ID)()
	answer, err := l.schema.Exchange(context.Background(), l.pool, db.Exchange{
		Owner: "a", Completions: l.completions(2), Endings: []db.Ending{{Slot: at(l.jobs[1]), Outcome: "failed", Started: true}},
	})
	require.ErrorIs(t, err, db.ErrBusy)
	require.Equal(t, l.ids(1), answer.Busy)
	require.Equal(t, []db.Slot{at(l.jobs[2])}, answer.Unrecorded)
}

// losing is a connection that loses the answer to the second round trip, which
// the server has done.
type losing struct {
	db.Batcher
	trips *int
}

type lostAnswer struct{ pgx.BatchResults }

var errLost = errors.New("connection lost")

func (l losing) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	if *l.trips++; *l.trips == 2 {
		return lostAnswer{l.Batcher.SendBatch(ctx, batch)}
	}
	return l.Batcher.SendBatch(ctx, batch)
}

func (l lostAnswer) Close() error { return errors.Join(l.BatchResults.Close(), errLost) }

// A plain end that was stored on its own row, since somebody had the lease locked,
// is counted once also when the answer that said so was lost.
func TestRetryAfterTheSecondRoundTripIsLost(t *testing.T) {
	t.Parallel()
	l := leaseOf(setUp(t), 3)
	release := l.lockLeases(l.id)
	exchange := db.Exchange{Owner: "a", Completions: append(l.completions(1), l.retried(2)...)}
	answer, err := l.schema.Exchange(context.Background(), losing{l.pool, new(int)}, exchange)
	require.ErrorIs(t, err, errLost)
	require.Equal(t, l.ids(1), answer.OnRow, "2 waits for its lease")
	release()
	for i := range exchange.Completions {
		exchange.Completions[i].Retried = true
	}
	exchange.Completions[0].OnRow = true
	require.ElementsMatch(t, l.ids(1, 2), l.exchange(exchange).Completed)
	require.Equal(t, l.ids(3), l.succeed(3))
	require.Zero(t, l.leases())
	require.Equal(t, 3, l.number("select sum(completed) from jobq.stats"))
}

// Two runs of one job in one exchange: what is stored of the one is not said of the other.
func TestTwoRunsOfOneJobInOneExchange(t *testing.T) {
	t.Parallel()
	l := leaseOf(setUp(t), 1)
	require.Equal(t, 1, l.lose(100))
	again := l.claim("a", 1)[0]
	answer := l.exchange(db.Exchange{Owner: "a", Completions: l.completions(1), Endings: []db.Ending{{Slot: at(again), Outcome: "snoozed", Started: true}}})
	require.Empty(t, answer.Completed)
	require.Len(t, answer.Ended, 1)
	require.Empty(t, answer.Unrecorded)
}

// A run that has completed before, as in its handler's own transaction, comes
// back as completed, whatever the caller says of how it ended.
func TestEndingOfACompletedRun(t *testing.T) {
	t.Parallel()
	l := leaseOf(setUp(t), 3)
	_, err := l.queries.RunCompleteTx(context.Background(), db.RunCompleteTxParams{ID: l.jobs[1].ID, Token: l.id, Owner: "a", ClaimedAt: l.jobs[1].StartedAt})
	require.NoError(t, err)
	answer := l.exchange(db.Exchange{Owner: "a", Completions: l.completions(2), Endings: []db.Ending{
		{Slot: at(l.jobs[1]), Outcome: "failed", Error: "e", Started: true}, {Slot: at(l.jobs[3]), Outcome: "failed", Final: true, Started: true},
	}})
	require.ElementsMatch(t, l.ids(1, 2), answer.Completed)
	require.Equal(t, []db.RunEndRow{{ID: l.jobs[3].ID, State: "failed"}}, answer.Ended)
	require.Empty(t, answer.Busy)
	require.Zero(t, l.leases(), "the lease is told of it")
	require.Equal(t, 2, l.number("select sum(completed) from jobq.stats"))

	again := l.exchange(db.Exchange{Owner: "a", Endings: []db.Ending{{Slot: at(l.jobs[1]), Outcome: "failed"}, {Slot: at(l.jobs[3]), Outcome: "failed"}}})
	require.Equal(t, l.ids(1), again.Completed)
	require.Empty(t, again.Ended)
}
