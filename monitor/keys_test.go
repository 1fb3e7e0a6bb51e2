package monitor_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
)

// keysOf are the partition keys of q, without the moments.
func (p planted) keysOf(query monitor.KeyQuery) monitor.Keys {
	p.Helper()
	query.Queue = "q"
	keys, err := p.Monitor.Keys(context.Background(), query)
	require.NoError(p, err)
	for i, key := range keys.Keys {
		require.Equal(p, key.Available > 0, key.OldestRunAt != nil, "%s", key.Key)
		require.Equal(p, key.HeadState == "retry", key.HeadUntil != nil, "%s", key.Key)
		keys.Keys[i].OldestRunAt, keys.Keys[i].HeadUntil = nil, nil
	}
	return keys
}

// add enqueues so many jobs of a key.
func (p planted) add(key string, count int) {
	p.Helper()
	p.exec("select jobq.enqueue('greeting', queue => 'q', partition_key => $1) from generate_series(1, $2::integer)", key, count)
}

// Without a limit, keys are ready or idle, and what runs is found by the leases.
func TestKeysWithoutALimit(t *testing.T) {
	t.Parallel()
	p := planted{jobtest.NewWorker(t)}
	require.Equal(t, monitor.Keys{Keys: []monitor.Key{}}, p.keysOf(monitor.KeyQuery{}))
	p.add("c", 1)
	p.claimKeyed(1)
	p.add("b", 1)
	p.add("a", monitor.KeyAvailableMax+1)
	p.enqueue(jobq.EnqueueOptions{}) // belongs to no key
	p.exec("select jobq.enqueue('greeting', queue => 'other', partition_key => 'z')")
	p.exec("select jobq.enqueue('greeting', queue => 'q', partition_key => 'later', run_at => now() + interval '1 h')")
	a := monitor.Key{Key: "a", State: monitor.KeyReady, Weight: 1, Available: monitor.KeyAvailableMax}
	b := monitor.Key{Key: "b", State: monitor.KeyReady, Weight: 1, Available: 1}
	c := monitor.Key{Key: "c", State: monitor.KeyIdle, Weight: 1, Running: 1}
	require.Equal(t, monitor.Keys{Keys: []monitor.Key{a, b, c}}, p.keysOf(monitor.KeyQuery{}))
	require.Equal(t, monitor.Keys{Keys: []monitor.Key{a}, Next: "a"}, p.keysOf(monitor.KeyQuery{Limit: 1}))
	require.Equal(t, monitor.Keys{Keys: []monitor.Key{b, c}, Next: "c"}, p.keysOf(monitor.KeyQuery{After: "a", Limit: 2}))
	require.Equal(t, monitor.Keys{Keys: []monitor.Key{}}, p.keysOf(monitor.KeyQuery{After: "c", Limit: 2}))

	p.exec("update jobq.pending set run_at = now() - interval '1 day', created_at = now() - interval '1 day' where partition_key = 'a' and id = (select max(id) from jobq.pending where partition_key = 'a') - 1")
	keys, err := p.Monitor.Keys(context.Background(), monitor.KeyQuery{Queue: "q"})
	require.NoError(t, err)
	require.Less(t, *keys.Keys[0].OldestRunAt, time.Now().Add(-23*time.Hour), "the one that has waited longest, and not the first")
	p.exec("update jobq.pending set run_at = now() - interval '6 years' where partition_key = 'b'")
	keys, err = p.Monitor.Keys(context.Background(), monitor.KeyQuery{Queue: "q"})
	require.NoError(t, err)
	require.Greater(t, *keys.Keys[1].OldestRunAt, time.Now().Add(-23*time.Hour), "it waits since it was added")
}

// With a limit, a key is full as claims see it; and one that they have yet to forget is left out,
// while the page goes on behind it.
func TestKeysWithALimit(t *testing.T) {
	t.Parallel()
	p := planted{jobtest.NewWorker(t)}
	p.limit(operator.QueueChange{KeyLimit: new(2)})
	p.add("a", 4)
	p.add("b", 1)
	claimed := p.claimKeyed(3)
	require.Equal(t, []monitor.Key{
		{Key: "a", State: monitor.KeyFull, Weight: 1, Available: 2, Running: 2},
		{Key: "b", State: monitor.KeyIdle, Weight: 1, Running: 1},
	}, p.keysOf(monitor.KeyQuery{}).Keys)
	p.add("b", 1)
	require.Equal(t, monitor.Key{Key: "b", State: monitor.KeyReady, Weight: 1, Available: 1, Running: 1}, p.keysOf(monitor.KeyQuery{}).Keys[1])
	for _, job := range claimed {
		if job.PartitionKey == "a" {
			p.Complete(job.JobClaimRow)
			p.exec("delete from jobq.pending where id = $1::bigint + 2", job.ID)
		}
	}
	require.Equal(t, monitor.Keys{Keys: []monitor.Key{}, Next: "a"}, p.keysOf(monitor.KeyQuery{Limit: 1}))
	require.Equal(t, "b", p.keysOf(monitor.KeyQuery{After: "a"}).Keys[0].Key)
}

