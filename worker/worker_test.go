package worker_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/janitor"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/worker"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(limitChild); url != "" {
		if err := runLimitChild(url); err != nil {
			fmt.Fprintln(os.Stderr, "limit child:", err)
			os.Exit(1)
		}
		return
	}
	if plan := os.Getenv(stepsChild); plan != "" {
		if err := runStepsChild(plan); err != nil {
			fmt.Fprintln(os.Stderr, "steps child:", err)
			os.Exit(1)
		}
		return
	}
	if url := os.Getenv(poisonChild); url != "" {
		if err := runPoisonChild(url); err != nil {
			fmt.Fprintln(os.Stderr, "poison child:", err)
			os.Exit(1)
		}
		return
	}
	pgtest.Main(m)
}

// patience ends a test that hangs: no promise is about it.
const patience = 2 * time.Minute

// task is the kind of job that tests run; the handler decides what it means.
type task struct {
	N int `json:"n"`
}

func (task) Kind() string { return "task" }

func newClient(t *testing.T) *jobq.Client {
	t.Helper()
	client, err := jobq.NewClient(pgtest.Pool(t), nil)
	require.NoError(t, err)
	return client
}

// running is a worker that runs in the background of a test.
type running struct {
	*worker.Worker
	drain func() error // ends it and returns what Run returned; at most once
}

// start runs a worker with a handler for tasks until the test ends.
func start(t *testing.T, client *jobq.Client, config *worker.Config, handler worker.Handler[task]) *running {
	t.Helper()
	if config == nil {
		config = &worker.Config{}
	}
	config.Logger, config.NoJanitor = slog.New(slog.DiscardHandler), true // tests say when a janitor works
	w, err := worker.New(client, config)
	require.NoError(t, err)
	if handler != nil {
		require.NoError(t, worker.Handle(w, handler, nil))
	}
	return run(t, w)
}

func run(t *testing.T, w *worker.Worker) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	r := &running{Worker: w, drain: sync.OnceValue(func() error {
		cancel()
		return <-ended
	})}
	t.Cleanup(func() { _ = r.drain() })
	return r
}

func enqueue(t *testing.T, client *jobq.Client, n int, options *jobq.EnqueueOptions) int64 {
	t.Helper()
	enqueued, err := client.Enqueue(context.Background(), task{n}, options)
	require.NoError(t, err)
	return enqueued.ID
}

// awaitState waits until the job is in the state, and returns it.
func awaitState(t *testing.T, client *jobq.Client, id int64, state jobq.State) *jobq.Job {
	t.Helper()
	var job *jobq.Job
	require.Eventually(t, func() bool {
		var err error
		job, err = client.Get(context.Background(), id)
		return err == nil && job.State == state
	}, patience, 2*time.Millisecond, "job %d does not become %s", id, state)
	return job
}

func receive[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(patience):
		require.FailNow(t, "nothing came", what)
		panic("unreachable")
	}
}

func attempts(t *testing.T, client *jobq.Client, id int64) []monitor.Attempt {
	t.Helper()
	attempts, err := monitor.New(client).Attempts(context.Background(), id)
	require.NoError(t, err)
	return attempts
}

// Jobs that are there, and jobs that come while the worker is idle, run with
// their args, and complete. The poll is far too slow to be the reason.
func TestRunsJobs(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	first := enqueue(t, client, 1, nil)
	seen := make(chan int, 10)
	start(t, client, &worker.Config{PollInterval: time.Hour}, func(_ context.Context, job *worker.Job[task]) error {
		seen <- job.Args.N
		return job.SetResult(map[string]int{"n": job.Args.N})
	})
	require.Equal(t, 1, receive(t, seen, "the job that was there"))
	second := enqueue(t, client, 2, nil)
	require.Equal(t, 2, receive(t, seen, "the job that came"))
	require.Equal(t, 1, len(awaitState(t, client, first, jobq.StateCompleted).LeaseOwner[:1]))
	job := awaitState(t, client, second, jobq.StateCompleted)
	require.JSONEq(t, `{"n":2}`, string(job.Result))
	require.Zero(t, job.Attempts)
	require.Empty(t, attempts(t, client, second))
}

// Without LISTEN, polling finds jobs.
func TestPollOnly(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	start(t, client, &worker.Config{PollOnly: true, PollInterval: 10 * time.Millisecond}, func(context.Context, *worker.Job[task]) error { return nil })
	awaitState(t, client, enqueue(t, client, 1, nil), jobq.StateCompleted)
}

