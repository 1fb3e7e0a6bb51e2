package jobq_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
)

// txCalls are all calls of a client in a caller's transaction, on a job.
func txCalls(client *jobq.Client, id int64) map[string]func(ctx context.Context, tx jobq.DBTX) error {
	var graph jobq.Graph
	graph.Add("only", jobtest.Greeting{}, nil)
	return map[string]func(ctx context.Context, tx jobq.DBTX) error{
		"EnqueueTx": func(ctx context.Context, tx jobq.DBTX) error {
			return jobtest.ErrorOf(client.EnqueueTx(ctx, tx, jobtest.Greeting{}, nil))
		},
		"EnqueueManyTx": func(ctx context.Context, tx jobq.DBTX) error {
			return jobtest.ErrorOf(client.EnqueueManyTx(ctx, tx, []jobq.EnqueueParams{{Args: jobtest.Greeting{}}}))
		},
		"EnqueueGraphTx": func(ctx context.Context, tx jobq.DBTX) error {
			return jobtest.ErrorOf(client.EnqueueGraphTx(ctx, tx, &graph))
		},
		"EmitTx": func(ctx context.Context, tx jobq.DBTX) error {
			return jobtest.ErrorOf(client.EmitTx(ctx, tx, "paid", 1))
		},
		"GetTx": func(ctx context.Context, tx jobq.DBTX) error { return jobtest.ErrorOf(client.GetTx(ctx, tx, id)) },
		"GetByUniqueKeyTx": func(ctx context.Context, tx jobq.DBTX) error {
			return jobtest.ErrorOf(client.GetByUniqueKeyTx(ctx, tx, "greeting", "u"))
		},
		"CancelTx": func(ctx context.Context, tx jobq.DBTX) error { return jobtest.ErrorOf(client.CancelTx(ctx, tx, id)) },
		"RequeueTx": func(ctx context.Context, tx jobq.DBTX) error {
			return jobtest.ErrorOf(client.RequeueTx(ctx, tx, id))
		},
		"CancelByUniqueKeyTx": func(ctx context.Context, tx jobq.DBTX) error {
			_, err := client.CancelByUniqueKeyTx(ctx, tx, "greeting", "u")
			if errors.Is(err, jobq.ErrNotFound) { // another call of this table has cancelled the job
				return nil
			}
			return err
		},
	}
}

// Each call works in a transaction, and on a connection with a transaction or without one. Nil and a pool are refused.
func TestDBTX(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	conn, err := client.Pool().Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	for name := range txCalls(client, 1) {
		id := jobtest.Enqueue(t, client, &jobq.EnqueueOptions{UniqueKey: "u"})
		call := txCalls(client, id)[name]
		tx, err := conn.Begin(ctx)
		require.NoError(t, err)
		require.NoError(t, call(ctx, tx), name)
		require.NoError(t, tx.Rollback(ctx))
		require.Equal(t, jobq.StateAvailable, jobtest.State(t, client, id), name)

		_, err = conn.Exec(ctx, "begin")
		require.NoError(t, err)
		require.NoError(t, call(ctx, conn.Conn()), name)
		_, err = conn.Exec(ctx, "rollback")
		require.NoError(t, err)
		require.Equal(t, jobq.StateAvailable, jobtest.State(t, client, id), name)
		require.NoError(t, call(ctx, conn), name)

		for what, refused := range map[string]jobq.DBTX{
			"the transaction is nil": nil, "a pool is in no transaction": client.Pool(),
		} {
			err := call(ctx, refused)
			require.ErrorIs(t, err, jobq.ErrInvalid, name)
			require.ErrorContains(t, err, what, name)
		}
		for _, none := range []jobq.DBTX{(*pgx.Conn)(nil), (*pgxpool.Conn)(nil), (*pgxpool.Tx)(nil), (*pgxpool.Pool)(nil)} {
			require.ErrorContains(t, call(ctx, none), "the transaction is nil", name)
		}
		_, err = client.Cancel(ctx, id)
		require.NoError(t, err)
	}
}

