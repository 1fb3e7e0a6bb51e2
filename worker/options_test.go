package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/worker"
)

// newWorker returns a worker that does not run yet.
func newWorker(t *testing.T, client *jobq.Client, config worker.Config) *worker.Worker {
	t.Helper()
	config.Logger, config.NoJanitor = slog.New(slog.DiscardHandler), true
	w, err := worker.New(client, &config)
	require.NoError(t, err)
	return w
}

func enqueueRaw(t *testing.T, client *jobq.Client, kind, args string, options *jobq.EnqueueOptions) int64 {
	t.Helper()
	enqueued, err := client.Enqueue(context.Background(), jobq.RawArgs{Name: kind, JSON: json.RawMessage(args)}, options)
	require.NoError(t, err)
	return enqueued.ID
}

// A kind with slots of its own never has more runs than these, and the others
// do not wait behind it.
func TestKindSlots(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	for range 20 {
		enqueueRaw(t, client, "limited", "{}", nil)
	}
	other := enqueueRaw(t, client, "other", "{}", nil)
	w := newWorker(t, client, worker.Config{Queues: map[string]worker.QueueConfig{"default": {Slots: 4}}})
	var running, most atomic.Int32
	gate := make(chan struct{})
	require.NoError(t, worker.HandleRaw(w, "limited", func(context.Context, *worker.Job[jobq.RawArgs]) error {
		if now := running.Add(1); now > most.Load() {
			most.Store(now)
		}
		<-gate
		running.Add(-1)
		return nil
	}, &worker.HandleOptions{Slots: 2}))
	require.NoError(t, worker.HandleRaw(w, "other", func(context.Context, *worker.Job[jobq.RawArgs]) error { return nil }, nil))
	run(t, w)
	awaitState(t, client, other, jobq.StateCompleted)
	require.Eventually(t, func() bool { return running.Load() == 2 }, patience, time.Millisecond)
	close(gate)
	require.Eventually(t, func() bool { return w.Counts().Completed == 21 }, patience, time.Millisecond)
	require.LessOrEqual(t, most.Load(), int32(2))
}

// A worker tells of its kinds' own slots: a job that waits for one is told so, and one of another kind is not.
func TestKindSlotsFull(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	w := newWorker(t, client, worker.Config{Queues: map[string]worker.QueueConfig{"default": {Slots: 1}}})
	begun, gate := make(chan struct{}, 3), make(chan struct{})
	hold := func(context.Context, *worker.Job[jobq.RawArgs]) error {
		begun <- struct{}{}
		<-gate
		return nil
	}
	require.NoError(t, worker.HandleRaw(w, "apart", hold, &worker.HandleOptions{Slots: 2}))
	require.NoError(t, worker.HandleRaw(w, "other", hold, nil))
	run(t, w)
	t.Cleanup(func() { close(gate) })
	why := func(id int64) monitor.Reason {
		reasons, err := monitor.New(client).Why(ctx, id)
		require.NoError(t, err)
		require.Len(t, reasons, 1)
		return reasons[0]
	}
	first := enqueueRaw(t, client, "apart", "{}", nil)
	receive(t, begun, "the first start")
	enqueueRaw(t, client, "apart", "{}", nil)
	receive(t, begun, "the second start")
	reason := why(enqueueRaw(t, client, "apart", "{}", nil))
	require.Equal(t, monitor.ReasonKindFull, reason.Code)
	require.Equal(t, []int64{1, 2, 2, first}, []int64{reason.Facts.Workers, reason.Facts.Slots, reason.Facts.Held, reason.Facts.Oldest})

	other := enqueueRaw(t, client, "other", "{}", nil)
	receive(t, begun, "the start of the other kind")
	reason = why(enqueueRaw(t, client, "other", "{}", nil))
	require.Equal(t, monitor.ReasonWorkersFull, reason.Code)
	require.Equal(t, []int64{1, 1, 1, other}, []int64{reason.Facts.Workers, reason.Facts.Slots, reason.Facts.Held, reason.Facts.Oldest})

	workers, err := monitor.New(client).Workers(ctx)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"apart": 2}, workers[0].KindSlots)
}