// A queue runs as many jobs at once as it has slots and never more, several queues do
// not share them, and a queue that the worker was not given is left alone. Method: no
// job ends before all slots of both queues are in use.
func TestSlots(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	slots := []int64{2, 5}
	var now, most [2]atomic.Int64
	names := []string{"narrow", "wide"}
	var ids []int64
	for i := range 60 {
		ids = append(ids, enqueue(t, client, i, &jobq.EnqueueOptions{Queue: names[i%2]}))
	}
	elsewhere := enqueue(t, client, 0, &jobq.EnqueueOptions{Queue: "elsewhere"})
	full := make(chan struct{})
	fill := sync.OnceFunc(func() { close(full) })
	config := &worker.Config{Queues: map[string]worker.QueueConfig{"narrow": {Slots: 2}, "wide": {Slots: 5}}}
	start(t, client, config, func(ctx context.Context, job *worker.Job[task]) error {
		i := slices.Index(names, job.Queue())
		count := now[i].Add(1)
		defer now[i].Add(-1)
		for {
			seen := most[i].Load()
			if count <= seen || most[i].CompareAndSwap(seen, count) {
				break
			}
		}
		if most[0].Load() >= slots[0] && most[1].Load() >= slots[1] {
			fill()
		}
		select {
		case <-full:
		case <-ctx.Done():
		}
		return nil
	})
	for _, id := range ids {
		awaitState(t, client, id, jobq.StateCompleted)
	}
	require.Equal(t, slots, []int64{most[0].Load(), most[1].Load()})
	job, err := client.Get(context.Background(), elsewhere)
	require.NoError(t, err)
	require.Equal(t, jobq.StateAvailable, job.State)
}

// Jobs of kinds without a handler, and of paused queues, are not claimed.
func TestNotClaimed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	unknown, err := client.Enqueue(ctx, jobq.RawArgs{Name: "unknown"}, nil)
	require.NoError(t, err)
	_, err = operator.New(client, "test").PauseQueue(ctx, "paused", "")
	require.NoError(t, err)
	paused := enqueue(t, client, 1, &jobq.EnqueueOptions{Queue: "paused"})
	start(t, client, &worker.Config{Queues: map[string]worker.QueueConfig{"default": {Slots: 1}, "paused": {Slots: 1}}, PollInterval: 5 * time.Millisecond},
		func(context.Context, *worker.Job[task]) error { return nil })
	awaitState(t, client, enqueue(t, client, 2, nil), jobq.StateCompleted)
	for _, id := range []int64{unknown.ID, paused} {
		job, err := client.Get(ctx, id)
		require.NoError(t, err)
		require.Equal(t, jobq.StateAvailable, job.State)
		require.Zero(t, job.LeaseToken, "it was claimed")
	}
	_, err = operator.New(client, "test").ResumeQueue(ctx, "paused")
	require.NoError(t, err)
	awaitState(t, client, paused, jobq.StateCompleted)
}

// Lower priorities run first, and within one, the older job.
func TestOrder(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	for i, priority := range []int16{5, 0, -5, 0, 5, -5} {
		enqueue(t, client, i, &jobq.EnqueueOptions{Priority: priority})
	}
	order := make(chan int, 6)
	start(t, client, &worker.Config{Queues: map[string]worker.QueueConfig{"default": {Slots: 1}}}, func(_ context.Context, job *worker.Job[task]) error {
		order <- job.Args.N
		return nil
	})
	var got []int
	for range 6 {
		got = append(got, receive(t, order, "the next job"))
	}
	require.Equal(t, []int{2, 5, 1, 3, 0, 4}, got)
}

