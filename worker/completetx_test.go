package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/worker"
)

// beginCompletion begins a transaction that completes the job.
func beginCompletion(ctx context.Context, client *jobq.Client, job *worker.Job[task]) (pgx.Tx, error) {
	tx, err := client.Pool().Begin(ctx)
	if err != nil {
		return nil, err
	}
	if err := job.CompleteTx(ctx, tx); err != nil {
		_ = tx.Rollback(ctx)
		return nil, err
	}
	return tx, nil
}

// awaitOr waits until the condition holds or the context ends.
func awaitOr(ctx context.Context, condition func() bool) error {
	for !condition() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// Heartbeats while a commit is held up, and between the commit and the return of
// the handler, take no lease away. The job counts like any other: in the worker's
// totals, in the digest and in the stats.
func TestCompleteTxHeartbeats(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	var told heard
	defer told.watchFor(t, client)()
	keepLeases(t, client, jobq.HeartbeatTicker)
	running, causes := make(chan *running, 1), make(chan error, 1)
	w := start(t, client, nil, func(ctx context.Context, job *worker.Job[task]) error {
		w := <-running
		tx, err := beginCompletion(ctx, client, job)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(context.Background()) }()
		before := worker.NextHeartbeat(w.Worker, job.ID())
		if err := awaitOr(ctx, func() bool { return worker.NextHeartbeat(w.Worker, job.ID()) != before }); err != nil {
			return err
		}
		if err := tx.Commit(ctx); err != nil {
			return err
		}
		before = worker.NextHeartbeat(w.Worker, job.ID())
		err = awaitOr(ctx, func() bool { return worker.NextHeartbeat(w.Worker, job.ID()) != before })
		causes <- err
		return err
	})
	running <- w
	id := enqueue(t, client, 1, nil)
	require.NoError(t, receive(t, causes, "the end of the handler"))
	require.Zero(t, awaitState(t, client, id, jobq.StateCompleted).Crashes)
	require.Eventually(t, func() bool { return told.event(id).State == string(jobq.StateCompleted) }, patience, time.Millisecond, "no digest tells of it")
	require.NoError(t, w.drain())
	counts := w.Counts()
	require.EqualValues(t, 1, counts.Completed)
	require.Zero(t, counts.Lost)
	var completed int
	require.NoError(t, client.Pool().QueryRow(ctx, "select coalesce(sum(completed), 0) from jobq.stats").Scan(&completed))
	require.Equal(t, 1, completed)
}

// After a rollback the lease goes on: it is extended, the handler can complete
// the job after all, and one that says it has succeeded without is not believed.
func TestCompleteTxRolledBack(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	keepLeases(t, client, jobq.HeartbeatTicker)
	w := start(t, client, nil, func(ctx context.Context, job *worker.Job[task]) error {
		tx, err := beginCompletion(ctx, client, job)
		if err != nil {
			return err
		}
		if err := tx.Rollback(ctx); err != nil {
			return err
		}
		if err := awaitExtended(ctx, client, job, nil); err != nil || job.Args.N == 1 {
			return err
		}
		if tx, err = beginCompletion(ctx, client, job); err != nil {
			return err
		}
		return tx.Commit(ctx)
	})
	forgetful := enqueue(t, client, 1, &jobq.EnqueueOptions{MaxAttempts: 1})
	careful := enqueue(t, client, 2, &jobq.EnqueueOptions{MaxAttempts: 1})
	require.Contains(t, awaitState(t, client, forgetful, jobq.StateFailed).LastError, "without committing")
	require.Zero(t, awaitState(t, client, careful, jobq.StateCompleted).Attempts)
	require.NoError(t, w.drain())
	require.Zero(t, w.Counts().Lost)
}

// A lease that is taken away after a rollback is lost, and one that the worker
// gave up in vain is not: what counts is what is stored.
func TestCompleteTxLost(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	keepLeases(t, client, jobq.HeartbeatTicker)
	running, causes := make(chan *running, 1), make(chan error, 1)
	w := start(t, client, nil, func(ctx context.Context, job *worker.Job[task]) error {
		w := <-running
		running <- w // for the next job
		tx, err := beginCompletion(ctx, client, job)
		if err != nil {
			return err
		}
		if job.Args.N == 2 { // the commit comes when the worker has given the lease up
			if err := awaitOr(ctx, func() bool { worker.LetExpire(w.Worker); return false }); !errors.Is(err, worker.ErrLeaseLost) {
				return err
			}
			return tx.Commit(context.Background())
		}
		if err := tx.Rollback(ctx); err != nil {
			return err
		}
		if err := pgtest.UpdateRunning(ctx, client.Pool(), pgtest.Columns{"lease_token": pgtest.NextToken, "lease_expires_at": "now() + interval '1 hour'"}, "id = $1", job.ID()); err != nil {
			return err
		}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return nil
	})
	running <- w
	enqueue(t, client, 1, nil)
	require.ErrorIs(t, receive(t, causes, "the loss"), worker.ErrLeaseLost)
	late := enqueue(t, client, 2, nil)
	require.Zero(t, awaitState(t, client, late, jobq.StateCompleted).Crashes)
	require.NoError(t, w.drain())
	require.EqualValues(t, 1, w.Counts().Completed)
}

// A completion that would not be part of a transaction is refused, and changes nothing: of nil, of a pool, and of a
// connection on which nobody has begun one. On a connection with a transaction it is taken.
func TestCompleteTxNeedsTransaction(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	refusals := make(chan error, 4)
	w := start(t, client, nil, func(ctx context.Context, job *worker.Job[task]) error {
		conn, err := client.Pool().Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		for _, refused := range []jobq.DBTX{nil, client.Pool(), conn, conn.Conn()} {
			refusals <- job.CompleteTx(ctx, refused)
		}
		if _, err := conn.Exec(ctx, "begin"); err != nil {
			return err
		}
		if err := job.CompleteTx(ctx, conn); err != nil {
			return err
		}
		_, err = conn.Exec(ctx, "commit")
		return err
	})
	id := enqueue(t, client, 1, &jobq.EnqueueOptions{MaxAttempts: 1})
	awaitState(t, client, id, jobq.StateCompleted)
	for range cap(refusals) {
		require.ErrorIs(t, receive(t, refusals, "a refusal"), jobq.ErrInvalid)
	}
	require.NoError(t, w.drain())
}