// With a rate, a key that has used it up says until when it waits, and one of which nothing waits is idle.
func TestKeysWithARate(t *testing.T) {
	t.Parallel()
	p := planted{jobtest.NewWorker(t)}
	p.throttleKey("a")
	p.add("b", 1)
	p.claimKeyed(1)
	p.add("c", 1)
	keys := p.keysOf(monitor.KeyQuery{}).Keys
	require.WithinDuration(t, time.Now().Add(time.Hour), *keys[0].ThrottledUntil, 10*time.Minute)
	require.Equal(t, []monitor.Key{
		{Key: "a", State: monitor.KeyThrottled, Weight: 1, Available: 1, Running: 1, ThrottledUntil: keys[0].ThrottledUntil},
		{Key: "b", State: monitor.KeyIdle, Weight: 1, Running: 1, ThrottledUntil: keys[1].ThrottledUntil},
		{Key: "c", State: monitor.KeyReady, Weight: 1, Available: 1},
	}, keys)
	require.NotNil(t, keys[1].ThrottledUntil, "the next one would wait")
}

// With an order, a key that has to wait for its head says for which one, and what it does.
func TestKeysInOrder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		order jobq.KeyOrder
		final bool
		want  monitor.Key
	}{
		{jobq.KeyOrderHold, false, monitor.Key{Key: "a", State: monitor.KeyHeld, Weight: 1, Available: 1, Head: 1, HeadState: "retry"}},
		{jobq.KeyOrderHold, true, monitor.Key{Key: "a", State: monitor.KeyReady, Weight: 1, Available: 1}},
		{jobq.KeyOrderPass, false, monitor.Key{Key: "a", State: monitor.KeyReady, Weight: 1, Available: 1}},
		{jobq.KeyOrderStop, true, monitor.Key{Key: "a", State: monitor.KeyHeld, Weight: 1, Available: 1, Head: 1, HeadState: "failed"}},
	} {
		t.Run(string(c.order)+map[bool]string{true: " for good"}[c.final], func(t *testing.T) {
			t.Parallel()
			p := planted{jobtest.NewWorker(t)}
			p.limit(operator.QueueChange{KeyOrder: &c.order})
			p.endKeyed(c.final)
			p.add("b", 2)
			p.claimKeyed(1)
			p.add("a", 1)
			require.Equal(t, []monitor.Key{
				c.want,
				{Key: "b", State: monitor.KeyFull, Weight: 1, Available: 1, Running: 1, Head: 2, HeadState: "running"},
			}, p.keysOf(monitor.KeyQuery{}).Keys)
		})
	}
}

// Of very many jobs that run without a limit, those are looked at that were claimed first.
func TestKeysOfManyRuns(t *testing.T) {
	t.Parallel()
	p := planted{jobtest.NewWorker(t)}
	p.exec(`insert into jobq.lease (id, claimed_at, expires_at, owner, queue, job_ids)
		select 1, now(), now() + interval '1 h', 'w', 'q', array(select generate_series(1000001, 1000000 + $1::integer))`, monitor.KeyRunsMax-1)
	p.add("a", 1)
	p.claimKeyed(1)
	keys := p.keysOf(monitor.KeyQuery{})
	require.Equal(t, monitor.Keys{Keys: []monitor.Key{{Key: "a", State: monitor.KeyIdle, Weight: 1, Running: 1}}}, keys)
	p.exec("update jobq.lease set job_ids = job_ids || 7000000 where id = 1")
	p.add("a", 1)
	keys = p.keysOf(monitor.KeyQuery{})
	require.Equal(t, monitor.Keys{Keys: []monitor.Key{{Key: "a", State: monitor.KeyReady, Weight: 1, Available: 1}}, MoreRun: true}, keys)
	none := monitor.Keys{Keys: []monitor.Key{}, MoreRun: true}
	require.Equal(t, none, p.keysOf(monitor.KeyQuery{After: "z"}), "told also where no key follows")
	require.Equal(t, none, p.keysOf(monitor.KeyQuery{After: "z", Limit: 1}))
}

func TestKeysRefused(t *testing.T) {
	t.Parallel()
	w := jobtest.NewWorker(t)
	for _, query := range []monitor.KeyQuery{{}, {Queue: "q", Limit: -1}, {Queue: "q", Limit: monitor.KeysMax + 1}, {Queue: "q\x00"}, {Queue: "q", After: "\xff"}} {
		_, err := w.Monitor.Keys(context.Background(), query)
		require.ErrorIs(t, err, jobq.ErrInvalid, "%v", query)
	}
}