// Whatever a handler tells shows that it has not stalled: a checkpoint and a result
// as well as progress.
func TestEverySignOfLife(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	type sign struct {
		name string
		tell func(ctx context.Context, job *worker.Job[task]) error
	}
	signs := []sign{
		{"progress", func(_ context.Context, job *worker.Job[task]) error { job.Progress(1, "", ""); return nil }},
		{"heartbeat", func(_ context.Context, job *worker.Job[task]) error { job.Heartbeat(); return nil }},
		{"checkpoint", func(ctx context.Context, job *worker.Job[task]) error { return job.SaveCheckpoint(ctx, 1) }},
		{"result", func(_ context.Context, job *worker.Job[task]) error { return job.SetResult(1) }},
	}
	unseen := make(chan []string, 1)
	start(t, client, nil, func(ctx context.Context, job *worker.Job[task]) error {
		var silent []string
		for _, each := range signs {
			before := worker.Activity(job.Run)
			if err := each.tell(ctx, job); err != nil {
				return err
			}
			if worker.Activity(job.Run) == before {
				silent = append(silent, each.name)
			}
		}
		unseen <- silent
		return nil
	})
	awaitState(t, client, enqueue(t, client, 1, nil), jobq.StateCompleted)
	require.Empty(t, receive(t, unseen, "the signs"))
}

// A worker ends by itself when nothing is left, after its time, after too many
// failures, or when it is told to finish, and what runs then ends first.
func TestBatch(t *testing.T) {
	t.Parallel()
	failed := errors.New("on purpose")
	for name, test := range map[string]struct {
		batch   worker.Batch
		returns error // of the handler
		want    error // of Run
	}{
		"empty":    {worker.Batch{ExitWhenEmpty: true}, nil, nil},
		"time":     {worker.Batch{TimeLimit: 500 * time.Millisecond}, nil, nil},
		"failures": {worker.Batch{MaxConsecutiveFailures: 3}, failed, worker.ErrTooManyFailures},
		"finish":   {worker.Batch{}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := newClient(t)
			for range 5 {
				enqueueRaw(t, client, "k", "{}", &jobq.EnqueueOptions{BackoffBase: time.Hour})
			}
			w := newWorker(t, client, worker.Config{Batch: test.batch, DrainTimeout: -1, Queues: map[string]worker.QueueConfig{"default": {Slots: 1}}})
			begun, proceed := make(chan struct{}, 5), make(chan struct{})
			require.NoError(t, worker.HandleRaw(w, "k", func(context.Context, *worker.Job[jobq.RawArgs]) error {
				begun <- struct{}{}
				<-proceed
				return test.returns
			}, nil))
			ended := make(chan error, 1)
			go func() { ended <- w.Run(context.Background()) }()
			if name == "finish" {
				receive(t, begun, "the start")
				w.Drain()
				require.Eventually(t, func() bool { return worker.Draining(w) }, patience, time.Millisecond)
			}
			close(proceed)
			require.ErrorIs(t, receive(t, ended, "the end"), test.want)
			switch name {
			case "empty":
				require.Equal(t, int64(5), w.Counts().Completed)
			case "finish":
				require.Equal(t, int64(1), w.Counts().Completed, "what runs has the time it takes")
			case "failures":
				require.GreaterOrEqual(t, w.Counts().Failed, int64(3))
			}
		})
	}
}

// A kind is given its handler once, with options that can work, and before Run.
func TestRefusedHandlers(t *testing.T) {
	t.Parallel()
	w := newWorker(t, newClient(t), worker.Config{})
	none := func(context.Context, *worker.Job[jobq.RawArgs]) error { return nil }
	for want, options := range map[string]*worker.HandleOptions{
		`kind "k": slots must be 0 to 10000, not -1`:        {Slots: -1},
		`kind "k": slots must be 0 to 10000, not 10001`:     {Slots: 10_001},
		`kind "k": stall timeout must not be negative: -1s`: {StallTimeout: -time.Second},
	} {
		require.ErrorContains(t, worker.HandleRaw(w, "k", none, options), want)
	}
	require.ErrorContains(t, worker.HandleRaw(w, strings.Repeat("é", 129), none, nil), "at most 128 characters")
	require.NoError(t, worker.HandleRaw(w, "k", none, &worker.HandleOptions{Slots: 1}), "what was refused is not kept")
	require.ErrorContains(t, worker.HandleRaw(w, "k", none, &worker.HandleOptions{Slots: 2}), `kind "k": it has one already`)
	r := run(t, w)
	require.NoError(t, r.drain())
	require.ErrorContains(t, worker.HandleRaw(w, "late", none, nil), "Run was called already")
}

