package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/worker"
)

// hurry makes what a job sleeps or waits for be over now, and the job available.
func hurry(t *testing.T, client *jobq.Client, id int64) {
	t.Helper()
	exec(t, client.Pool(), "update jobq.step set wake_at = clock_timestamp() where job_id = $1 and finished_at is null", id)
	exec(t, client.Pool(), "select jobq.requeue($1)", id)
}

// A step that is done is not done again, and later runs get what it has returned; one
// that has failed is. What is returned has been through JSON, in the first run as well.
func TestStep(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	type receipt struct {
		ID     int `json:"id"`
		secret string
	}
	var charged, mailed atomic.Int64
	receipts := make(chan receipt, 10)
	start(t, client, nil, func(ctx context.Context, job *worker.Job[task]) error {
		got, err := jobq.Step(ctx, "charge", func(context.Context) (receipt, error) {
			return receipt{ID: int(charged.Add(1)), secret: "lost"}, nil
		})
		if err != nil {
			return err
		}
		receipts <- got
		_, err = jobq.Step(ctx, "mail", func(context.Context) (any, error) {
			if mailed.Add(1) < 3 {
				return nil, worker.Retry(0, errors.New("no connection"))
			}
			return nil, nil
		})
		if err != nil {
			return err
		}
		_, err = jobq.Step(ctx, "mail", func(context.Context) (any, error) { return nil, nil })
		if !errors.Is(err, jobq.ErrConflict) {
			return worker.Discard(errors.New("the same name twice was accepted"))
		}
		return nil
	})
	id := enqueue(t, client, 1, nil)
	require.Equal(t, 2, awaitState(t, client, id, jobq.StateCompleted).Attempts)
	for range 3 {
		require.Equal(t, receipt{ID: 1}, receive(t, receipts, "a receipt"))
	}
	require.EqualValues(t, 1, charged.Load())
	require.EqualValues(t, 3, mailed.Load())
	require.Equal(t, 3, number(t, client, "select attempts from jobq.step where name = 'mail' and result = 'null'"))
}

// A step whose function has returned is stored, also when the run was told to stop
// meanwhile.
func TestStepOfAStoppedRun(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	begun := make(chan struct{}, 1)
	stopped := func(ctx context.Context, _ *worker.Job[task]) error {
		_, err := jobq.Step(ctx, "charge", func(ctx context.Context) (int, error) {
			begun <- struct{}{}
			<-ctx.Done()
			return 7, nil
		})
		if err != nil {
			return worker.Discard(err)
		}
		return context.Cause(ctx)
	}
	w := start(t, client, &worker.Config{DrainTimeout: time.Nanosecond}, stopped)
	id := enqueue(t, client, 1, nil)
	receive(t, begun, "the step")
	require.NoError(t, w.drain())
	require.Equal(t, 1, number(t, client, "select count(*) from jobq.step where job_id = $1 and result = '7'", id))
	require.Equal(t, jobq.StateAvailable, awaitState(t, client, id, jobq.StateAvailable).State)
}

// The effect of a StepTx and its result are stored together or not at all: not when its
// function fails, nor when the lease is lost before it commits.
func TestStepTx(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	exec(t, client.Pool(), "create table effect (n integer)")
	t.Cleanup(func() { exec(t, client.Pool(), "drop table effect") })
	var runs atomic.Int64
	first, second := make(chan error, 1), make(chan error, 1) // the third run may be over before the second one is
	start(t, client, nil, func(ctx context.Context, job *worker.Job[task]) error {
		n := int(runs.Add(1))
		got, err := jobq.StepTx(ctx, client.Pool(), "charge", func(ctx context.Context, tx pgx.Tx) (int, error) {
			if _, err := tx.Exec(ctx, "insert into effect values ($1)", n); err != nil {
				return 0, err
			}
			switch n {
			case 1:
				return 0, worker.Retry(0, errors.New("no luck"))
			case 2:
				reap(t, client, job.ID())
			}
			return n, nil
		})
		if n == 2 && ctx.Err() != nil { // the worker has heard of it before the database was asked
			err = context.Cause(ctx)
		}
		switch n {
		case 1:
			first <- err
		case 2:
			second <- err
		}
		if err == nil && (n < 4 || got != 3) {
			return worker.Retry(0, errors.New("once more"))
		}
		return err
	})
	id := enqueue(t, client, 1, nil)
	require.ErrorContains(t, receive(t, first, "the first run"), "no luck")
	require.ErrorIs(t, receive(t, second, "the second run"), worker.ErrLeaseLost)
	exec(t, client.Pool(), "select jobq.requeue($1) where exists (select from jobq.job where id = $1 and state = 'scheduled')", id)
	awaitState(t, client, id, jobq.StateCompleted)
	require.Equal(t, 3, number(t, client, "select sum(n) from effect"))
	require.Equal(t, 3, number(t, client, "select result::integer from jobq.step where name = 'charge'"))
}

