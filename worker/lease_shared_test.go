package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/worker"
)

// together adds jobs in one transaction, which a worker that has room claims
// together, under one lease.
func together(t *testing.T, client *jobq.Client, count int) []int64 {
	t.Helper()
	batch := make([]jobq.EnqueueParams, count)
	for i := range batch {
		batch[i].Args = task{i}
	}
	enqueued, err := client.EnqueueMany(context.Background(), batch)
	require.NoError(t, err)
	ids := make([]int64, count)
	for i, job := range enqueued {
		ids[i] = job.ID
	}
	return ids
}

// What tells a lease of an end gives it its full time again, in the database and
// in the worker: while round trips follow one another, each has the row locked,
// and extensions would come too rarely for the jobs that go on. Nothing else extends
// it here: the next extension is due after minutes, and a connect of the listener,
// which makes one at once, comes before the jobs.
func TestEndsExtendTheLease(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	begun, proceed := make(chan int, 2), make(chan struct{})
	w := start(t, client, &worker.Config{Lease: time.Hour}, func(ctx context.Context, job *worker.Job[task]) error {
		begun <- job.Args.N
		if job.Args.N == 0 {
			<-proceed
			return nil
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	require.Eventually(t, func() bool { return worker.IsPresent(w.Worker) }, patience, time.Millisecond)
	ids := together(t, client, 2)
	receive(t, begun, "the first start")
	receive(t, begun, "the second start")
	before, deadline := awaitState(t, client, ids[1], jobq.StateRunning), worker.Deadline(w.Worker, ids[1])
	close(proceed)
	awaitState(t, client, ids[0], jobq.StateCompleted)
	require.Eventually(t, func() bool { return worker.Deadline(w.Worker, ids[1]) > deadline }, patience, time.Millisecond)
	require.True(t, awaitState(t, client, ids[1], jobq.StateRunning).LeaseExpiresAt.After(*before.LeaseExpiresAt))
	w.DrainNow()
}

// When the database would store nothing more for one job of a lease, the worker
// gives up the whole lease: it would extend it for the others, and that job would
// wait for as long as they run.
func TestLeaseIsLostAsAWhole(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	ids := together(t, client, 3)
	begun, causes, taken := make(chan int, 3), make(chan error, 3), make(chan struct{})
	w := start(t, client, &worker.Config{Lease: time.Hour}, func(ctx context.Context, job *worker.Job[task]) error {
		begun <- job.Args.N
		<-taken
		if job.Args.N == 0 {
			return job.SaveCheckpoint(ctx, "stale")
		}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return nil
	})
	for range ids {
		receive(t, begun, "a start")
	}
	require.NoError(t, pgtest.DeleteRunning(context.Background(), client.Pool(), "id = $1", ids[0]))
	close(taken)
	for range ids[1:] {
		require.ErrorIs(t, receive(t, causes, "the loss of the lease"), worker.ErrLeaseLost)
	}
	require.NoError(t, w.drain())
	require.EqualValues(t, 3, w.Counts().Lost)
	require.Zero(t, w.Counts().Completed)
}
