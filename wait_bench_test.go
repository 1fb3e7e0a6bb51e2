package jobq_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/worker"
)

// How long after the handler's return its waiter goes on, while so many others wait for
// jobs that do not end. One job runs at a time.
func BenchmarkWait(b *testing.B) {
	for _, others := range []int{0, 10_000} {
		b.Run(fmt.Sprintf("others=%d", others), func(b *testing.B) {
			ctx, cancel := context.WithCancel(context.Background())
			client, err := jobq.NewClient(pgtest.Pool(b), nil)
			require.NoError(b, err)
			var waiting sync.WaitGroup
			defer waiting.Wait()
			defer cancel()
			if others > 0 {
				params := make([]jobq.EnqueueParams, others)
				for i := range params {
					params[i] = jobq.EnqueueParams{Args: jobtest.Greeting{}, EnqueueOptions: jobq.EnqueueOptions{Queue: "elsewhere"}}
				}
				enqueued, err := client.EnqueueMany(ctx, params)
				require.NoError(b, err)
				for _, job := range enqueued {
					waiting.Go(func() { _, _ = client.Wait(ctx, job.ID) })
				}
			}
			require.Eventually(b, func() bool {
				var rows int
				return client.Pool().QueryRow(ctx, awaitedRows).Scan(&rows) == nil && rows == others
			}, jobtest.Eventually, jobtest.Tick)
			var returned time.Time
			proceed := make(chan struct{})
			startWorker(b, client, 1, func(ctx context.Context, _ *worker.Job[jobtest.Greeting]) error {
				select {
				case <-proceed:
				case <-ctx.Done():
				}
				returned = time.Now()
				return nil
			})
			var took []time.Duration
			for b.Loop() {
				enqueued, err := client.Enqueue(ctx, jobtest.Greeting{}, nil)
				require.NoError(b, err)
				heard := make(chan time.Time, 1)
				go func() {
					_, _ = client.Wait(ctx, enqueued.ID)
					heard <- time.Now()
				}()
				require.Eventually(b, func() bool {
					var rows int
					return client.Pool().QueryRow(ctx, awaitedRows+" where job_id = $1", enqueued.ID).Scan(&rows) == nil && rows == 1
				}, jobtest.Eventually, time.Millisecond)
				proceed <- struct{}{}
				took = append(took, (<-heard).Sub(returned))
			}
			slices.Sort(took)
			at := func(part float64) float64 { return float64(took[int(part*float64(len(took)-1))].Microseconds()) / 1000 }
			b.ReportMetric(at(0.5), "p50-ms")
			b.ReportMetric(at(0.99), "p99-ms")
			b.ReportMetric(at(1), "max-ms")
		})
	}
}

// How many jobs a second one process enqueues and waits for, with so many at once.
func BenchmarkEnqueueAndWait(b *testing.B) {
	for _, callers := range []int{1, 100} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			ctx := context.Background()
			client, err := jobq.NewClient(pgtest.Pool(b), nil)
			require.NoError(b, err)
			startWorker(b, client, 100, func(context.Context, *worker.Job[jobtest.Greeting]) error { return nil })
			b.SetParallelism(callers)
			b.RunParallel(func(each *testing.PB) {
				for each.Next() {
					if _, err := client.EnqueueAndWait(ctx, jobtest.Greeting{}, nil); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
