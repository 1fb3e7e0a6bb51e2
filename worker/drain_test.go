package worker_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/monitor"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/worker"
)

// endBehindALock runs a job that ends on its own row while a transaction has its lease
// locked. It returns when the end is stored.
func endBehindALock(t *testing.T, client *jobq.Client) (w *running, lock pgx.Tx) {
	t.Helper()
	ctx := context.Background()
	begun, proceed := make(chan struct{}, 1), make(chan struct{})
	w = start(t, client, &worker.Config{}, func(_ context.Context, job *worker.Job[task]) error {
		begun <- struct{}{}
		<-proceed
		return job.SetResult("on the row")
	})
	id := enqueue(t, client, 1, nil)
	receive(t, begun, "the start")
	lock, err := client.Pool().Begin(ctx)
	require.NoError(t, err)
	t.Cleanup(func() { _ = lock.Rollback(ctx) }) // it may have ended
	_, err = lock.Exec(ctx, "select from jobq.lease for key share")
	require.NoError(t, err)
	close(proceed)
	awaitState(t, client, id, jobq.StateCompleted)
	return w, lock
}

// A worker that drains tells a lease of the end of its last job, although somebody had
// the lease locked when the end was stored. Else the job would count against the limit
// of its queue until the lease has run out.
func TestDrainTellsLeases(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	w, lock := endBehindALock(t, client)
	require.NoError(t, lock.Rollback(context.Background()))
	require.NoError(t, w.drain())
	var leases int
	require.NoError(t, client.Pool().QueryRow(context.Background(), "select count(*) from jobq.lease").Scan(&leases))
	require.Zero(t, leases)
}

// A lease that stays locked does not hold up the drain for long.
func TestDrainLeavesLockedLeases(t *testing.T) {
	t.Parallel()
	w, _ := endBehindALock(t, newClient(t))
	require.NoError(t, w.drain())
}

// A drain takes nothing new, gives back what has not begun, waits for what
// has, and then stops it; no attempt is used up.
func TestDrain(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	begun, causes := make(chan struct{}, 10), make(chan error, 1)
	w := start(t, client, &worker.Config{Queues: map[string]worker.QueueConfig{"default": {Slots: 1}}, DrainTimeout: 50 * time.Millisecond},
		func(ctx context.Context, _ *worker.Job[task]) error {
			begun <- struct{}{}
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return ctx.Err()
		})
	ids := []int64{enqueue(t, client, 1, nil), enqueue(t, client, 2, nil)}
	receive(t, begun, "the start")
	require.NoError(t, w.drain())
	require.ErrorIs(t, receive(t, causes, "the cause"), worker.ErrDrained)
	for _, id := range ids {
		job := awaitState(t, client, id, jobq.StateAvailable)
		require.Zero(t, job.Attempts)
		require.Zero(t, job.Crashes)
	}
	require.Equal(t, jobq.OutcomeReleased, attempts(t, client, ids[0])[0].Outcome)
	workers, err := monitor.New(client).Workers(context.Background())
	require.NoError(t, err)
	require.Empty(t, workers)
}

// A handler that ignores its context does not keep Run for ever; its job is
// given back, and what it reports afterwards is not stored.
func TestStuckHandler(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	begun, proceed := make(chan struct{}, 1), make(chan struct{})
	w := start(t, client, &worker.Config{DrainTimeout: -1}, func(context.Context, *worker.Job[task]) error {
		begun <- struct{}{}
		<-proceed
		return nil
	})
	id := enqueue(t, client, 1, nil)
	receive(t, begun, "the start")
	require.EqualError(t, w.drain(), "worker: handlers did not stop: 1")
	awaitState(t, client, id, jobq.StateAvailable)
	close(proceed)
	require.Equal(t, jobq.StateAvailable, awaitState(t, client, id, jobq.StateAvailable).State)
}

// Nor does one that had lost its lease before.
func TestStuckHandlerWithoutLease(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	begun, proceed := make(chan context.Context, 1), make(chan struct{})
	w := start(t, client, &worker.Config{Lease: time.Second, DrainTimeout: -1}, func(ctx context.Context, _ *worker.Job[task]) error {
		begun <- ctx
		<-proceed
		return nil
	})
	t.Cleanup(func() { close(proceed) })
	id := enqueue(t, client, 1, nil)
	ctx := receive(t, begun, "the start")
	require.NoError(t, pgtest.DeleteRunning(context.Background(), client.Pool(), "id = $1", id))
	receive(t, ctx.Done(), "the loss of the lease")
	ended := make(chan error, 1)
	go func() { ended <- w.drain() }()
	require.EqualError(t, receive(t, ended, "the end of Run"), "worker: handlers did not stop: 1")
}

// Workers that come and go under load burn no attempts and lose no job: each
// is completed exactly once as far as the database is concerned.
func TestDrainsUnderLoad(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	const jobs, rounds = 2000, 25
	batch := make([]jobq.EnqueueParams, jobs)
	for i := range batch {
		batch[i].Args = task{i}
	}
	_, err := client.EnqueueMany(context.Background(), batch)
	require.NoError(t, err)
	var ran atomic.Int64
	handler := func(context.Context, *worker.Job[task]) error { ran.Add(1); return nil }
	for range rounds {
		before := ran.Load()
		w := start(t, client, nil, handler)
		require.Eventually(t, func() bool { return ran.Load() > before || ran.Load() >= jobs }, patience, time.Millisecond)
		require.NoError(t, w.drain())
	}
	start(t, client, nil, handler)
	require.Eventually(t, func() bool { return completed(t, client) == jobs }, patience, 10*time.Millisecond)
	require.EqualValues(t, jobs, ran.Load(), "a job ran twice")
	var burnt int
	require.NoError(t, client.Pool().QueryRow(context.Background(), "select coalesce(sum(attempts), 0) from jobq.job").Scan(&burnt))
	require.Zero(t, burnt)
}

func completed(t *testing.T, client *jobq.Client) (count int) {
	t.Helper()
	require.NoError(t, client.Pool().QueryRow(context.Background(), "select count(*) from jobq.job where state = 'completed'").Scan(&count))
	return count
}