// A job that sleeps holds no slot and uses no attempt, and it costs no warning and no
// lost lease. One that does not have to sleep any more ends as any other.
func TestSleep(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	var lines bytes.Buffer
	config := &worker.Config{NoJanitor: true, Queues: map[string]worker.QueueConfig{"default": {Slots: 1}}}
	config.Logger = slog.New(slog.NewTextHandler(&synced{writer: &lines}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	w, err := worker.New(client, config)
	require.NoError(t, err)
	require.NoError(t, worker.Handle(w, func(ctx context.Context, job *worker.Job[task]) error {
		if job.Args.N == 2 {
			return nil
		}
		if err := jobq.Sleep(ctx, "moment", 0); err != nil {
			return err
		}
		return jobq.Sleep(ctx, "night", 8*time.Hour)
	}, nil))
	running := run(t, w)
	sleeper := enqueue(t, client, 1, nil)
	other := enqueue(t, client, 2, nil)
	awaitState(t, client, other, jobq.StateCompleted)
	asleep := awaitState(t, client, sleeper, jobq.StateScheduled)
	require.Greater(t, time.Until(asleep.RunAt), time.Hour)
	hurry(t, client, sleeper)
	require.Zero(t, awaitState(t, client, sleeper, jobq.StateCompleted).Attempts)
	require.NoError(t, running.drain())
	counts := running.Counts()
	require.EqualValues(t, 2, counts.Completed)
	require.Zero(t, counts.Lost)
	require.Zero(t, counts.Failed)
	require.Empty(t, lines.String())
	require.Equal(t, 1, number(t, client, "select count(*) from jobq.attempt where job_id = $1 and outcome = 'snoozed'", sleeper))
}

// synced lets several goroutines write.
type synced struct {
	mu     sync.Mutex
	writer *bytes.Buffer
}

func (s *synced) Write(content []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writer.Write(content)
}

func (s *synced) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writer.String()
}

// A job that waits for an event runs at once when it comes, and has it also when it
// came before; the poll is far too slow to be the reason.
func TestWaitEvent(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	type payment struct{ By string }
	seen := make(chan string, 10)
	start(t, client, &worker.Config{PollInterval: time.Hour}, func(ctx context.Context, job *worker.Job[task]) error {
		got, err := jobq.WaitEvent[payment](ctx, "paid "+string(rune('a'+job.Args.N)), time.Duration(job.Args.N)*time.Hour)
		if errors.Is(err, jobq.ErrEventTimeout) {
			got.By = "nobody"
		} else if err != nil {
			return err
		}
		seen <- got.By
		return nil
	})
	first, err := client.Emit(ctx, "paid a", payment{"ann"})
	require.NoError(t, err)
	require.True(t, first)
	early := enqueue(t, client, 0, nil)
	require.Equal(t, "ann", receive(t, seen, "the event before"))
	late := enqueue(t, client, 1, nil)
	awaitState(t, client, late, jobq.StateScheduled)
	require.NoError(t, pgx.BeginFunc(ctx, client.Pool(), func(tx pgx.Tx) error {
		_, err := client.EmitTx(ctx, tx, "paid b", payment{"bob"})
		return err
	}))
	require.Equal(t, "bob", receive(t, seen, "the event after"))
	never := enqueue(t, client, 2, nil)
	awaitState(t, client, never, jobq.StateScheduled)
	hurry(t, client, never)
	require.Equal(t, "nobody", receive(t, seen, "the timeout"))
	for _, id := range []int64{early, late, never} {
		require.Zero(t, awaitState(t, client, id, jobq.StateCompleted).Attempts)
	}
	first, err = client.Emit(ctx, "paid a", nil)
	require.NoError(t, err)
	require.False(t, first)
	_, err = client.Emit(ctx, "", nil)
	require.ErrorIs(t, err, jobq.ErrInvalid)
	_, err = client.Emit(ctx, "e", func() {})
	require.ErrorIs(t, err, jobq.ErrInvalid)
}

// A job whose event comes in the moment in which it is suspended, or for which the job that it
// awaits ends then, may be claimed anew by the same worker before its handler has returned. That
// costs no lease: another job of the claim goes on. Method: the handler returns only when the
// next run has begun.
func TestSuspendedAndClaimedAtOnce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, way := range map[string]struct {
		suspend func(ctx context.Context, other int64) error
		proceed func(client *jobq.Client, other int64) error
	}{
		"event": {
			func(ctx context.Context, _ int64) error { return waitForGo(ctx) },
			func(client *jobq.Client, _ int64) error { _, err := client.Emit(ctx, "go", nil); return err },
		},
		"await": {
			func(ctx context.Context, other int64) error {
				_, err := jobq.Await[any](ctx, "other", other)
				return err
			},
			func(client *jobq.Client, other int64) error { _, err := client.Cancel(ctx, other); return err },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := newClient(t)
			startJanitor(t, client)
			other := enqueue(t, client, 3, &jobq.EnqueueOptions{Queue: "elsewhere"})
			suspended, again, end := make(chan struct{}), make(chan struct{}), make(chan struct{})
			var runs atomic.Int64
			neighbour := make(chan error, 1)
			waiting, beside := enqueue(t, client, 1, nil), enqueue(t, client, 2, nil)
			w := start(t, client, nil, func(ctx context.Context, job *worker.Job[task]) error {
				if job.Args.N == 2 {
					select {
					case <-end:
					case <-ctx.Done():
					}
					neighbour <- context.Cause(ctx)
					return context.Cause(ctx)
				}
				n := runs.Add(1)
				if n == 2 {
					close(again)
				}
				err := way.suspend(ctx, other)
				if n > 1 {
					return nil
				}
				if !errors.Is(err, jobq.ErrSuspended) {
					return worker.Discard(errors.New("not suspended"))
				}
				close(suspended)
				<-again
				return err
			})
			receive(t, suspended, "the suspension")
			require.Equal(t, 1, number(t, client, "select count(distinct lease_token) from jobq.job where queue = 'default'"), "one claim has both")
			require.NoError(t, way.proceed(client, other))
			awaitState(t, client, waiting, jobq.StateCompleted)
			close(end)
			require.NoError(t, receive(t, neighbour, "the other job"))
			require.Zero(t, awaitState(t, client, beside, jobq.StateCompleted).Crashes)
			require.NoError(t, w.drain())
			require.Zero(t, w.Counts().Lost)
		})
	}
}