// What CancelTx and RequeueTx do exists when the transaction commits, and others see nothing before.
func TestCancelAndRequeueTx(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	id := jobtest.Enqueue(t, client, nil)
	for _, step := range []struct {
		call          func(context.Context, jobq.DBTX, int64) (jobq.State, error)
		before, after jobq.State
	}{{client.CancelTx, jobq.StateAvailable, jobq.StateCancelled}, {client.RequeueTx, jobq.StateCancelled, jobq.StateAvailable}} {
		require.NoError(t, pgx.BeginFunc(ctx, client.Pool(), func(tx pgx.Tx) error {
			state, err := step.call(ctx, tx, id)
			require.NoError(t, err)
			require.Equal(t, step.after, state)
			job, err := client.GetTx(ctx, tx, id)
			require.NoError(t, err)
			require.Equal(t, step.after, job.State)
			require.Equal(t, step.before, jobtest.State(t, client, id))
			_, err = step.call(ctx, tx, id+1000)
			require.ErrorIs(t, err, jobq.ErrNotFound)
			return nil // the transaction goes on after ErrNotFound
		}))
		require.Equal(t, step.after, jobtest.State(t, client, id))
	}
}

// A requeue of a job whose unique key another job holds is refused.
func TestRequeueTxOfHeldKey(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	options := &jobq.EnqueueOptions{UniqueKey: "u"}
	id := jobtest.Enqueue(t, client, options)
	_, err := client.Cancel(ctx, id)
	require.NoError(t, err)
	jobtest.Enqueue(t, client, options)
	err = pgx.BeginFunc(ctx, client.Pool(), func(tx pgx.Tx) error { return jobtest.ErrorOf(client.RequeueTx(ctx, tx, id)) })
	require.ErrorIs(t, err, jobq.ErrDuplicate)
}

// A job is found and cancelled by its unique key while it holds that, and not after.
func TestByUniqueKey(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	id := jobtest.Enqueue(t, client, &jobq.EnqueueOptions{UniqueKey: "u"})
	kept := jobtest.Enqueue(t, client, &jobq.EnqueueOptions{UniqueKey: "kept", UniqueFor: 24 * time.Hour})
	job, err := client.GetByUniqueKey(ctx, "greeting", "u")
	require.NoError(t, err)
	require.Equal(t, id, job.ID)
	_, err = client.GetByUniqueKey(ctx, "other", "u")
	require.ErrorIs(t, err, jobq.ErrNotFound)
	for key, of := range map[string]int64{"u": id, "kept": kept} {
		state, err := client.CancelByUniqueKey(ctx, "greeting", key)
		require.NoError(t, err)
		require.Equal(t, jobq.StateCancelled, state)
		require.Equal(t, jobq.StateCancelled, jobtest.State(t, client, of))
	}
	_, err = client.GetByUniqueKey(ctx, "greeting", "u")
	require.ErrorIs(t, err, jobq.ErrNotFound)
	_, err = client.CancelByUniqueKey(ctx, "greeting", "u")
	require.ErrorIs(t, err, jobq.ErrNotFound)
	require.ErrorContains(t, err, `kind "greeting" with unique key "u"`)
	job, err = client.GetByUniqueKey(ctx, "greeting", "kept") // which holds its key for its time
	require.NoError(t, err)
	require.Equal(t, jobq.StateCancelled, job.State)
	_, err = client.Pool().Exec(ctx, "update jobq.unique_key set kept_until = now() where key = 'kept'")
	require.NoError(t, err)
	_, err = client.GetByUniqueKey(ctx, "greeting", "kept") // its time is over, and no janitor has forgotten it yet
	require.ErrorIs(t, err, jobq.ErrNotFound)
	_, err = client.CancelByUniqueKey(ctx, "greeting", "a\x00b")
	require.ErrorIs(t, err, jobq.ErrInvalid)
}
