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

// A lease of before that an end has only extended is no start: the rate is not charged for it
// once more, at the moment of its claim, as if nothing had started since.
func TestExtendedLeasesAreNoStarts(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.set(`{"rate_jobs": 1, "rate_period": "1 hour", "rate_burst": 2}`)
	q.exec("select jobq.enqueue('k') from generate_series(1, 10)")
	held := q.exchange(limited("a", 1)).Claimed[0]
	const ago = "interval '4.5 hours'"
	q.change(pgtest.Columns{"started_at": "started_at - " + ago}, "true")
	q.exec("update jobq.throttle set ready_at = ready_at - " + ago)
	require.NoError(t, q.pool.QueryRow(context.Background(), "select claimed_at from jobq.lease").Scan(&held.StartedAt))
	require.Len(t, q.exchange(limited("b", 2)).Claimed, 2)
	require.Empty(t, q.exchange(limited("b", 2)).Claimed)

	for _, claims := range []bool{false, true} {
		exchange := limited("a", 2)
		exchange.Lease, exchange.Endings = time.Hour, []db.Ending{endingOf(held, "failed")}
		if !claims {
			exchange.Claim = nil
		}
		release := q.lockRuns(held.ID)
		answer, err := q.schema.Exchange(context.Background(), q.pool, exchange)
		require.ErrorIs(t, err, db.ErrBusy)
		require.Contains(t, answer.Recorded, held.LeaseToken, "it is extended")
		require.Empty(t, answer.Claimed)
		require.Empty(t, q.exchange(limited("b", 2)).Claimed, "claims: %t", claims)
		release()
	}
}

// between is a connection that calls a function before its second batch.
type between struct {
	db.Batcher
	batches int
	call    func()
}

func (b *between) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	if b.batches++; b.batches == 2 {
		b.call()
	}
	return b.Batcher.SendBatch(ctx, batch)
}

// An end that is stored the second time, since its row was locked the first time, wakes
// others as well.
func TestRoomOfASecondTryIsNotified(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.set(`{"max_running": 1}`)
	q.exec("select jobq.enqueue('k', max_attempts => 5)")
	held := q.exchange(limited("a", 1)).Claimed[0]
	conn, err := q.pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Exec(ctx, "listen "+db.Channel("jobq", db.TopicRoom)+"; listen done")
	require.NoError(t, err)
	defer func() { _, _ = conn.Exec(ctx, "unlisten *") }()
	answer, err := q.schema.Exchange(ctx, &between{Batcher: q.pool, call: q.lockRuns(held.ID)}, db.Exchange{
		Owner: "a", Queue: "default", HasLimits: true, Endings: []db.Ending{endingOf(held, "failed")},
	})
	require.NoError(t, err)
	require.Len(t, answer.Ended, 1)
	q.exec("notify done")
	notification, err := conn.Conn().WaitForNotification(ctx)
	require.NoError(t, err)
	require.Equal(t, db.Channel("jobq", db.TopicRoom), notification.Channel)
}

// What was used of a slow rate comes free at the pace of the faster one that follows, also
// where no more than that may start at once.
func TestFasterRateAfterAUsedOne(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("select jobq.enqueue('k') from generate_series(1, 2)")
	q.set(`{"rate_jobs": 1, "rate_period": "1 day", "rate_burst": 1}`)
	require.Len(t, q.exchange(limited("a", 1)).Claimed, 1)
	q.set(`{"rate_jobs": 1000, "rate_period": "1 s"}`)
	require.Eventually(t, func() bool { return len(q.exchange(limited("a", 1)).Claimed) == 1 }, eventually, tick)
}

// Only who has the queue's turn writes how far its rate is used: two who wrote it at once
// would each lose what the other has charged. Method: results are stored after the rate was
// changed, while another claim has its turn.
func TestOnlyATurnCharges(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.exec("select jobq.enqueue('k') from generate_series(1, 3)")
	q.set(`{"rate_jobs": 1, "rate_period": "1 day", "rate_burst": 2}`)
	held := q.exchange(limited("a", 1)).Claimed[0]
	q.set(`{"rate_jobs": 2, "rate_period": "1 day"}`)
	throttle := func() (row string) {
		require.NoError(t, q.pool.QueryRow(ctx, "select t::text from jobq.throttle t").Scan(&row))
		return row
	}
	before := throttle()

	turn, err := q.pool.Begin(ctx)
	require.NoError(t, err)
	_, err = turn.Exec(ctx, "select jobq.queue_admit('default', 1, 1, true)")
	require.NoError(t, err)
	exchange := limited("a", 1)
	exchange.Endings = []db.Ending{endingOf(held, "failed")}
	answer := q.exchange(exchange)
	require.Equal(t, db.BlockedByOthers, answer.Admission.Blocked)
	require.Len(t, answer.Ended, 1)
	require.Equal(t, before, throttle())

	require.NoError(t, turn.Rollback(ctx))
	q.exchange(limited("a", 1))
	require.NotEqual(t, before, throttle(), "the next turn charges at the new rate")
}