func waitForGo(ctx context.Context) error {
	_, err := jobq.WaitEvent[any](ctx, "go", 0)
	return err
}

// A handler that does not have to sleep any more, and then says that it has completed the
// job in a transaction of its own, is not believed if that was rolled back.
func TestSleepAndCompleteTx(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	start(t, client, nil, func(ctx context.Context, job *worker.Job[task]) error {
		if err := jobq.Sleep(ctx, "moment", 0); err != nil {
			return err
		}
		tx, err := beginCompletion(ctx, client, job)
		if err != nil {
			return err
		}
		return tx.Rollback(ctx)
	})
	id := enqueue(t, client, 1, &jobq.EnqueueOptions{MaxAttempts: 1})
	require.Contains(t, awaitState(t, client, id, jobq.StateFailed).LastError, "without committing")
}

// A handler that goes on after it was told that the job is suspended changes nothing.
func TestSuspensionIgnored(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	errs := make(chan error, 10)
	start(t, client, nil, func(ctx context.Context, job *worker.Job[task]) error {
		if err := jobq.Sleep(ctx, "night", time.Hour); err != nil {
			_, err := jobq.Step(ctx, "after", func(context.Context) (int, error) { return 1, nil })
			errs <- err
		}
		return nil
	})
	id := enqueue(t, client, 1, nil)
	require.ErrorIs(t, receive(t, errs, "the step"), worker.ErrLeaseLost)
	awaitState(t, client, id, jobq.StateScheduled)
	hurry(t, client, id)
	awaitState(t, client, id, jobq.StateCompleted)
}

// A handler that does not have to sleep any more, and then does not stop when the worker
// does, is given up as any other: its job is put back at once.
func TestStuckAfterSleep(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	begun, end := make(chan struct{}, 1), make(chan struct{})
	w := start(t, client, &worker.Config{DrainTimeout: -1}, func(ctx context.Context, job *worker.Job[task]) error {
		if err := jobq.Sleep(ctx, "moment", 0); err != nil {
			return worker.Discard(err)
		}
		begun <- struct{}{}
		<-end
		return nil
	})
	id := enqueue(t, client, 1, nil)
	receive(t, begun, "the sleep")
	require.EqualError(t, w.drain(), "worker: handlers did not stop: 1")
	awaitState(t, client, id, jobq.StateAvailable)
	close(end)
}

