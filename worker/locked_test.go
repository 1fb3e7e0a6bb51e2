package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/worker"
)

// Leases are extended again and again while the question which jobs were cancelled
// waits for a day of the history that somebody has locked. The test makes one
// extension while a question waits; its own question has to be put off, which makes
// the next extension come soon, and so on. The lease is so long that none is due
// otherwise. Two extensions are asked for, since one could fall between the worker's
// giving up a question and the server's noticing that.
func TestLockedDayDelaysNoExtension(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	begun, causes := make(chan struct{}, 1), make(chan error, 1)
	w := start(t, client, &worker.Config{Lease: time.Hour}, func(ctx context.Context, job *worker.Job[task]) error {
		begun <- struct{}{}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return context.Cause(ctx)
	})
	require.Eventually(t, func() bool { return worker.IsPresent(w.Worker) }, patience, time.Millisecond)
	id := enqueue(t, client, 1, nil)
	receive(t, begun, "the start")
	tx, err := client.Pool().Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(ctx) }() // after a failure; else it has committed
	_, err = tx.Exec(ctx, "lock table jobq.run in access exclusive mode")
	require.NoError(t, err)

	question := func() (waiting string) {
		require.NoError(t, client.Pool().QueryRow(ctx, `select coalesce(min(pid || ' ' || query_start), '') from pg_stat_activity
			where datname = current_database() and wait_event_type = 'Lock' and query like '%LeaseCancelled%' and pid <> pg_backend_pid()`).Scan(&waiting))
		return waiting
	}
	require.Eventually(t, func() bool {
		asked := question()
		last, extensions := worker.Deadline(w.Worker, id), 0
		worker.ExtendNow(w.Worker)
		for asked != "" && question() == asked {
			if deadline := worker.Deadline(w.Worker, id); deadline > last {
				last = deadline
				extensions++
			}
			if extensions == 2 {
				return question() == asked
			}
		}
		return false
	}, patience, 10*time.Millisecond)

	require.NoError(t, tx.Commit(ctx))
	exec(t, client.Pool(), "select jobq.cancel($1)", id)
	require.ErrorIs(t, receive(t, causes, "the stop of the cancelled job"), worker.ErrCancelled)
	require.Zero(t, w.Counts().Lost)
}
