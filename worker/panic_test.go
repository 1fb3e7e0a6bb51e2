package worker_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/worker"
)

// mute is an error whose text panics with what it holds.
type mute struct{ with any }

func (m mute) Error() string { panic(m.with) }

// located is an error whose text panics where it is a nil pointer, as many do.
type located struct{ path string }

func (l *located) Error() string { return l.path }

// touchy is an error that panics when it is compared.
type touchy struct{}

func (touchy) Error() string { return "touchy" }
func (touchy) As(any) bool   { panic("do not compare") }

// logErrors is a log that asks for the text of every error, and lets it panic.
type logErrors struct{ slog.Handler }

func (l logErrors) WithAttrs([]slog.Attr) slog.Handler { return l }

func (logErrors) Enabled(context.Context, slog.Level) bool { return true }

func (logErrors) Handle(_ context.Context, record slog.Record) error {
	record.Attrs(func(attr slog.Attr) bool {
		if err, ok := attr.Value.Any().(error); ok {
			_ = err.Error()
		}
		return true
	})
	return nil
}

// runOne runs one job to its end, or to its next attempt, which is far away.
func runOne(t *testing.T, client *jobq.Client, handler worker.Handler[task], middleware ...worker.Middleware) *jobq.Job {
	t.Helper()
	w, err := worker.New(client, &worker.Config{NoJanitor: true, Logger: slog.New(logErrors{slog.DiscardHandler}), Middleware: middleware})
	require.NoError(t, err)
	require.NoError(t, worker.Handle(w, handler, nil))
	id := enqueue(t, client, 1, &jobq.EnqueueOptions{BackoffBase: 8_000 * time.Hour, BackoffMax: 8_000 * time.Hour})
	run(t, w)
	var job *jobq.Job
	require.Eventually(t, func() bool {
		job, err = client.Get(context.Background(), id)
		return err == nil && job.State != jobq.StateAvailable && job.State != jobq.StateRunning
	}, patience, 2*time.Millisecond)
	return job
}

// An error whose own methods panic ends its run, and not the worker: the attempt
// fails with a text that says so, and what Retry, Discard and Snooze have said
// holds. An error that panics when it is compared says nothing of the kind.
func TestErrorsThatPanic(t *testing.T) {
	t.Parallel()
	broken, endless := mute{"no words"}, mute{mute{mute{}}}
	for name, test := range map[string]struct {
		err   error // that is returned, or the value of a panic
		panic bool
		state jobq.State
		soon  bool // the next attempt is not as late as the backoff has it
		texts []string
	}{
		"plain":            {err: broken, state: jobq.StateScheduled, texts: []string{"text of an error of type worker_test.mute: panic: no words", "panic_test.go"}},
		"nil pointer":      {err: (*located)(nil), state: jobq.StateScheduled, texts: []string{"type *worker_test.located: panic: ", "nil pointer", "panic_test.go"}},
		"endless":          {err: endless, state: jobq.StateScheduled, texts: []string{"panic: worker_test.mute"}},
		"retry":            {err: worker.Retry(time.Hour, broken), state: jobq.StateScheduled, soon: true, texts: []string{"panic: no words"}},
		"discard":          {err: worker.Discard(broken), state: jobq.StateFailed, texts: []string{"panic: no words"}},
		"snooze":           {err: errors.Join(worker.Snooze(time.Hour), broken), state: jobq.StateScheduled, soon: true},
		"compared":         {err: touchy{}, state: jobq.StateScheduled, texts: []string{"panic: do not compare", "panic_test.go"}},
		"compared, joined": {err: errors.Join(touchy{}, worker.Cancel(errors.New(""))), state: jobq.StateScheduled, texts: []string{"panic: do not compare"}},
		"panic":            {err: broken, panic: true, state: jobq.StateScheduled, texts: []string{"panic: ", "PANIC=Error method: no words", "panic_test.go"}},
		"endless panic":    {err: endless, panic: true, state: jobq.StateScheduled, texts: []string{"panic: worker_test.mute", "panic_test.go"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := newClient(t)
			job := runOne(t, client, func(context.Context, *worker.Job[task]) error {
				if test.panic {
					panic(test.err)
				}
				return test.err
			})
			require.Equal(t, test.state, job.State)
			for _, text := range test.texts {
				require.Equal(t, 1, job.Attempts)
				require.Contains(t, attempts(t, client, job.ID)[0].Error, text)
			}
			if job.State == jobq.StateScheduled {
				// A backoff is any time up to 8,000 hours: one test of 50,000 meets the hour by chance.
				require.Equal(t, test.soon, (time.Until(job.RunAt)-time.Hour).Abs() < 5*time.Minute)
			}
		})
	}
	t.Run("of middleware", func(t *testing.T) {
		t.Parallel()
		none := func(context.Context, *worker.Job[task]) error { return nil }
		job := runOne(t, newClient(t), none, func(context.Context, *worker.Run, func(context.Context) error) error { return broken })
		require.Contains(t, job.LastError, "panic: no words")
	})
	t.Run("after completion", func(t *testing.T) {
		t.Parallel()
		client := newClient(t)
		job := runOne(t, client, func(ctx context.Context, job *worker.Job[task]) error {
			err := pgx.BeginFunc(ctx, client.Pool(), func(tx pgx.Tx) error { return job.CompleteTx(ctx, tx) })
			return errors.Join(err, broken)
		})
		require.Equal(t, jobq.StateCompleted, job.State)
	})
}
