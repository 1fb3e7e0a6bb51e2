package tests

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// toldOf is what the worker tells when a run has ended in SQL.
func (q *queue) toldOf(job db.KeyedJob) {
	q.Helper()
	require.Empty(q, q.exchange(db.Exchange{
		Owner: "w", Queue: "default", EndedKeys: []string{job.PartitionKey}, Unrecorded: []db.Slot{at(job.JobClaimRow)},
	}).Unrecorded)
}

// A job with a key that waits for its parent is in no line of its key, and holds nobody there. When it need not wait any more
// it is run, without a look at full or empty keys: in a queue with fair shares, with a limit, and in each order.
func TestKeyedJobThatWaitsForAParent(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]string{
		"fair": `{}`, "limit": `{"key_limit": 1}`, "hold": `{"key_order": "hold"}`, "pass": `{"key_order": "pass"}`, "stop": `{"key_order": "stop"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			q.set(settings)
			parent := q.number("select jobq.enqueue('k', queue => 'others')")
			id := int64(q.number("select jobq.enqueue('k', partition_key => 'a', after => array[$1::bigint])", parent))
			require.Empty(t, q.next(), "it waits")
			require.Zero(t, q.number("select count(*) from jobq.lane where key = 'a'"), "it is in no lane")
			require.Zero(t, q.number("select count(*) from jobq.lane_hint"))
			q.enqueueKeyed("a", 1)
			q.over(q.takeOne(id+1, "one that came later holds nothing"), "completed", false)
			require.Empty(t, q.next())

			q.exec("update jobq.dependency set on_failure = 'run'")
			q.exec("select jobq.cancel($1)", parent)
			q.settleNew(id)
			require.Equal(t, "available", q.state(id))
			job := q.takeOne(id, "it is free")
			require.Equal(t, "a", job.PartitionKey)
		})
	}
}

// A job with a key that awaits another one gives its key's place up meanwhile: others of the key run, and one
// that it awaits may be of its own key. With an order it is still the head, as one that waits for its retry: only
// pass lets others run.
func TestKeyedJobThatAwaitsAnother(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]string{
		"limit": `{"key_limit": 1}`, "hold": `{"key_order": "hold"}`, "pass": `{"key_order": "pass"}`, "stop": `{"key_order": "stop"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			q.set(settings)
			holds := name == "hold" || name == "stop"
			other := q.number("select jobq.enqueue('k', queue => 'others')")
			q.enqueueKeyed("a", 2)
			first := q.takeOne(int64(other)+1, "the first")
			require.Empty(t, q.next(), "one runs")
			done, _, err := stepAwait(q.pool, first.JobClaimRow, "other", int64(other))
			require.NoError(t, err)
			require.False(t, done)
			require.Equal(t, "waiting", q.state(first.ID))
			q.toldOf(first)
			if holds {
				require.Empty(t, q.next(), "it holds its key")
				require.Equal(t, "waiting", q.text("select n.waits from jobq.lane_next('default', 'a', $1) n", name))
			} else {
				q.over(q.takeOne(first.ID+1, "the second, while the first one waits"), "completed", false)
				require.Empty(t, q.next())
			}
			q.exec("select jobq.cancel($1)", other)
			q.settleNew(first.ID)
			first = q.takeOne(first.ID, "it goes on")
			done, ends, err := stepAwait(q.pool, first.JobClaimRow, "other", int64(other))
			require.NoError(t, err)
			require.True(t, done)
			require.Equal(t, "cancelled", ends[0].State)
			q.over(first, "completed", false)
			if holds {
				q.takeOne(first.ID+1, "the second")
			}
		})
	}
}

// A head that waits for others and is cancelled since one of them has failed lets its key go on, without the look at full
// keys after a minute.
func TestKeyGoesOnWhenItsHeadIsCancelledWithAParent(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"hold", "stop"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			q := ordered(t, order)
			other := q.number("select jobq.enqueue('k', queue => 'others')")
			q.enqueueKeyed("a", 2)
			first := q.takeOne(int64(other)+1, "the first")
			_, _, err := stepAwait(q.pool, first.JobClaimRow, "other", int64(other))
			require.NoError(t, err)
			q.toldOf(first)
			require.Empty(t, q.next(), "it holds its key")
			require.Zero(t, q.number("select count(*) from jobq.lane_hint"))

			q.exec("update jobq.dependency set on_failure = 'cancel'")
			q.exec("select jobq.cancel($1)", other)
			q.settleNew(first.ID)
			require.Equal(t, "cancelled", q.state(first.ID))
			q.takeOne(first.ID+1, fmt.Sprintf("job %d is cancelled", first.ID))
		})
	}
}
