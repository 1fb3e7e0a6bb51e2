package monitor_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/operator"
)

// aged enqueues a job that has been available for so many hours.
func (p planted) aged(hours int, options jobq.EnqueueOptions) int64 {
	p.Helper()
	id := p.enqueue(options)
	p.age(id, hours)
	return id
}

// age makes a job that waits one that has been available for so many hours.
func (p planted) age(id int64, hours int) {
	p.Helper()
	p.exec("update jobq.pending set run_at = now() - $2::integer * interval '1 hour', created_at = now() - $2::integer * interval '1 hour' where id = $1", id, hours)
}

// lag is for how many whole hours the oldest job of the queue q has been available; -1 if there is none.
func (p planted) lag() int {
	p.Helper()
	queues, err := p.Monitor.Queues(context.Background())
	require.NoError(p, err)
	require.Len(p, queues, 1)
	if queues[0].HeadRunAt == nil {
		return -1
	}
	return int(time.Since(*queues[0].HeadRunAt).Hours())
}

// The age of a queue is that of the job that has been available for longest, whatever its priority and its partition key,
// but for the jobs of keys that a limit or an order holds. Each case says how many hours that is.
func TestQueueLag(t *testing.T) {
	t.Parallel()
	key := func(name string) jobq.EnqueueOptions { return jobq.EnqueueOptions{PartitionKey: name} }
	priority := func(priority int16) jobq.EnqueueOptions { return jobq.EnqueueOptions{Priority: priority} }
	for _, c := range []struct {
		name  string
		plant func(p planted)
		hours int
	}{
		{"nothing waits", func(p planted) { p.limit(operator.QueueChange{MaxRunning: new(1)}) }, -1},
		{"a scheduled job", func(p planted) { p.enqueue(jobq.EnqueueOptions{Delay: time.Hour}) }, -1},
		{"a job that has just come, for a time that is past", func(p planted) {
			p.exec("update jobq.pending set run_at = now() - interval '9 hours' where id = $1", p.enqueue(jobq.EnqueueOptions{}))
		}, 0},
		{"a job that was scheduled long ago", func(p planted) {
			p.exec("update jobq.pending set created_at = now() - interval '9 hours' where id = $1", p.enqueue(jobq.EnqueueOptions{}))
		}, 0},
		{"the less urgent one waits for longer", func(p planted) {
			p.aged(2, priority(5))
			p.aged(1, priority(-5))
			p.enqueue(priority(9))
		}, 2},
		{"the more urgent one waits for longer", func(p planted) {
			p.aged(1, priority(5))
			p.aged(2, priority(-5))
		}, 2},
		{"the least urgent one of more priorities than are looked at", func(p planted) {
			for i := range int16(105) {
				p.enqueue(priority(i))
			}
			p.aged(3, priority(200))
		}, 3},
		{"the last key", func(p planted) {
			p.enqueue(key("a"))
			p.enqueue(jobq.EnqueueOptions{})
			p.aged(4, key("z"))
		}, 4},
		{"a job without a key among keys", func(p planted) {
			p.enqueue(key("a"))
			p.aged(4, jobq.EnqueueOptions{})
		}, 4},
		{"the less urgent one of a key", func(p planted) {
			p.enqueue(key("a"))
			p.aged(4, jobq.EnqueueOptions{PartitionKey: "a", Priority: 9})
		}, 4},
		{"a full key, and another one", func(p planted) { fullKey(p); p.aged(1, key("z")) }, 1},
		{"a full key alone", func(p planted) { fullKey(p) }, -1},
		{"a full key, of which a run has ended", func(p planted) {
			p.exec("update jobq.lease set ended_slots = '{1}', ended_ms = '{1}' where id = $1", fullKey(p)) // and nobody has claimed since
		}, 5},
		{"a full key whose worker has died", func(p planted) {
			fullKey(p)
			p.Lose()
		}, 5},
		{"a key whose head waits for its retry, and another one", func(p planted) {
			p.limit(operator.QueueChange{KeyOrder: new(jobq.KeyOrderHold)})
			p.endKeyed(false)
			p.aged(5, key("a"))
			p.claimNothing()
			p.aged(1, key("z"))
		}, 1},
		{"a key whose head has its retry now", func(p planted) {
			p.limit(operator.QueueChange{KeyOrder: new(jobq.KeyOrderHold)})
			p.endKeyed(false)
			p.aged(5, key("a"))
			p.claimNothing()
			p.act(jobq.ActionRequeue, 1)
		}, 5},
		{"a key that a failed job stops", func(p planted) {
			p.limit(operator.QueueChange{KeyOrder: new(jobq.KeyOrderStop)})
			p.endKeyed(true)
			p.aged(5, key("a"))
			p.claimNothing()
		}, -1},
		{"a throttled key, and another one", func(p planted) {
			p.throttleKey("a")
			p.aged(5, key("a"))
			p.claimNothing()
			p.aged(1, key("z"))
		}, 1},
		{"a throttled key that may start a job now", func(p planted) {
			p.throttleKey("a")
			p.aged(5, key("a"))
			p.exec("update jobq.lane set throttled_until = throttled_until - interval '2 h' where key <> ''")
		}, 0}, // the first job of its line
		{"a paused key, and another one", func(p planted) {
			p.aged(5, key("a"))
			require.NoError(p, jobtest.ErrorOf(p.Operator.PauseKey(context.Background(), "q", "a", "")))
			p.aged(1, key("z"))
		}, 1},
		{"a paused key alone, of which no claim has heard", func(p planted) {
			p.aged(5, key("a"))
			p.exec("insert into jobq.lane (queue, key, turn) values ('q', 'a', 1)")
			require.NoError(p, jobtest.ErrorOf(p.Operator.PauseKey(context.Background(), "q", "a", "")))
		}, -1},
		{"a key behind more of them than are looked at, which has waited for its turn for longest", func(p planted) {
			p.aged(6, key("z"))
			p.aged(7, jobq.EnqueueOptions{PartitionKey: "z", Priority: 9})
			p.exec(`insert into jobq.pending (kind, queue, partition_key) select 'greeting', 'q', 'a' || i from generate_series(1, 150) i`)
			p.exec("insert into jobq.lane (queue, key, turn) values ('q', 'z', 1)")
			p.exec("insert into jobq.lane (queue, key, turn) select 'q', 'a' || i, 1 + i from generate_series(1, 150) i")
		}, 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := planted{jobtest.NewWorker(t)}
			c.plant(p)
			require.Equal(t, c.hours, p.lag())
		})
	}
}