// Cancelling a running job ends it as cancelled, soon, whatever its lease is.
func TestCancelRunning(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	begun := make(chan struct{}, 1)
	start(t, client, &worker.Config{Lease: time.Hour}, func(ctx context.Context, _ *worker.Job[task]) error {
		begun <- struct{}{}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	id := enqueue(t, client, 1, nil)
	receive(t, begun, "the start")
	state, err := client.Cancel(context.Background(), id)
	require.NoError(t, err)
	require.Equal(t, jobq.StateRunning, state)
	job := awaitState(t, client, id, jobq.StateCancelled)
	require.Zero(t, job.Attempts)
	require.Equal(t, jobq.OutcomeCancelled, attempts(t, client, id)[0].Outcome)
}

// A job that is cancelled after it was claimed, while no slot is free for it,
// ends as cancelled, and its handler is not called. The gate holds up a worker
// that has claimed ahead, since its jobs end quickly.
func TestCancelBeforeTheStart(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	jobs := make([]jobq.EnqueueParams, 5000)
	for i := range jobs {
		jobs[i].Args = task{i}
	}
	_, err := client.EnqueueMany(ctx, jobs)
	require.NoError(t, err)
	gate := make(chan struct{}, 1) // whoever holds it lets handlers wait
	var begun sync.Map
	w := start(t, client, &worker.Config{Queues: map[string]worker.QueueConfig{"default": {Slots: 1}}, Lease: time.Hour}, func(ctx context.Context, job *worker.Job[task]) error {
		begun.Store(job.ID(), true)
		select {
		case gate <- struct{}{}:
			<-gate
		case <-ctx.Done():
		}
		return nil
	})
	var id int64 // one of several that wait for the slot, and not the next
	require.Eventually(t, func() bool {
		gate <- struct{}{}
		var waiting []int64
		rows, err := client.Pool().Query(ctx, "select id from jobq.job where state = 'running' order by id desc")
		if err == nil {
			waiting, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		}
		waiting = slices.DeleteFunc(waiting, func(id int64) bool { _, ok := begun.Load(id); return ok })
		if err != nil || len(waiting) < 2 {
			<-gate
			return false
		}
		id = waiting[0]
		return true
	}, patience, 5*time.Millisecond)
	_, err = client.Cancel(ctx, id)
	require.NoError(t, err)
	require.Eventually(t, func() bool { // a slow machine may give the job back before, since it waits
		job, err := client.Get(ctx, id)
		return worker.KnowsCancelled(w.Worker, id) || (err == nil && job.State == jobq.StateCancelled)
	}, patience, time.Millisecond)
	<-gate
	require.Zero(t, awaitState(t, client, id, jobq.StateCancelled).Attempts)
	_, called := begun.Load(id)
	require.False(t, called)
}

// Middleware wraps each run, the first one outermost.
func TestMiddleware(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	order := make(chan string, 10)
	wrap := func(name string) worker.Middleware {
		return func(ctx context.Context, run *worker.Run, next func(context.Context) error) error {
			order <- name + " " + run.Kind()
			defer func() { order <- name + " ends" }()
			return next(ctx)
		}
	}
	start(t, client, &worker.Config{Middleware: []worker.Middleware{wrap("outer"), wrap("inner")}},
		func(context.Context, *worker.Job[task]) error { order <- "handler"; return nil })
	enqueue(t, client, 1, nil)
	for _, want := range []string{"outer task", "inner task", "handler", "inner ends", "outer ends"} {
		require.Equal(t, want, receive(t, order, want))
	}
}

// What cannot work is refused before anything runs.
func TestRefusedConfigs(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	for want, config := range map[string]*worker.Config{
		"slots":         {Queues: map[string]worker.QueueConfig{"default": {Slots: -1}}},
		"1 to 10000":    {Queues: map[string]worker.QueueConfig{"default": {Slots: 10_001}}},
		"time limit":    {Batch: worker.Batch{TimeLimit: -1}},
		"of failures":   {Batch: worker.Batch{MaxConsecutiveFailures: -1}},
		"queue name":    {Queues: map[string]worker.QueueConfig{"": {Slots: 1}}},
		"poll interval": {PollInterval: time.Nanosecond},
		"exclude":       {NoJanitor: true, Janitor: &janitor.Config{}},
		"leader renew":  {Janitor: &janitor.Config{LeaderRenew: time.Hour}},
	} {
		_, err := worker.New(client, config)
		require.ErrorContains(t, err, want)
	}
	w, err := worker.New(client, nil)
	require.NoError(t, err)
	require.ErrorContains(t, w.Run(context.Background()), "no handlers")
	w, err = worker.New(client, nil)
	require.NoError(t, err)
	handler := func(context.Context, *worker.Job[task]) error { return nil }
	require.NoError(t, worker.Handle(w, handler, nil))
	require.ErrorContains(t, worker.Handle(w, handler, nil), "has one already")

	empty, err := jobq.NewClient(pgtest.Connect(t, pgtest.EmptyURL(t)), nil)
	require.NoError(t, err)
	w, err = worker.New(empty, &worker.Config{NoJanitor: true, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, worker.Handle(w, handler, nil))
	require.ErrorIs(t, w.Run(context.Background()), jobq.ErrNotMigrated)
}
