package worker_test

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/worker"
)

// wakeUpsVariable is how many single inserts TestNoLostWakeUps makes.
const wakeUpsVariable = "JOBQ_WAKE_UPS"

// A worker that never polls finds every job of writers that insert one by one,
// at random moments, while it goes idle and busy and idle again. Were one
// wake-up lost, its job would lie there when all is still.
func TestNoLostWakeUps(t *testing.T) {
	t.Parallel()
	total := 4000
	if wanted := os.Getenv(wakeUpsVariable); wanted != "" {
		var err error
		total, err = strconv.Atoi(wanted)
		require.NoError(t, err)
	}
	const writers = 4
	client := newClient(t)
	var ran atomic.Int64
	start(t, client, &worker.Config{PollInterval: time.Hour}, func(context.Context, *worker.Job[task]) error {
		ran.Add(1)
		return nil
	})
	var writing sync.WaitGroup
	for writer := range writers {
		random := rand.New(rand.NewPCG(uint64(writer), 0)) // #nosec G404 -- repeatable
		writing.Go(func() {
			for i := range total / writers {
				tx, err := client.Pool().Begin(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				_, err = client.EnqueueTx(context.Background(), tx, task{i}, nil)
				if random.IntN(20) == 0 { // long enough for the worker to go idle
					<-time.After(time.Duration(random.IntN(20)) * time.Millisecond)
				}
				if err == nil {
					err = tx.Commit(context.Background())
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writing.Wait()
	require.Eventually(t, func() bool { return ran.Load() == int64(total/writers*writers) }, patience, time.Millisecond,
		"%d of %d ran: wake-ups were lost", ran.Load(), total)
}
