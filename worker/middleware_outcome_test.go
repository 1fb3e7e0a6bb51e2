package worker_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/worker"
)

// What OutcomeOf tells a middleware is the outcome that the attempt is stored with.
func TestOutcomeOf(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	errBroken := errors.New("broken")
	wait := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	ends := []struct {
		options *jobq.EnqueueOptions
		end     func(ctx context.Context) error
		want    jobq.Outcome
	}{
		{nil, func(context.Context) error { return nil }, jobq.OutcomeCompleted},
		{nil, func(context.Context) error { return errBroken }, jobq.OutcomeFailed},
		{nil, func(context.Context) error { return worker.Discard(errBroken) }, jobq.OutcomeFailed},
		{nil, func(context.Context) error { return worker.Retry(time.Hour, errBroken) }, jobq.OutcomeFailed},
		{nil, func(context.Context) error { return worker.Snooze(time.Hour) }, jobq.OutcomeSnoozed},
		{nil, func(context.Context) error { return worker.Cancel(errors.New("enough")) }, jobq.OutcomeCancelled},
		{nil, func(context.Context) error { return worker.Release(errBroken) }, jobq.OutcomeReleased},
		{nil, func(context.Context) error { return touchy{} }, jobq.OutcomeFailed},
		{nil, func(context.Context) error { return mute{"no words"} }, jobq.OutcomeFailed},
		{&jobq.EnqueueOptions{Timeout: 20 * time.Millisecond, BackoffBase: time.Hour}, wait, jobq.OutcomeTimedOut},
	}
	var told sync.Map // of the job's id, its first run's outcome
	middleware := func(ctx context.Context, run *worker.Run, next func(context.Context) error) error {
		err := next(ctx)
		told.LoadOrStore(run.ID(), worker.OutcomeOf(ctx, err))
		return err
	}
	ids := make([]int64, len(ends))
	for n, end := range ends {
		options := end.options
		if options == nil {
			options = &jobq.EnqueueOptions{BackoffBase: time.Hour}
		}
		ids[n] = enqueue(t, client, n, options)
	}
	w := start(t, client, &worker.Config{Middleware: []worker.Middleware{middleware}}, func(ctx context.Context, job *worker.Job[task]) error {
		if _, again := told.Load(job.ID()); again {
			return nil
		}
		return ends[job.Args.N].end(ctx)
	})
	for n, end := range ends {
		if end.want == jobq.OutcomeCompleted { // which has no attempt of its own
			awaitState(t, client, ids[n], jobq.StateCompleted)
		} else {
			require.Eventually(t, func() bool { return len(attempts(t, client, ids[n])) > 0 }, patience, 2*time.Millisecond, n)
			runs := attempts(t, client, ids[n])
			require.Len(t, runs, 1, n)
			require.Equal(t, end.want, runs[0].Outcome, n)
		}
		outcome, _ := told.Load(ids[n])
		require.Equal(t, end.want, outcome, n)
	}
	require.NoError(t, w.drain())
}

// A run whose lease is lost has that outcome, whatever its handler returns: nothing of it
// is stored.
func TestOutcomeOfLost(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	keepLeases(t, client, jobq.HeartbeatTicker)
	begun, told := make(chan struct{}, 1), make(chan jobq.Outcome, 1)
	middleware := func(ctx context.Context, _ *worker.Run, next func(context.Context) error) error {
		err := next(ctx)
		told <- worker.OutcomeOf(ctx, err)
		return err
	}
	start(t, client, &worker.Config{Middleware: []worker.Middleware{middleware}}, func(ctx context.Context, _ *worker.Job[task]) error {
		begun <- struct{}{}
		<-ctx.Done()
		return nil
	})
	id := enqueue(t, client, 1, nil)
	receive(t, begun, "the start")
	require.NoError(t, pgtest.DeleteRunning(context.Background(), client.Pool(), "id = $1", id))
	require.Equal(t, jobq.OutcomeLost, receive(t, told, "the end"))
}

// A middleware finds out that the handler has panicked, or ended its goroutine, with a
// deferred function: next does not return.
func TestMiddlewareSeesPanics(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(){"panic": func() { panic("aaah") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := newClient(t)
			returned, deferred := false, make(chan struct{}, 1)
			middleware := func(ctx context.Context, _ *worker.Run, next func(context.Context) error) error {
				defer func() { deferred <- struct{}{} }()
				err := next(ctx)
				returned = true
				return err
			}
			job := runOne(t, client, func(context.Context, *worker.Job[task]) error {
				end()
				return nil
			}, middleware)
			receive(t, deferred, "the deferred function")
			require.False(t, returned)
			require.Equal(t, jobq.StateScheduled, job.State)
			require.Equal(t, jobq.OutcomeFailed, attempts(t, client, job.ID)[0].Outcome)
		})
	}
}
