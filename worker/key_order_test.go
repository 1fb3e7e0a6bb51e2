package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/worker"
)

// In a queue whose keys run in order, several workers start the jobs of each key one after another, as
// they were added, and a job that fails is tried again before the next one. No worker has claimed one of a key ahead. The
// polls are far too slow to be the reason.
func TestKeyOrderAtWork(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	setQueue(t, client, operator.QueueChange{KeyOrder: new(jobq.KeyOrderHold)})
	startJanitor(t, client)
	const keys, each = 3, 8
	var mu sync.Mutex
	started, running := make(map[string][]int64), make(map[string]int)
	var wrong []string
	for range 3 {
		start(t, client, &worker.Config{Queues: map[string]worker.QueueConfig{"default": {Slots: 4}}, PollInterval: time.Hour}, func(ctx context.Context, job *worker.Job[task]) error {
			key := job.PartitionKey()
			mu.Lock()
			if last := len(started[key]) - 1; running[key] > 0 || last >= 0 && started[key][last] > job.ID() {
				wrong = append(wrong, fmt.Sprintf("job %d of %s starts after %v, while %d run", job.ID(), key, started[key], running[key]))
			}
			started[key] = append(started[key], job.ID())
			running[key]++
			mu.Unlock()
			var claimed int
			err := client.Pool().QueryRow(ctx, "select count(*) from jobq.run r join jobq.job j on j.id = r.id where r.partition_key = $1 and j.state = 'running'", key).Scan(&claimed)
			mu.Lock()
			if err == nil && claimed > 1 {
				wrong = append(wrong, fmt.Sprintf("%d jobs of %s are claimed", claimed, key))
			}
			running[key]--
			mu.Unlock()
			if job.Args.N%3 == 0 && job.Attempt() < 3 {
				return errors.New("fails")
			}
			return err
		})
	}
	batch := make([]jobq.EnqueueParams, keys*each)
	for i := range batch {
		batch[i] = jobq.EnqueueParams{Args: task{i / keys}, EnqueueOptions: *ofKey(fmt.Sprint("key ", i%keys))}
		batch[i].BackoffBase, batch[i].BackoffMax = time.Millisecond, 20*time.Millisecond
	}
	_, err := client.EnqueueMany(ctx, batch)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return number(t, client, "select count(*) from jobq.job where state = 'completed'") == keys*each
	}, patience, 5*time.Millisecond)
	mu.Lock()
	defer mu.Unlock()
	require.Empty(t, wrong)
	for key, ids := range started {
		require.Len(t, ids, each+3*2, "%s: of every third job, two runs have failed", key)
	}
}

// A job that awaits one that it has spawned gives its key's only place up meanwhile: the other one, of the same key and in the same queue,
// runs in it. So it is with a limit of the key, and with an order in which the next ones pass. The polls are far too slow to be the
// reason.
func TestAwaitWithinAKey(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]operator.QueueChange{"limit": {KeyLimit: new(1)}, "pass": {KeyOrder: new(jobq.KeyOrderPass)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := newClient(t)
			setQueue(t, client, change)
			startJanitor(t, client)
			var ids sync.Map
			start(t, client, &worker.Config{Queues: map[string]worker.QueueConfig{"default": {Slots: 4}}, PollInterval: time.Hour}, func(ctx context.Context, job *worker.Job[task]) error {
				if job.Args.N == 2 {
					ids.Store("part", job.PartitionKey())
					return job.SetResult(17)
				}
				part, err := jobq.Spawn(ctx, "part", task{2}, ofKey("a"))
				if err != nil {
					return err
				}
				result, err := jobq.Await[int](ctx, "its end", part.ID)
				if err != nil {
					return err
				}
				ids.Store("result", result)
				return nil
			})
			id := enqueue(t, client, 1, ofKey("a"))
			awaitState(t, client, id, jobq.StateCompleted)
			part, _ := ids.Load("part")
			require.Equal(t, "a", part)
			result, _ := ids.Load("result")
			require.Equal(t, 17, result)
		})
	}
}
