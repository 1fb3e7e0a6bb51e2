package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/worker"
)

// startReporting runs a worker with one slot until the test ends, and with a function for failures, whose calls have
// the timeout.
func startReporting(
	t *testing.T, client *jobq.Client, log *logBuffer, timeout time.Duration, onFailure func(context.Context, worker.Failure), handler worker.Handler[task],
) *running {
	t.Helper()
	w, err := worker.New(client, &worker.Config{
		NoJanitor: true, Logger: slog.New(slog.NewTextHandler(log, nil)), OnFailure: onFailure,
		Queues: map[string]worker.QueueConfig{"default": {Slots: 1}},
	})
	require.NoError(t, err)
	worker.LimitFailures(w, timeout, 100)
	require.NoError(t, worker.Handle(w, handler, nil))
	return run(t, w)
}

// OnFailure is told once of each run that has failed or timed out, with what its handler has returned, and of no
// other. Method: jobs that do not fail are run first, in one slot.
func TestOnFailure(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	errBroken := errors.New("broken")
	type want struct {
		outcome jobq.Outcome
		is      error
		text    string
		panic   any
		final   bool
	}
	released := false // a job that is released comes back at once
	calls := []struct {
		handler func(ctx context.Context) error
		options jobq.EnqueueOptions
		want    *want // nil: nobody is told
	}{
		{handler: func(context.Context) error { return nil }},
		{handler: func(context.Context) error { return worker.Snooze(time.Hour) }},
		{handler: func(context.Context) error { return worker.Cancel(errors.New("not needed")) }},
		{handler: func(context.Context) error {
			if released {
				return nil
			}
			released = true
			return worker.Release(errBroken)
		}},
		{handler: func(context.Context) error { return fmt.Errorf("as asked: %w", errBroken) }, want: &want{outcome: jobq.OutcomeFailed, is: errBroken}},
		{handler: func(context.Context) error { return worker.Retry(time.Hour, errBroken) }, want: &want{outcome: jobq.OutcomeFailed, is: errBroken}},
		{handler: func(context.Context) error { return worker.Discard(errBroken) }, want: &want{outcome: jobq.OutcomeFailed, is: errBroken, final: true}},
		{
			handler: func(context.Context) error { return errBroken }, options: jobq.EnqueueOptions{MaxAttempts: 1},
			want: &want{outcome: jobq.OutcomeFailed, is: errBroken, final: true},
		},
		{handler: func(context.Context) error { panic(7) }, want: &want{outcome: jobq.OutcomeFailed, text: "panic: 7", panic: 7}},
		{handler: func(context.Context) error { runtime.Goexit(); return nil }, want: &want{outcome: jobq.OutcomeFailed, text: "runtime.Goexit"}},
		{handler: func(context.Context) error { return touchy{} }, want: &want{outcome: jobq.OutcomeFailed, text: "touchy"}},
		{
			handler: func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) },
			options: jobq.EnqueueOptions{Timeout: time.Millisecond},
			want:    &want{outcome: jobq.OutcomeTimedOut, is: worker.ErrTimedOut},
		},
	}
	ids := make([]int64, len(calls))
	for i, call := range calls {
		call.options.BackoffBase, call.options.BackoffMax = 8_000*time.Hour, 8_000*time.Hour
		ids[i] = enqueue(t, client, i, &call.options)
	}
	told := make(chan worker.Failure, 100)
	w := startReporting(t, client, new(logBuffer), patience, func(_ context.Context, failure worker.Failure) { told <- failure },
		func(ctx context.Context, job *worker.Job[task]) error { return calls[job.Args.N].handler(ctx) })
	failures := make(map[int64]worker.Failure)
	for _, call := range calls {
		if call.want != nil {
			failure := receive(t, told, "a failure")
			failures[failure.Run.ID()] = failure
		}
	}
	require.NoError(t, w.drain())
	require.Empty(t, told)
	for i, call := range calls {
		failure, ok := failures[ids[i]]
		require.Equal(t, call.want != nil, ok, i)
		if !ok {
			continue
		}
		require.Equal(t, call.want.outcome, failure.Outcome, i)
		if call.want.is != nil {
			require.ErrorIs(t, failure.Err, call.want.is, i)
		}
		require.Contains(t, failure.Err.Error(), call.want.text, i)
		require.Equal(t, call.want.panic, failure.Panic, i)
		require.Equal(t, call.want.panic != nil, strings.Contains(string(failure.Stack), "failures_test.go"), i)
		require.Equal(t, call.want.final, failure.Final, i)
		require.Equal(t, []any{"task", 1}, []any{failure.Run.Kind(), failure.Run.Attempt()}, i)
	}
}

