package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/worker"
)

// newWorker returns a worker that does not run yet.
func newWorker(t *testing.T, client *jobq.Client, config worker.Config) *worker.Worker {
	t.Helper()
	config.Logger = slog.New(slog.DiscardHandler)
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
