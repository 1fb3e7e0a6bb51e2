package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/worker"
)

// A job whose row somebody has locked, and does not let go, costs the worker
// neither the results of others nor the next jobs, and its own result is stored
// when the lock goes.
func TestLockedRowHoldsNothingUp(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	begun, proceed := make(chan int, 3), make(chan struct{})
	start(t, client, &worker.Config{Lease: 10 * time.Minute, Queues: map[string]worker.QueueConfig{"default": {Slots: 2}}},
		func(_ context.Context, job *worker.Job[task]) error {
			begun <- job.Args.N
			<-proceed
			return job.SetResult(job.Args.N) // which ends on its own row
		})
	locked, good := enqueue(t, client, 1, nil), enqueue(t, client, 2, nil)
	receive(t, begun, "the first start")
	receive(t, begun, "the second start")
	tx, err := client.Pool().Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(ctx) }()
	_, err = tx.Exec(ctx, "select jobq.cancel($1)", locked)
	require.NoError(t, err)
	next := enqueue(t, client, 3, nil)

	close(proceed)
	require.Equal(t, 3, receive(t, begun, "the next job"))
	for _, id := range []int64{good, next} {
		awaitState(t, client, id, jobq.StateCompleted)
	}
	require.Equal(t, jobq.StateRunning, awaitState(t, client, locked, jobq.StateRunning).State)
	require.NoError(t, tx.Commit(ctx))
	job := awaitState(t, client, locked, jobq.StateCompleted)
	require.Zero(t, job.Crashes)
}

// While claims time out, after half of a lease, results are stored.
func TestSlowClaimHoldsNoResults(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	lease, every := 20*time.Second, 50*time.Millisecond
	require.NoError(t, jobtest.ErrorOf(operator.New(client, "test").SetQueue(ctx, "default", operator.QueueChange{Lease: &lease, ExtendEvery: &every})))
	begun, proceed := make(chan int, 1), make(chan struct{})
	start(t, client, &worker.Config{Queues: map[string]worker.QueueConfig{"default": {Slots: 2}}, PollInterval: time.Millisecond},
		func(_ context.Context, job *worker.Job[task]) error {
			begun <- job.Args.N
			<-proceed
			return nil
		})
	id := enqueue(t, client, 1, nil)
	receive(t, begun, "the start")
	tx, err := client.Pool().Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(ctx) }()
	_, err = tx.Exec(ctx, "lock table jobq.pending in exclusive mode")
	require.NoError(t, err)
	close(proceed)
	awaitState(t, client, id, jobq.StateCompleted)
}

// Jobs that were claimed ahead of quick ones and then wait behind a slow one are
// given back, and cost no attempt, so that an idle worker has them.
func TestGivesBackWhatWaits(t *testing.T) {
	t.Parallel()
	const quick, slow = 1000, 5
	client := newClient(t)
	exec(t, client.Pool(), "select jobq.enqueue('task', args => jsonb_build_object('n', i)) from generate_series(1, $1::integer) i", quick+slow)
	begun, proceed := make(chan string, slow), make(chan struct{})
	handle := func(who string) worker.Handler[task] {
		return func(_ context.Context, job *worker.Job[task]) error {
			if job.Args.N > quick {
				begun <- who
				<-proceed
			}
			return nil
		}
	}
	start(t, client, &worker.Config{Queues: map[string]worker.QueueConfig{"default": {Slots: 1}}, PollInterval: time.Hour}, handle("first"))
	require.Equal(t, "first", receive(t, begun, "the first slow job"))
	start(t, client, &worker.Config{Queues: map[string]worker.QueueConfig{"default": {Slots: slow}}, PollInterval: time.Hour}, handle("second"))
	for range slow - 1 {
		require.Equal(t, "second", receive(t, begun, "a slow job that waited"))
	}
	close(proceed)
	for id := int64(quick + 1); id <= quick+slow; id++ {
		require.Zero(t, awaitState(t, client, id, jobq.StateCompleted).Attempts)
	}
}

// A run takes from when its handler is called: the time that its job lay claimed
// and not started is no part of it. Method: the handler of an earlier job looks which
// later one has been claimed ahead, and notes the database's time; that one fails.
func TestRunTakesFromItsStart(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	exec(t, client.Pool(), "select jobq.enqueue('task') from generate_series(1, 2000)")
	var victim int64 // both are the one slot's
	var before time.Time
	failed := make(chan int64, 1)
	start(t, client, &worker.Config{Queues: map[string]worker.QueueConfig{"default": {Slots: 1}}}, func(_ context.Context, job *worker.Job[task]) error {
		switch {
		case victim == 0:
			err := client.Pool().QueryRow(ctx, "select max(id), clock_timestamp() from jobq.job where state = 'running' and id > $1 having count(*) > 0", job.ID()).
				Scan(&victim, &before)
			if err != nil && !errors.Is(err, pgx.ErrNoRows) {
				return err
			}
		case victim == job.ID():
			failed <- victim
			return worker.Discard(errors.New("no luck"))
		}
		return nil
	})
	job := awaitState(t, client, receive(t, failed, "the job that was claimed ahead"), jobq.StateFailed)
	runs, err := monitor.New(client).Attempts(ctx, job.ID)
	require.NoError(t, err)
	require.Len(t, runs, 1)
	for _, started := range []time.Time{runs[0].StartedAt, *job.StartedAt} {
		require.True(t, started.After(before), "%s, and before it began %s", started, before)
	}
	require.False(t, runs[0].FinishedAt.Before(runs[0].StartedAt))
}
