package worker_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/worker"
)

// onHost starts a worker of a host, which sends the numbers of the jobs that it begins, and runs each until proceed has a value.
func onHost(t *testing.T, client *jobq.Client, host string, config *worker.Config) (w *running, begun chan int, proceed chan struct{}) {
	t.Helper()
	begun, proceed = make(chan int, 100), make(chan struct{})
	config.Logger, config.NoJanitor = slog.New(slog.DiscardHandler), true
	made, err := worker.New(client, config)
	require.NoError(t, err)
	require.NoError(t, worker.Handle(made, func(ctx context.Context, job *worker.Job[task]) error {
		begun <- job.Args.N
		select {
		case <-proceed:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}, nil))
	worker.OnHost(made, host)
	return run(t, made), begun, proceed
}

// awaitHeld waits until the worker knows that its host is held, and its row says that it has no room.
func awaitHeld(t *testing.T, client *jobq.Client, w *running) {
	t.Helper()
	require.Eventually(t, func() bool {
		return worker.IsHeld(w.Worker) && number(t, client, "select count(*) from jobq.worker where id = $1 and not has_room", w.ID()) == 1
	}, patience, 2*time.Millisecond)
}

// A host that is held claims nothing, also with a worker that starts later, while a worker of another host runs all. What ran
// goes on, and what was claimed and not begun goes back without an attempt. A release lets it claim at once: the polls are far
// too slow to be the reason.
func TestHeldHost(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	o := operator.New(client, "ann")
	config := func() *worker.Config {
		return &worker.Config{PollInterval: time.Hour, Queues: map[string]worker.QueueConfig{"default": {Slots: 1}}}
	}
	bad, begunBad, proceedBad := onHost(t, client, "bad", config())
	first := enqueue(t, client, 1, nil)
	require.Equal(t, 1, receive(t, begunBad, "the start"))

	held, err := o.HoldHost(ctx, "bad", "full disk")
	require.NoError(t, err)
	require.Equal(t, operator.HeldHost{Host: "bad", AuditID: held.AuditID, Workers: 1}, held)
	require.NotZero(t, held.AuditID)
	awaitHeld(t, client, bad)
	later, begunLater, _ := onHost(t, client, "bad", config())
	awaitHeld(t, client, later)
	workers, err := monitor.New(client).Workers(ctx)
	require.NoError(t, err)
	require.Len(t, workers, 2)
	for _, w := range workers {
		require.Equal(t, monitor.Held{By: "ann", Reason: "full disk", Since: w.Held.Since}, *w.Held)
	}

	second := enqueue(t, client, 2, nil)
	close(proceedBad)
	awaitState(t, client, first, jobq.StateCompleted)
	require.Equal(t, []string{"workers_held bad ann full disk"}, reasons(t, client, second))
	good, begunGood, proceedGood := onHost(t, client, "good", config())
	close(proceedGood)
	require.Equal(t, 2, receive(t, begunGood, "the start elsewhere"))
	awaitState(t, client, second, jobq.StateCompleted)
	for n := 3; n < 20; n++ {
		awaitState(t, client, enqueue(t, client, n, nil), jobq.StateCompleted)
	}
	require.Empty(t, begunBad)
	require.Empty(t, begunLater)
	require.NoError(t, good.drain())

	third := enqueue(t, client, 20, nil)
	_, err = o.ReleaseHost(ctx, "bad")
	require.NoError(t, err)
	select {
	case <-begunBad:
		awaitState(t, client, third, jobq.StateCompleted)
	case <-begunLater:
	case <-time.After(patience):
		require.FailNow(t, "nothing was claimed")
	}
}

// Jobs that a worker has claimed ahead and not begun go back when its host is held, without an attempt: when the run that lasts
// has ended, none of them begins.
func TestHoldGivesBackWhatHasNotBegun(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	w, begun, proceed := onHost(t, client, "bad", &worker.Config{PollInterval: time.Hour, Queues: map[string]worker.QueueConfig{"default": {Slots: 1}}})
	exec(t, client.Pool(), "select jobq.enqueue('task', jsonb_build_object('n', i)) from generate_series(1, 60) i")
	for range 5 { // runs are short, so it claims ahead
		receive(t, begun, "a start")
		proceed <- struct{}{}
	}
	receive(t, begun, "the run that lasts")
	_, err := operator.New(client, "ann").HoldHost(context.Background(), "bad", "")
	require.NoError(t, err)
	awaitHeld(t, client, w)
	proceed <- struct{}{}
	require.Eventually(t, func() bool {
		return number(t, client, "select count(*) from jobq.job where state = 'available' and attempts = 0") == 54 &&
			number(t, client, "select count(*) from jobq.job where state = 'completed'") == 6
	}, patience, 2*time.Millisecond)
	require.Empty(t, begun)
}

// A worker whose host is held can be drained, and its jobs go back when it is lost.
func TestHeldWorkerIsDrainedAndLost(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	o := operator.New(client, "ann")
	w, begun, _ := onHost(t, client, "bad", &worker.Config{})
	enqueue(t, client, 1, nil)
	receive(t, begun, "the start")
	_, err := o.HoldHost(ctx, "bad", "")
	require.NoError(t, err)
	awaitHeld(t, client, w)
	asked, err := o.DrainWorker(ctx, w.ID())
	require.NoError(t, err)
	require.True(t, asked)
	require.Eventually(t, func() bool { return worker.Draining(w.Worker) }, patience, 2*time.Millisecond)
	lost, err := o.LoseWorker(ctx, w.ID(), "gone")
	require.NoError(t, err)
	require.EqualValues(t, 1, lost.Jobs)
}

// A worker that ends when its queues are empty ends on a host that is held, although jobs wait there.
func TestHeldBatch(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	o := operator.New(client, "ann")
	held, err := o.HoldHost(context.Background(), "bad", "")
	require.NoError(t, err)
	require.Zero(t, held.Workers)
	id := enqueue(t, client, 1, nil)
	made, err := worker.New(client, &worker.Config{Batch: worker.Batch{ExitWhenEmpty: true}, NoJanitor: true, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, worker.Handle(made, func(context.Context, *worker.Job[task]) error { return nil }, nil))
	worker.OnHost(made, "bad")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.NoError(t, made.Run(ctx))
	require.NoError(t, ctx.Err(), "it ended by itself")
	awaitState(t, client, id, jobq.StateAvailable)
}

// reasons are why a job waits, each with the host that is held, by whom and why.
func reasons(t *testing.T, client *jobq.Client, id int64) (all []string) {
	t.Helper()
	why, err := monitor.New(client).Why(context.Background(), id)
	require.NoError(t, err)
	for _, r := range why {
		all = append(all, string(r.Code)+" "+r.Facts.Host+" "+r.Facts.By+" "+r.Facts.Note)
	}
	return all
}
