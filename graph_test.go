package jobq_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/jobqtest"
	"github.com/jobq-dev/jobq/keyring"
	"github.com/jobq-dev/jobq/worker"
)

// add adds a job of kind k.
func add(graph *jobq.Graph, name string, after ...string) {
	graph.Add(name, jobq.RawArgs{Name: "k"}, nil, after...)
}

// A graph is added as a whole, whatever the order in which its jobs were named, and each job
// waits for those that it should.
func TestGraph(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	old, err := client.Enqueue(ctx, jobq.RawArgs{Name: "k"}, nil)
	require.NoError(t, err)
	var graph jobq.Graph
	add(&graph, "last", "left", "right")
	graph.Add("left", jobq.RawArgs{Name: "k"}, &jobq.EnqueueOptions{After: []int64{old.ID}, PartitionKey: "a"}, "first")
	add(&graph, "right", "first")
	add(&graph, "first")
	require.Equal(t, 4, graph.Len())
	jobs, err := client.EnqueueGraph(ctx, &graph)
	require.NoError(t, err)
	require.Len(t, jobs, 4)
	left, err := client.Get(ctx, jobs["left"].ID)
	require.NoError(t, err)
	require.Equal(t, "a", left.PartitionKey)
	parents := func(name string) (ids []int64) {
		all, err := client.Parents(ctx, jobs[name].ID, 0, jobq.ParentsMax)
		require.NoError(t, err)
		for _, parent := range all {
			require.Equal(t, jobq.Parent{ID: parent.ID, Kind: "k"}, parent)
			ids = append(ids, parent.ID)
		}
		return ids
	}
	require.Empty(t, parents("first"))
	require.ElementsMatch(t, []int64{old.ID, jobs["first"].ID}, parents("left"))
	require.ElementsMatch(t, []int64{jobs["first"].ID}, parents("right"))
	require.ElementsMatch(t, []int64{jobs["left"].ID, jobs["right"].ID}, parents("last"))
	var paged []int64
	for _, more := range []int{1, 1, 0} {
		page, err := client.Parents(ctx, jobs["last"].ID, slices.Max(append(paged, 0)), 1)
		require.NoError(t, err)
		require.Len(t, page, more)
		for _, parent := range page {
			paged = append(paged, parent.ID)
		}
	}
	require.Equal(t, parents("last"), paged)
	for _, limit := range []int{-1, 0, jobq.ParentsMax + 1} {
		_, err := client.Parents(ctx, jobs["last"].ID, 0, limit)
		require.ErrorIs(t, err, jobq.ErrInvalid)
		require.ErrorContains(t, err, fmt.Sprintf("limit must be 1 to 10000, not %d", limit))
	}
	for name, job := range jobs {
		want := jobq.StateWaiting
		if name == "first" {
			want = jobq.StateAvailable
		}
		require.Equal(t, want, jobtest.State(t, client, job.ID), name)
	}
	empty, err := client.EnqueueGraph(ctx, &jobq.Graph{})
	require.NoError(t, err)
	require.Empty(t, empty)
}

// What cannot be is refused in words, and adds nothing.
func TestGraphIsRefused(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	for want, build := range map[string]func(graph *jobq.Graph){
		`two jobs have the name "a"`:                                func(graph *jobq.Graph) { add(graph, "a"); add(graph, "a") },
		`job "a" waits for "b", and there is no job with that name`: func(graph *jobq.Graph) { add(graph, "a", "b") },
		"the jobs wait for one another: a, which waits for a":       func(graph *jobq.Graph) { add(graph, "a", "a") },
		"the jobs wait for one another: b, which waits for c, which waits for b": func(graph *jobq.Graph) {
			add(graph, "a", "b")
			add(graph, "b", "d", "c")
			add(graph, "c", "b")
			add(graph, "d")
		},
		`job "a": after must be ids of jobs, above 0`: func(graph *jobq.Graph) {
			graph.Add("a", jobq.RawArgs{Name: "k"}, &jobq.EnqueueOptions{After: []int64{-1}})
		},
		"after_failure must be cancel, run or wait, not 'x'": func(graph *jobq.Graph) {
			add(graph, "b")
			graph.Add("a", jobq.RawArgs{Name: "k"}, &jobq.EnqueueOptions{OnParentFailure: "x"}, "b")
		},
	} {
		var graph jobq.Graph
		build(&graph)
		_, err := client.EnqueueGraph(ctx, &graph)
		require.ErrorIs(t, err, jobq.ErrInvalid, want)
		require.ErrorContains(t, err, want)
	}
	var graph jobq.Graph
	add(&graph, "a", "b")
	graph.Add("b", jobq.RawArgs{Name: "k"}, &jobq.EnqueueOptions{After: []int64{4711}})
	_, err := client.EnqueueGraph(ctx, &graph)
	require.ErrorIs(t, err, jobq.ErrNotFound)
	require.ErrorContains(t, err, `job "b": after: no such job: 4711`)
	_, err = client.Enqueue(ctx, jobq.RawArgs{Name: "k"}, &jobq.EnqueueOptions{After: []int64{4711}})
	require.ErrorIs(t, err, jobq.ErrNotFound)
	require.ErrorContains(t, err, "no such job: 4711")
	count, err := client.Count(ctx, jobq.Filter{}, 1)
	require.NoError(t, err)
	require.Zero(t, count)
}