// The worker's timeout ends runs of kinds without one of their own; that of a kind, also "none", and that of a job
// come before it. Method: the runs that are not to end begin before the one that times out.
func TestTimeoutOfTheWorker(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	_, err := worker.New(client, &worker.Config{Timeout: -time.Second})
	require.ErrorContains(t, err, "timeout must not be negative: -1s")
	w := newWorker(t, client, worker.Config{Timeout: 20 * time.Millisecond})
	begun, gate := make(chan struct{}, 3), make(chan struct{})
	stays := func(ctx context.Context, _ *worker.Job[jobq.RawArgs]) error {
		begun <- struct{}{}
		<-gate
		return context.Cause(ctx)
	}
	ends := func(ctx context.Context, _ *worker.Job[jobq.RawArgs]) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	require.NoError(t, worker.HandleRaw(w, "none", stays, &worker.HandleOptions{Timeout: -1}))
	require.NoError(t, worker.HandleRaw(w, "long", stays, &worker.HandleOptions{Timeout: time.Hour}))
	require.NoError(t, worker.HandleRaw(w, "job", stays, nil))
	require.NoError(t, worker.HandleRaw(w, "ends", ends, &worker.HandleOptions{StallTimeout: time.Hour}))
	stay := []int64{
		enqueueRaw(t, client, "none", "{}", nil), enqueueRaw(t, client, "long", "{}", nil),
		enqueueRaw(t, client, "job", "{}", &jobq.EnqueueOptions{Timeout: time.Hour}),
	}
	run(t, w)
	for range stay {
		receive(t, begun, "the start")
	}
	id := enqueueRaw(t, client, "ends", "{}", &jobq.EnqueueOptions{MaxAttempts: 1})
	require.Contains(t, awaitState(t, client, id, jobq.StateFailed).LastError, "timed out")
	require.Equal(t, jobq.OutcomeTimedOut, attempts(t, client, id)[0].Outcome)
	close(gate)
	for _, id := range stay {
		awaitState(t, client, id, jobq.StateCompleted)
	}
}

// A kind's own backoff says when the next attempt runs, however the one before has
// failed: it returned an error, panicked, or timed out. What Retry says wins, and a
// backoff that panics leaves the job's own. Method: the kind's backoff is far longer
// than the job's, and so tells which of the two was used.
func TestBackoffOfAKind(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	errBroken := errors.New("broken")
	const own, ofKind, ofRetry = 24 * time.Hour, 1000 * time.Hour, 500 * time.Hour
	type call struct {
		attempt int
		err     string
	}
	calls := make(chan call, 10)
	options := &worker.HandleOptions{Timeout: 20 * time.Millisecond, Backoff: func(attempt int, err error) time.Duration {
		calls <- call{attempt, strings.SplitN(err.Error(), "\n", 2)[0]}
		return ofKind
	}}
	broken := &worker.HandleOptions{Backoff: func(int, error) time.Duration { panic("no idea") }}
	w := newWorker(t, client, worker.Config{})
	cases := map[string]struct {
		options *worker.HandleOptions
		handler func(ctx context.Context) error
		least   time.Duration
		most    time.Duration
		told    string
	}{
		"error":          {options, func(context.Context) error { return errBroken }, ofKind - own, ofKind, "broken"},
		"panic":          {options, func(context.Context) error { panic("aaah") }, ofKind - own, ofKind, "panic: aaah"},
		"timeout":        {options, func(ctx context.Context) error { <-ctx.Done(); return errBroken }, ofKind - own, ofKind, "timed out: broken"},
		"retry":          {options, func(context.Context) error { return worker.Retry(ofRetry, errBroken) }, ofRetry - own, ofRetry, ""},
		"snooze":         {options, func(context.Context) error { return worker.Snooze(ofRetry) }, ofRetry - own, ofRetry, ""},
		"backoff panics": {broken, func(context.Context) error { return errBroken }, 0, own, ""},
	}
	ids, told := make(map[string]int64), []call{}
	for kind, each := range cases {
		require.NoError(t, worker.HandleRaw(w, kind, func(ctx context.Context, _ *worker.Job[jobq.RawArgs]) error { return each.handler(ctx) }, each.options))
		ids[kind] = enqueueRaw(t, client, kind, "{}", &jobq.EnqueueOptions{BackoffBase: own, BackoffMax: own})
		if each.told != "" {
			told = append(told, call{1, each.told})
		}
	}
	run(t, w)
	for kind, each := range cases {
		job := awaitState(t, client, ids[kind], jobq.StateScheduled)
		wait := time.Until(job.RunAt)
		require.Greater(t, wait, each.least-time.Second, kind)
		require.LessOrEqual(t, wait, each.most, kind)
	}
	var got []call
	for range told {
		got = append(got, receive(t, calls, "a call of the backoff"))
	}
	require.ElementsMatch(t, told, got)
	require.Empty(t, calls, "the backoff is asked for failed attempts only")
}