// A handler whose sleep or wait was refused, and which then does not stop when the worker
// does, is given up as any other: the run has not ended by that.
func TestStuckAfterRefusedSleep(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	refused, end := make(chan []error, 1), make(chan struct{})
	w := start(t, client, &worker.Config{DrainTimeout: -1}, func(ctx context.Context, job *worker.Job[task]) error {
		if _, err := jobq.Step(ctx, "charge", func(context.Context) (int, error) { return 1, nil }); err != nil {
			return worker.Discard(err)
		}
		_, err := jobq.WaitEvent[int](ctx, "charge", 0)
		refused <- []error{jobq.Sleep(ctx, "charge", time.Hour), jobq.Sleep(ctx, "night", -time.Hour), err}
		<-end
		return nil
	})
	id := enqueue(t, client, 1, nil)
	errs := receive(t, refused, "the errors")
	require.ErrorIs(t, errs[0], jobq.ErrConflict)
	require.ErrorIs(t, errs[1], jobq.ErrInvalid)
	require.ErrorIs(t, errs[2], jobq.ErrConflict)
	require.EqualError(t, w.drain(), "worker: handlers did not stop: 1")
	require.Equal(t, jobq.StateAvailable, jobtest.State(t, client, id))
	close(end)
}

// Few runs ask at once whether an event has come: each may have to wait for one who is
// about to emit it, with a connection that others need.
func TestFewWaitForEmitters(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	w, err := worker.New(client, &worker.Config{NoJanitor: true, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	makeRoom := worker.TakeEventWaits(w)
	_, err = client.Emit(context.Background(), "paid", 7)
	require.NoError(t, err)
	asked := make(chan error, 1)
	require.NoError(t, worker.Handle(w, func(ctx context.Context, _ *worker.Job[task]) error {
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		_, err := jobq.WaitEvent[int](short, "paid", 0)
		asked <- err
		makeRoom()
		_, err = jobq.WaitEvent[int](ctx, "paid", 0)
		return err
	}, nil))
	run(t, w)
	id := enqueue(t, client, 1, nil)
	require.ErrorIs(t, receive(t, asked, "the wait for a place"), context.DeadlineExceeded)
	awaitState(t, client, id, jobq.StateCompleted)
}

// Outside of a run there are no steps.
func TestStepsNeedARun(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	_, err := jobq.Step(ctx, "a", func(context.Context) (int, error) { return 1, nil })
	require.ErrorIs(t, err, jobq.ErrNoRun)
	_, err = jobq.StepTx(ctx, nil, "a", func(context.Context, pgx.Tx) (int, error) { return 1, nil })
	require.ErrorIs(t, err, jobq.ErrNoRun)
	_, err = jobq.WaitEvent[int](ctx, "a", 0)
	require.ErrorIs(t, err, jobq.ErrNoRun)
	require.ErrorIs(t, jobq.Sleep(ctx, "a", 0), jobq.ErrNoRun)
}

// A handler with steps can be tested without a database: what earlier runs have done is
// done, what it does is told, and a sleep that is not over suspends it.
func TestStepsOfATestJob(t *testing.T) {
	t.Parallel()
	handler := func(ctx context.Context, _ *worker.Job[task]) error {
		if _, err := jobq.Step(ctx, "charge", func(context.Context) (int, error) { return 8, nil }); err != nil {
			return err
		}
		return jobq.Sleep(ctx, "night", time.Hour)
	}
	first := worker.NewTestJob(task{1}, nil)
	require.ErrorIs(t, handler(first.Context(context.Background()), first.Job), jobq.ErrSuspended)
	require.Equal(t, map[string]json.RawMessage{"charge": json.RawMessage("8")}, first.Steps())
	done := map[string]json.RawMessage{"charge": json.RawMessage("7"), "night": nil}
	second := worker.NewTestJob(task{1}, &worker.TestJobOptions{Steps: done})
	ctx := second.Context(context.Background())
	require.NoError(t, handler(ctx, second.Job))
	require.Equal(t, done, second.Steps())
	require.ErrorIs(t, handler(ctx, second.Job), jobq.ErrConflict, "the names are used twice now")

	third := worker.NewTestJob(task{1}, nil)
	_, err := jobq.Step(third.Context(context.Background()), "outer", func(ctx context.Context) (int, error) {
		return jobq.Step(ctx, "outer", func(context.Context) (int, error) { return 1, nil })
	})
	require.ErrorIs(t, err, jobq.ErrConflict, "the inner one has done it")
}