// Ten thousand jobs that wait for one another are added in one statement. It logs how long
// that took.
func TestGraphOfTenThousand(t *testing.T) {
	t.Parallel()
	const size = 10_000
	for name, parentsOf := range map[string]func(i int) []int{
		"a chain": func(i int) []int { return []int{i - 1} },
		"a fan":   func(int) []int { return []int{0} },
		"ten each, mixed": func(i int) []int {
			return []int{i / 2, i / 3, i / 5, i / 7, i / 11, i - 1, i * 3 / 4, i * 4 / 5, i * 5 / 6, i * 6 / 7}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := jobtest.Client(t)
			var graph jobq.Graph
			edges := make(map[string]bool)
			for i := range size {
				var after []string
				if i > 0 {
					for _, parent := range parentsOf(i) {
						after = append(after, fmt.Sprint(parent))
						edges[fmt.Sprint(i, parent)] = true
					}
				}
				add(&graph, fmt.Sprint(i), after...)
			}
			began := time.Now()
			jobs, err := client.EnqueueGraph(context.Background(), &graph)
			took := time.Since(began)
			require.NoError(t, err)
			require.Len(t, jobs, size)
			t.Logf("%d jobs, %d dependencies: %v", size, len(edges), took.Round(time.Millisecond))
			for query, want := range map[string]int{
				"select count(*) from jobq.dependency where parent_state is null": len(edges),
				"select count(*) from jobq.job where state = 'waiting'":           size - 1,
				"select count(*) from jobq.dependency_look":                       0,
			} {
				var count int
				require.NoError(t, client.Pool().QueryRow(context.Background(), query).Scan(&count))
				require.Equal(t, want, count, query)
			}
		})
	}
}

// The args of a graph's jobs are encoded by the client's codec, and results of parents
// decoded.
func TestGraphEncrypted(t *testing.T) {
	t.Parallel()
	ctx, pool := context.Background(), pgtest.Pool(t)
	with := func(key string) *jobq.Client {
		keys, err := keyring.New(keyring.Key{Name: key, Secret: []byte(strings.Repeat(key, 16))})
		require.NoError(t, err)
		client, err := jobq.NewClient(pool, &jobq.Config{Codec: keys})
		require.NoError(t, err)
		return client
	}
	client := with("k1")
	var graph jobq.Graph
	graph.Add("second", jobtest.Greeting{Name: "bob"}, nil, "first")
	graph.Add("first", jobtest.Greeting{Name: "ann"}, nil)
	jobs, err := client.EnqueueGraph(ctx, &graph)
	require.NoError(t, err)
	id := jobs["second"].ID
	jobqtest.RunDue(t, client, func(w *worker.Worker) error {
		return worker.Handle(w, func(_ context.Context, job *worker.Job[jobtest.Greeting]) error { return job.SetResult(job.Args) }, nil)
	}, nil)
	require.Equal(t, 2, count(t, pool, `select count(*) from jobq.job where args ->> '$jobq' = 'enc' and result ->> '$jobq' = 'enc'`))
	parents, err := client.Parents(ctx, id, 0, 10)
	require.NoError(t, err)
	require.JSONEq(t, `{"name": "ann"}`, string(parents[0].Result))

	stored, err := with("k2").Parents(ctx, id, 0, 10)
	require.ErrorIs(t, err, jobq.ErrUnreadable)
	require.ErrorContains(t, err, fmt.Sprintf("parents of job %d: job %d: ", id, jobs["first"].ID))
	require.Len(t, stored, 1)
	_, encrypted := jobq.EncryptedWith(stored[0].Result)
	require.True(t, encrypted)
}
