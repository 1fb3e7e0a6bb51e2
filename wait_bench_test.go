package jobq_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/worker"
)

// waitForMany has so many wait for jobs that do not end, and returns when all are
// announced. The pool is to look at that.
func waitForMany(ctx context.Context, b *testing.B, client *jobq.Client, many int, pool *pgxpool.Pool, waiting *sync.WaitGroup) {
	b.Helper()
	if many == 0 {
		return
	}
	params := make([]jobq.EnqueueParams, many)
	for i := range params {
		params[i] = jobq.EnqueueParams{Args: jobtest.Greeting{}, EnqueueOptions: jobq.EnqueueOptions{Queue: "elsewhere"}}
	}
	enqueued, err := client.EnqueueMany(ctx, params)
	require.NoError(b, err)
	for _, job := range enqueued {
		waiting.Go(func() { _, _ = client.Wait(ctx, job.ID) })
	}
	require.Eventually(b, func() bool {
		var rows int
		return pool.QueryRow(ctx, awaitedRows).Scan(&rows) == nil && rows == many
	}, jobtest.Eventually, jobtest.Tick)
}

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
			waitForMany(ctx, b, client, others, client.Pool(), &waiting)
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

// What a client costs of which ten thousand wait while no job ends: its connections, and
// the statements a second, over half a minute each. It is about the time after the first
// looks, which come sooner.
func BenchmarkWaitIdle(b *testing.B) {
	const many, settle, span = 10_000, 20 * time.Second, 30 * time.Second
	ctx, cancel := context.WithCancel(context.Background())
	watching := pgtest.Pool(b)
	client, sent := tracedClient(b, watching.Config().ConnString(), nil)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	waitForMany(ctx, b, client, many, watching, &waiting)
	<-time.After(settle)
	var statements, connections, listening int
	var measured time.Duration
	for b.Loop() {
		before, begun := sent.total(), time.Now()
		<-time.After(span)
		statements, measured = statements+sent.total()-before, measured+time.Since(begun)
		require.NoError(b, watching.QueryRow(ctx, `select count(*), count(*) filter (where application_name = 'jobq-listen')
			from pg_stat_activity where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()`).Scan(&connections, &listening))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(statements)/measured.Seconds(), "statements/s")
	b.ReportMetric(float64(connections), "connections")
	b.ReportMetric(float64(listening), "listening")
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
