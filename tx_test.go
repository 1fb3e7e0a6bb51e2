package jobq_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

const (
	eventually = 5 * time.Minute // ends a test that hangs: no promise is about it
	tick       = 5 * time.Millisecond
)

// A duplicate in a caller's transaction is an answer and no error: the
// transaction goes on, and what it enqueued besides exists when it commits.
func TestDuplicateInTx(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	held := enqueue(t, client, &jobq.EnqueueOptions{UniqueKey: "u"})
	require.NoError(t, pgx.BeginFunc(ctx, client.Pool(), func(tx pgx.Tx) error {
		enqueued, err := client.EnqueueTx(ctx, tx, greeting{}, &jobq.EnqueueOptions{UniqueKey: "u"})
		require.NoError(t, err)
		require.Equal(t, jobq.Enqueued{ID: held, Duplicate: true}, enqueued)
		many, err := client.EnqueueManyTx(ctx, tx, []jobq.EnqueueParams{raw("k", `{}`, nil), raw("greeting", `{}`, &jobq.EnqueueOptions{UniqueKey: "u"})})
		require.NoError(t, err)
		require.Equal(t, held, many[1].ID)
		return nil
	}))
	page, err := client.List(ctx, jobq.Filter{})
	require.NoError(t, err)
	require.Len(t, page.Jobs, 2)
}

// Who enqueues with a key that another transaction has just taken waits for
// it: told its id after a commit, and given the key after a rollback.
func TestKeyOfOpenTransaction(t *testing.T) {
	t.Parallel()
	for name, commits := range map[string]bool{"commit": true, "rollback": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			client := newClient(t)
			options := &jobq.EnqueueOptions{UniqueKey: "u"}
			tx, err := client.Pool().Begin(ctx)
			require.NoError(t, err)
			first, err := client.EnqueueTx(ctx, tx, greeting{"first"}, options)
			require.NoError(t, err)
			second := make(chan jobq.Enqueued, 1)
			go func() {
				enqueued, err := client.Enqueue(ctx, greeting{"second"}, options)
				if err != nil {
					t.Error(err)
				}
				second <- enqueued
			}()
			require.Eventually(t, func() bool {
				var waiting int
				require.NoError(t, client.Pool().QueryRow(ctx, "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'").Scan(&waiting))
				return waiting > 0
			}, eventually, tick)
			if commits {
				require.NoError(t, tx.Commit(ctx))
				require.Equal(t, jobq.Enqueued{ID: first.ID, Duplicate: true}, <-second)
				return
			}
			require.NoError(t, tx.Rollback(ctx))
			enqueued := <-second
			require.False(t, enqueued.Duplicate)
			require.NotEqual(t, first.ID, enqueued.ID)
			require.Equal(t, jobq.Available, state(t, client, enqueued.ID))
		})
	}
}

// In a transaction whose snapshot is older than the key's owner, an enqueue
// ends in a serialization error, which the caller knows how to retry, and
// never in a loop.
func TestKeyInRepeatableRead(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), eventually)
	defer cancel()
	client := newClient(t)
	options := &jobq.EnqueueOptions{UniqueKey: "u"}
	held := enqueue(t, client, options)
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		tx, err := client.Pool().BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
		require.NoError(t, err)
		enqueued, err := client.EnqueueTx(ctx, tx, greeting{}, options)
		require.NoError(t, err)
		require.Equal(t, held, enqueued.ID)
		require.NoError(t, client.Delete(ctx, held))
		held = enqueue(t, client, options)
		_, err = client.EnqueueTx(ctx, tx, greeting{}, options)
		require.ErrorContains(t, err, "could not serialize access")
		require.NoError(t, tx.Rollback(ctx))
	}
}

// A read-only transaction, a closed one and a context that has ended are
// reported as what they are.
func TestEnqueueTxErrors(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	tx, err := client.Pool().BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
	require.NoError(t, err)
	_, err = client.EnqueueTx(ctx, tx, greeting{}, nil)
	require.ErrorContains(t, err, "read-only transaction")
	require.NoError(t, tx.Rollback(ctx))
	_, err = client.EnqueueTx(ctx, tx, greeting{}, nil)
	require.ErrorIs(t, err, pgx.ErrTxClosed)
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	_, err = client.Enqueue(canceled, greeting{}, nil)
	require.ErrorIs(t, err, context.Canceled)
	requireNothingStored(t, client)
}

// Whatever is called on a database that has no tables, the answer names the
// command that makes them; also when jobq lives in another schema, and a
// schema of ours is there besides.
func TestNotMigrated(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := pgtest.EmptyURL(t)
	require.NoError(t, pgtest.Migrate(ctx, url, "jobq"))
	client, err := jobq.NewClient(pgtest.Connect(t, url), &jobq.Config{Schema: "My-Schema"})
	require.NoError(t, err)
	require.Equal(t, "My-Schema", client.Schema())
	for name, call := range map[string]func() error{
		"check":   func() error { return client.Check(ctx) },
		"enqueue": func() error { return second(client.Enqueue(ctx, greeting{}, nil)) },
		"enqueue many": func() error {
			return second(client.EnqueueMany(ctx, []jobq.EnqueueParams{raw("k", `{}`, nil)}))
		},
		"get":      func() error { return second(client.Get(ctx, 1)) },
		"list":     func() error { return second(client.List(ctx, jobq.Filter{})) },
		"attempts": func() error { return second(client.Attempts(ctx, 1)) },
		"cancel":   func() error { return second(client.Cancel(ctx, 1)) },
		"requeue":  func() error { return client.Requeue(ctx, 1) },
		"delete":   func() error { return client.Delete(ctx, 1) },
		"queues":   func() error { return second(client.Queues(ctx)) },
		"pause":    func() error { return second(client.PauseQueue(ctx, "q", "", "")) },
		"resume":   func() error { return second(client.ResumeQueue(ctx, "q")) },
		"lease":    func() error { return client.SetQueue(ctx, "q", jobq.QueueChange{}) },
		"workers":  func() error { return second(client.Workers(ctx)) },
		"stats":    func() error { return second(client.Stats(ctx, time.Hour)) },
	} {
		err := call()
		require.ErrorIs(t, err, jobq.ErrNotMigrated, name)
		require.ErrorContains(t, err, "run `jobq migrate up --schema My-Schema`", name)
	}
}

// Jobs of two schemas of one database do not meet, not even by their keys.
func TestSchemasAreApart(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := pgtest.EmptyURL(t)
	pool := pgtest.Connect(t, url)
	for i, schema := range []string{"jobq", "My-Schema", "MY-schema"} {
		require.NoError(t, pgtest.Migrate(ctx, url, schema))
		client, err := jobq.NewClient(pool, &jobq.Config{Schema: schema})
		require.NoError(t, err)
		page, err := client.List(ctx, jobq.Filter{})
		require.NoError(t, err)
		require.Empty(t, page.Jobs)
		enqueued, err := client.Enqueue(ctx, greeting{}, &jobq.EnqueueOptions{UniqueKey: "u"})
		require.NoError(t, err)
		require.False(t, enqueued.Duplicate, schema)
		_, err = client.PauseQueue(ctx, "default", "", "")
		require.NoError(t, err)
		for range i {
			enqueue(t, client, nil)
		}
		queues, err := client.Queues(ctx)
		require.NoError(t, err)
		require.EqualValues(t, i+1, queues[0].Available)
	}
}
