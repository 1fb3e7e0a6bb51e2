package tracing_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"

	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/worker"
)

var errNoLuck = errors.New("no luck")

// mute is an error whose text panics.
type mute struct{}

func (mute) Error() string { panic("no words") }

// A span says how its run has ended: only what counts against the job is an error. Method:
// the middleware alone; that the outcome is the one stored, TestOutcomeOf of package worker
// shows.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	long := errors.New(strings.Repeat("x", 4095) + "é and more")
	for _, test := range []struct {
		err, cause error // what the handler returns, and why its context has ended
		outcome    string
		status     codes.Code
		says       string // the description of the status
		exception  string // its message
	}{
		{nil, nil, "completed", codes.Unset, "", ""},
		{errNoLuck, nil, "failed", codes.Error, "no luck", "no luck"},
		{worker.Discard(fmt.Errorf("bad\nargs: %w", errNoLuck)), nil, "failed", codes.Error, "bad", "bad\nargs: no luck"},
		{worker.Retry(time.Hour, errNoLuck), nil, "failed", codes.Error, "no luck", "no luck"},
		{worker.Snooze(time.Hour), nil, "snoozed", codes.Unset, "", ""},
		{worker.Cancel(errors.New("enough")), nil, "cancelled", codes.Unset, "", ""},
		{worker.Release(errNoLuck), nil, "released", codes.Unset, "", ""},
		{context.Canceled, worker.ErrCancelled, "cancelled", codes.Unset, "", ""},
		{context.Canceled, worker.ErrDrained, "released", codes.Unset, "", ""},
		{context.Canceled, worker.ErrTimedOut, "timed_out", codes.Error, "context canceled", "context canceled"},
		{context.Canceled, worker.ErrStalled, "timed_out", codes.Error, "context canceled", "context canceled"},
		{nil, worker.ErrLeaseLost, "lost", codes.Error, worker.ErrLeaseLost.Error(), worker.ErrLeaseLost.Error()},
		{worker.Snooze(time.Hour), worker.ErrLeaseLost, "lost", codes.Error, worker.ErrLeaseLost.Error(), worker.ErrLeaseLost.Error()},
		{mute{}, nil, "failed", codes.Error, "tracing_test.mute, whose text panics", "tracing_test.mute, whose text panics"},
		{long, nil, "failed", codes.Error, strings.Repeat("x", 4095), strings.Repeat("x", 4095)},
	} {
		d := withoutDatabase(t)
		program, _ := d.tracer.Start(context.Background(), "program") // in which the worker runs
		ctx, cancel := context.WithCancelCause(program)
		if test.cause != nil {
			cancel(test.cause)
		}
		job := worker.NewTestJob(jobtest.Greeting{}, &worker.TestJobOptions{Attempt: 3, MaxAttempts: 5, ID: 7, LeaseToken: 9})
		require.Equal(t, test.err, d.traces.Run(ctx, job.Job.Run, func(context.Context) error { return test.err }))
		cancel(nil)
		run := d.ofJob("process greeting", 7)
		require.False(t, run.Parent.IsValid(), "a run is a trace of its own")
		attributes := attributesOf(run)
		require.Equal(t, test.outcome, attributes["jobq.run.outcome"])
		require.Equal(t, []any{int64(3), int64(5), int64(9)}, []any{attributes["jobq.job.attempt"], attributes["jobq.job.max_attempts"], attributes["jobq.run.lease_token"]})
		require.Equal(t, test.status, run.Status.Code, test.outcome)
		require.Equal(t, test.says, run.Status.Description)
		if test.status == codes.Unset {
			require.NotContains(t, attributes, attribute.Key("error.type"))
			require.Empty(t, run.Events)
			continue
		}
		require.Equal(t, test.outcome, attributes["error.type"])
		require.Len(t, run.Events, 1)
		require.Contains(t, run.Events[0].Attributes, attribute.String("exception.message", test.exception))
	}
}

// A handler that ends its goroutine ends its span, as an error.
func TestGoexit(t *testing.T) {
	t.Parallel()
	d := withoutDatabase(t)
	job := worker.NewTestJob(jobtest.Greeting{}, nil)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = d.traces.Run(context.Background(), job.Job.Run, func(context.Context) error {
			runtime.Goexit()
			return nil
		})
	}()
	<-ended
	run := d.ofJob("process greeting", 1)
	require.Equal(t, codes.Error, run.Status.Code)
	require.Equal(t, "failed", attributesOf(run)["jobq.run.outcome"])
}
