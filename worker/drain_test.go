package worker_test

import (
	"context"
	"testing"

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
