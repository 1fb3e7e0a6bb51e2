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
