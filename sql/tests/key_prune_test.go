package tests

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// prune looks at all queues for what nobody claims, in steps of so many keys, and says how many steps it took.
func (q *queue) prune(rowCount int32) (steps int) {
	q.Helper()
	place := db.LanePruneRow{}
	for {
		hints := q.number("select count(*) from jobq.lane_hint")
		row, err := q.schema.Queries(q.pool).LanePrune(context.Background(), db.LanePruneParams{
			AfterQueue: place.LastQueue, AfterKey: place.LastKey, AfterHint: place.LastHint, RowCount: rowCount,
		})
		require.NoError(q, err)
		require.LessOrEqual(q, hints-q.number("select count(*) from jobq.lane_hint"), int(rowCount), "hints in a step")
		if row.LastQueue == "" {
			return steps
		}
		place = row
		steps++
		require.Less(q, steps, 1000, "it comes to an end")
	}
}

// lanes counts the keys of all queues.
func (q *queue) lanes() int {
	q.Helper()
	return q.number("select count(*) from jobq.lane where key <> ''")
}

// Queues that nobody claims from keep no hints, and no keys of which nothing waits: in steps,
// however many there are, and in all queues.
func TestLanePruneOfAbandonedQueues(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("select jobq.enqueue('k', queue => 'queue ' || j, partition_key => 'key ' || i % 7) from generate_series(1, 20) i, generate_series(1, 3) j")
	require.Equal(t, 60, q.number("select count(*) from jobq.lane_hint"))
	require.GreaterOrEqual(t, q.prune(4), 15)
	require.Zero(t, q.number("select count(*) from jobq.lane_hint"))
	require.Equal(t, 21, q.lanes(), "those that have jobs stay")
	require.Equal(t, 21, q.number("select count(*) from jobq.lane where turn is not null"), "and are ready")
	q.exec("select jobq.delete_job(id) from jobq.pending where partition_key <> 'key 3'")
	require.GreaterOrEqual(t, q.prune(4), 3)
	require.Equal(t, 3, q.lanes())
	require.Equal(t, 3, q.number("select count(*) from jobq.lane where key = 'key 3'"))
	require.Equal(t, 3, q.number("select count(*) from jobq.lane where key = ''"))
}

// What runs keeps its key, and what has ended does not, whether its leases are there or not.
func TestLanePruneOfRunningJobs(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.set(`{"key_limit": 2}`)
	q.exec("select jobq.enqueue('k', partition_key => 'key ' || i, max_attempts => 1) from generate_series(1, 3) i")
	jobs := q.exchange(keyed("w", 10)).Keyed
	require.Len(t, jobs, 3)
	q.prune(100)
	require.Equal(t, 3, q.lanes(), "all of them run")
	q.exchange(db.Exchange{Owner: "w", Queue: "default", Completions: []db.Completion{{Slot: at(jobs[0].JobClaimRow), Kind: "k"}}})
	q.prune(100)
	require.Equal(t, 2, q.lanes(), "one has ended, and its lease is there")
	q.expire()
	q.reap()
	q.prune(100)
	require.Zero(t, q.lanes())
}

// A hint that it takes away is lost to nobody, and a limit holds all the same.
func TestLanePruneLosesNoJob(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.set(`{"key_limit": 1}`)
	q.enqueueKeyed("a", 3)
	q.prune(100)
	jobs := q.exchange(keyed("w", 10)).Keyed
	require.Len(t, jobs, 1)
	q.enqueueKeyed("a", 1)
	q.prune(100)
	require.Empty(t, q.exchange(keyed("w", 10)).Keyed)
	exchange := ended(keyed("w", 10), jobs...)
	exchange.Claim = nil
	q.exchange(exchange)
	q.prune(100)
	require.Zero(t, q.number("select count(*) from jobq.lane_hint"))
	require.Len(t, q.exchange(keyed("w", 10)).Keyed, 1)
}

// While a claim has its turn in a queue, that one is passed by.
func TestLanePruneWaitsForNoClaim(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.exec("select jobq.enqueue('k', queue => name, partition_key => 'a') from unnest(array['busy', 'idle']) name")
	tx, err := q.pool.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, q.schema.SQL("select jobq.queue_admit('busy', 10, 10, true)"))
	require.NoError(t, err)
	q.prune(100)
	require.Equal(t, 1, q.number("select count(*) from jobq.lane_hint where queue = 'busy'"))
	require.Zero(t, q.number("select count(*) from jobq.lane_hint where queue = 'idle'"))
	require.NoError(t, tx.Rollback(ctx))
	q.prune(100)
	require.Zero(t, q.number("select count(*) from jobq.lane_hint where queue = 'busy'"))
}

// A queue that has had no jobs with keys for a day is one without keys again. Claims of workers
// that do not know it yet leave it so, and the next job with a key is found.
func TestLanePruneForgetsThatAQueueHadKeys(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	const known = "select count(*) from jobq.lane"
	q.set(`{"key_limit": 2}`)
	q.enqueueKeyed("a", 1)
	jobs := q.exchange(keyed("w", 10)).Keyed
	require.Len(t, jobs, 1)
	q.prune(100)
	q.exec("update jobq.lane set looked_at = now() - interval '25 hours'")
	q.prune(100)
	require.Equal(t, 2, q.number(known), "one has run all the time")
	q.exchange(ended(keyed("w", 10), jobs...))
	q.prune(100)
	require.Equal(t, 1, q.number(known), "for a moment only")
	q.prune(100)
	require.Equal(t, 1, q.number(known))
	q.exec("update jobq.lane set looked_at = now() - interval '25 hours'")
	q.prune(100)
	require.Zero(t, q.number(known))
	require.Empty(t, q.exchange(keyed("w", 10)).Keyed)
	require.Zero(t, q.number(known), "a claim does not make it one with keys")
	q.enqueueKeyed("a", 1)
	require.Len(t, q.exchange(keyed("w", 10)).Keyed, 1)
}