// claimNothing claims jobs of keys, where there is none to be claimed.
func (p planted) claimNothing() {
	p.Helper()
	answer, err := p.Schema.Exchange(context.Background(), p.Client.Pool(), db.Exchange{
		Owner: "w", Queue: "q", HasKeys: true, OnlyKeyed: true, Claim: &db.JobClaimParams{
			Lease: db.Interval(time.Hour), Owner: "w", Queue: "q", Kinds: []string{"greeting"}, JobCount: 10,
		},
	})
	require.NoError(p, err)
	require.Empty(p, answer.Keyed)
}

// fullKey makes the key a full, with a job that waits for five hours. It returns the lease of the one that runs.
func fullKey(p planted) int64 {
	p.limit(operator.QueueChange{KeyLimit: new(1)})
	p.enqueue(jobq.EnqueueOptions{PartitionKey: "a"})
	p.aged(5, jobq.EnqueueOptions{PartitionKey: "a"})
	return p.claimKeyed(1)[0].LeaseToken
}

// With more than ten queues fewer lines of each are looked at, and all queues have their age.
func TestQueueLagOfManyQueues(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	p := planted{jobtest.NewWorker(t)}
	p.exec(`insert into jobq.pending (kind, queue, priority, run_at, created_at)
		select 'greeting', 'q' || q, i, now() - i * interval '1 hour', now() - i * interval '1 hour' from generate_series(1, 300) q, generate_series(1, 7) i`)
	queues, err := p.Monitor.Queues(ctx)
	require.NoError(t, err)
	require.Len(t, queues, 300)
	for _, q := range queues {
		require.NotNil(t, q.HeadRunAt, q.Name)
		require.Equal(t, 7, int(time.Since(*q.HeadRunAt).Hours()), fmt.Sprint("of ", q.Name))
	}
}