// DrainNow waits for no handler: its context ends with ErrDrained, and the job goes
// back without losing an attempt. Also when a drain already waits.
func TestDrainNow(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]func(w *worker.Worker){
		"at once":        func(*worker.Worker) {},
		"during a drain": func(w *worker.Worker) { w.Drain() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := newClient(t)
			w := newWorker(t, client, worker.Config{DrainTimeout: time.Hour})
			begun, causes := make(chan struct{}, 1), make(chan error, 1)
			require.NoError(t, worker.Handle(w, func(ctx context.Context, _ *worker.Job[task]) error {
				begun <- struct{}{}
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return context.Cause(ctx)
			}, nil))
			id := enqueue(t, client, 1, nil)
			ended := make(chan error, 1)
			go func() { ended <- w.Run(context.Background()) }()
			receive(t, begun, "the start")
			first(w)
			w.DrainNow()
			require.NoError(t, receive(t, ended, "the end"))
			require.ErrorIs(t, receive(t, causes, "the cause"), worker.ErrDrained)
			require.Zero(t, awaitState(t, client, id, jobq.StateAvailable).Attempts)
		})
	}
}

// A handler that ends its goroutine fails its attempt, and the slot goes on to the
// next job.
func TestGoexit(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	start(t, client, &worker.Config{Queues: map[string]worker.QueueConfig{"default": {Slots: 1}}}, func(_ context.Context, job *worker.Job[task]) error {
		if job.Args.N == 0 {
			runtime.Goexit()
		}
		return nil
	})
	exits := enqueue(t, client, 0, &jobq.EnqueueOptions{MaxAttempts: 2, BackoffBase: jobtest.AtOnce, BackoffMax: jobtest.AtOnce})
	job := awaitState(t, client, exits, jobq.StateFailed)
	require.Contains(t, job.LastError, "runtime.Goexit")
	require.Len(t, attempts(t, client, exits), 2)
	awaitState(t, client, enqueue(t, client, 1, nil), jobq.StateCompleted)
}

// exitingError ends the goroutine that asks for its text.
type exitingError struct{}

func (exitingError) Error() string {
	runtime.Goexit()
	return ""
}

// An error or a Backoff that ends the goroutine fails the attempt, and the slot goes on
// to the next job.
func TestGoexitAtTheEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err     error
		backoff func(int, error) time.Duration
	}{
		"of an error": {exitingError{}, nil},
		"of a backoff": {errors.New("broken"), func(int, error) time.Duration {
			runtime.Goexit()
			return 0
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := newClient(t)
			w := newWorker(t, client, worker.Config{Queues: map[string]worker.QueueConfig{"default": {Slots: 1}}})
			require.NoError(t, worker.Handle(w, func(_ context.Context, job *worker.Job[task]) error {
				if job.Args.N == 0 {
					return c.err
				}
				return nil
			}, &worker.HandleOptions{Backoff: c.backoff}))
			run(t, w)
			exits := enqueue(t, client, 0, &jobq.EnqueueOptions{MaxAttempts: 2, BackoffBase: jobtest.AtOnce, BackoffMax: jobtest.AtOnce})
			require.Contains(t, awaitState(t, client, exits, jobq.StateFailed).LastError, "runtime.Goexit")
			require.Len(t, attempts(t, client, exits), 2)
			awaitState(t, client, enqueue(t, client, 1, nil), jobq.StateCompleted)
		})
	}
}
