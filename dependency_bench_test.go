package jobq_test

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/janitor"
	"github.com/jobq-dev/jobq/worker"
)

// addChildren adds jobs that wait for those that lie in the line, in one of the ways of
// BenchmarkDependents, and returns how many.
func addChildren(b *testing.B, client *jobq.Client, way string, parents []int64) int {
	b.Helper()
	params := []jobq.EnqueueParams{}
	add := func(after ...int64) {
		params = append(params, jobq.EnqueueParams{Args: jobtest.Greeting{}, EnqueueOptions: jobq.EnqueueOptions{Queue: "elsewhere", After: after}})
	}
	switch way {
	case "one of another":
		other, err := client.Enqueue(context.Background(), jobtest.Greeting{}, &jobq.EnqueueOptions{Queue: "elsewhere"})
		require.NoError(b, err)
		add(other.ID)
	case "one each":
		for _, parent := range parents {
			add(parent)
		}
	case "one of all":
		add(parents...)
	case "all of one":
		for range parents {
			add(parents[0])
		}
	}
	_, err := client.EnqueueMany(context.Background(), params)
	require.NoError(b, err)
	return len(params)
}

// How long it takes to add 10,000 jobs at once, of which each waits for so many of those
// before it.
func BenchmarkEnqueueGraph(b *testing.B) {
	const jobs = 10_000
	for _, parents := range []int{0, 1, 10} {
		b.Run(fmt.Sprintf("%d dependencies", jobs*parents), func(b *testing.B) {
			client, err := jobq.NewClient(pgtest.Pool(b), nil)
			require.NoError(b, err)
			var graph jobq.Graph
			for i := range jobs {
				var after []string
				for before := max(i-parents, 0); before < i; before++ {
					after = append(after, strconv.Itoa(before))
				}
				graph.Add(strconv.Itoa(i), jobtest.Greeting{}, nil, after...)
			}
			for b.Loop() {
				added, err := client.EnqueueGraph(context.Background(), &graph)
				require.NoError(b, err)
				require.Len(b, added, jobs)
			}
			b.ReportMetric(jobs*float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
		})
	}
}

// How many jobs a second end, with no dependencies at all, with one of a job that does not
// end, and while others wait for them in several ways; and how long it takes after that
// until all that waited are free.
func BenchmarkDependents(b *testing.B) {
	const jobs = 20_000
	for _, way := range []string{"none", "one of another", "one each", "one of all", "all of one"} {
		b.Run(way, func(b *testing.B) {
			var ended, freed time.Duration
			for b.Loop() {
				ctx, cancel := context.WithCancel(context.Background())
				pool := pgtest.Pool(b)
				client, err := jobq.NewClient(pool, nil)
				require.NoError(b, err)
				params := make([]jobq.EnqueueParams, jobs)
				for i := range params {
					params[i].Args = jobtest.Greeting{}
				}
				enqueued, err := client.EnqueueMany(ctx, params)
				require.NoError(b, err)
				parents := make([]int64, jobs)
				for i, job := range enqueued {
					parents[i] = job.ID
				}
				children := addChildren(b, client, way, parents)
				j, err := janitor.New(client, &janitor.Config{Logger: slog.New(slog.DiscardHandler)})
				require.NoError(b, err)
				stopped := make(chan error, 1)
				go func() { stopped <- j.Run(ctx) }()
				began := time.Now()
				startWorker(b, client, 500, func(context.Context, *worker.Job[jobtest.Greeting]) error { return nil })
				await := func(sql string) time.Duration {
					for {
						var done bool
						require.NoError(b, pool.QueryRow(ctx, sql).Scan(&done))
						if done {
							return time.Since(began)
						}
						<-time.After(5 * time.Millisecond)
					}
				}
				ended += await("select not exists (select from jobq.pending where queue = 'default') and not exists (select from jobq.lease)")
				if children > 1 || way == "one of all" {
					freed += await("select not exists (select from jobq.pending where waits)")
				} else {
					freed = ended
				}
				cancel()
				require.NoError(b, <-stopped)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(jobs*float64(b.N)/ended.Seconds(), "ends/s")
			b.ReportMetric((freed-ended).Seconds()/float64(b.N), "s-until-free")
		})
	}
}