// A function for failures that panics, that ends its goroutine, or that does not return until its context has ended
// changes nothing of the runs, holds no slot, and is named in the log.
func TestOnFailureThatMisbehaves(t *testing.T) {
	t.Parallel()
	client, log := newClient(t), new(logBuffer)
	errBroken, told := errors.New("broken"), make(chan int64, 100)
	const panics, exits, stays = 0, 1, 2 // of each, more than there are goroutines for calls
	w := startReporting(t, client, log, 100*time.Millisecond, func(ctx context.Context, failure worker.Failure) {
		defer func() { told <- failure.Run.ID() }()
		switch failure.Run.ID() % 3 {
		case panics:
			panic("aaah")
		case exits:
			runtime.Goexit()
		case stays:
			<-ctx.Done()
		}
	}, func(_ context.Context, job *worker.Job[task]) error {
		if job.Args.N == 0 {
			return errBroken
		}
		return nil
	})
	var ids []int64
	for range 30 {
		ids = append(ids, enqueue(t, client, 0, &jobq.EnqueueOptions{MaxAttempts: 1}))
	}
	// The job after them does not wait for the calls that stay: the test waits for these at its end.
	awaitState(t, client, enqueue(t, client, 1, nil), jobq.StateCompleted)
	for _, id := range ids {
		require.Equal(t, "broken", awaitState(t, client, id, jobq.StateFailed).LastError)
	}
	var all []int64
	for range ids {
		all = append(all, receive(t, told, "a call"))
	}
	require.ElementsMatch(t, ids, all)
	for _, message := range []string{"OnFailure panics", "OnFailure takes too long"} {
		require.Eventually(t, func() bool { return strings.Contains(log.String(), message) }, patience, time.Millisecond, message)
	}
	require.EqualValues(t, len(ids), w.Counts().Failed)
}

// Failures that come while no call returns are logged when too many wait, and a worker that drains does not wait for a
// call that does not end.
func TestOnFailureThatNeverReturns(t *testing.T) {
	t.Parallel()
	client, log, gate := newClient(t), new(logBuffer), make(chan struct{})
	w, err := worker.New(client, &worker.Config{
		NoJanitor: true, Logger: slog.New(slog.NewTextHandler(log, nil)),
		OnFailure: func(context.Context, worker.Failure) { <-gate },
	})
	require.NoError(t, err)
	worker.LimitFailures(w, time.Millisecond, 3)
	require.NoError(t, worker.Handle(w, func(context.Context, *worker.Job[task]) error { return errors.New("broken") }, nil))
	for range 50 { // 8 of these are in calls, and 3 wait
		enqueue(t, client, 0, &jobq.EnqueueOptions{MaxAttempts: 1})
	}
	r := run(t, w)
	require.Eventually(t, func() bool { return w.Counts().Failed == 50 }, patience, time.Millisecond)
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "OnFailure is too slow") }, patience, time.Millisecond)
	require.NoError(t, r.drain())
	require.Contains(t, log.String(), "worker stopped before all failures were reported")
	close(gate)
	worker.AwaitFailureCalls(w)
}
