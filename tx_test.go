package jobq_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
)

// A duplicate in a caller's transaction is an answer and no error: the
// transaction goes on, and what it enqueued besides exists when it commits.
func TestDuplicateInTx(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	held := jobtest.Enqueue(t, client, &jobq.EnqueueOptions{UniqueKey: "u"})
	require.NoError(t, pgx.BeginFunc(ctx, client.Pool(), func(tx pgx.Tx) error {
		enqueued, err := client.EnqueueTx(ctx, tx, jobtest.Greeting{}, &jobq.EnqueueOptions{UniqueKey: "u"})
		require.NoError(t, err)
		require.Equal(t, jobq.Enqueued{ID: held, Duplicate: true}, enqueued)
		many, err := client.EnqueueManyTx(ctx, tx, []jobq.EnqueueParams{jobtest.Raw("k", `{}`, nil), jobtest.Raw("greeting", `{}`, &jobq.EnqueueOptions{UniqueKey: "u"})})
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
			client := jobtest.Client(t)
			options := &jobq.EnqueueOptions{UniqueKey: "u"}
			tx, err := client.Pool().Begin(ctx)
			require.NoError(t, err)
			first, err := client.EnqueueTx(ctx, tx, jobtest.Greeting{Name: "first"}, options)
			require.NoError(t, err)
			second := make(chan jobq.Enqueued, 1)
			go func() {
				enqueued, err := client.Enqueue(ctx, jobtest.Greeting{Name: "second"}, options)
				if err != nil {
					t.Error(err)
				}
				second <- enqueued
			}()
			require.Eventually(t, func() bool {
				var waiting int
				require.NoError(t, client.Pool().QueryRow(ctx, "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'").Scan(&waiting))
				return waiting > 0
			}, jobtest.Eventually, jobtest.Tick)
			if commits {
				require.NoError(t, tx.Commit(ctx))
				require.Equal(t, jobq.Enqueued{ID: first.ID, Duplicate: true}, <-second)
				return
			}
			require.NoError(t, tx.Rollback(ctx))
			enqueued := <-second
			require.False(t, enqueued.Duplicate)
			require.NotEqual(t, first.ID, enqueued.ID)
			require.Equal(t, jobq.StateAvailable, jobtest.State(t, client, enqueued.ID))
		})
	}
}

// In a transaction whose snapshot is older than the key's owner, an enqueue
// ends in a serialization error, which the caller knows how to retry, and
// never in a loop.
func TestKeyInRepeatableRead(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), jobtest.Eventually)
	defer cancel()
	client := jobtest.Client(t)
	options := &jobq.EnqueueOptions{UniqueKey: "u"}
	held := jobtest.Enqueue(t, client, options)
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		tx, err := client.Pool().BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
		require.NoError(t, err)
		enqueued, err := client.EnqueueTx(ctx, tx, jobtest.Greeting{}, options)
		require.NoError(t, err)
		require.Equal(t, held, enqueued.ID)
		require.NoError(t, jobtest.Delete(client, held))
		held = jobtest.Enqueue(t, client, options)
		_, err = client.EnqueueTx(ctx, tx, jobtest.Greeting{}, options)
		require.ErrorContains(t, err, "could not serialize access")
		require.NoError(t, tx.Rollback(ctx))
	}
}

// A read-only transaction, a closed one and a context that has ended are
// reported as what they are.
func TestEnqueueTxErrors(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	tx, err := client.Pool().BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
	require.NoError(t, err)
	_, err = client.EnqueueTx(ctx, tx, jobtest.Greeting{}, nil)
	require.ErrorContains(t, err, "read-only transaction")
	require.NoError(t, tx.Rollback(ctx))
	_, err = client.EnqueueTx(ctx, tx, jobtest.Greeting{}, nil)
	require.ErrorIs(t, err, pgx.ErrTxClosed)
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	_, err = client.Enqueue(canceled, jobtest.Greeting{}, nil)
	require.ErrorIs(t, err, context.Canceled)
	jobtest.RequireNothingStored(t, client)
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
		"enqueue": func() error { return jobtest.ErrorOf(client.Enqueue(ctx, jobtest.Greeting{}, nil)) },
		"enqueue many": func() error {
			return jobtest.ErrorOf(client.EnqueueMany(ctx, []jobq.EnqueueParams{jobtest.Raw("k", `{}`, nil)}))
		},
		"get":      func() error { return jobtest.ErrorOf(client.Get(ctx, 1)) },
		"list":     func() error { return jobtest.ErrorOf(client.List(ctx, jobq.Filter{})) },
		"attempts": func() error { return jobtest.ErrorOf(monitor.New(client).Attempts(ctx, 1)) },
		"cancel":   func() error { return jobtest.ErrorOf(client.Cancel(ctx, 1)) },
		"requeue":  func() error { return jobtest.Requeue(client, 1) },
		"delete":   func() error { return jobtest.Delete(client, 1) },
		"queues":   func() error { return jobtest.ErrorOf(monitor.New(client).Queues(ctx)) },
		"pause":    func() error { return jobtest.ErrorOf(operator.New(client, "test").PauseQueue(ctx, "q", "")) },
		"resume":   func() error { return jobtest.ErrorOf(operator.New(client, "test").ResumeQueue(ctx, "q")) },
		"lease":    func() error { return operator.New(client, "test").SetQueue(ctx, "q", operator.QueueChange{}) },
		"workers":  func() error { return jobtest.ErrorOf(monitor.New(client).Workers(ctx)) },
		"stats":    func() error { return jobtest.ErrorOf(monitor.New(client).Stats(ctx, time.Hour)) },
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
		enqueued, err := client.Enqueue(ctx, jobtest.Greeting{}, &jobq.EnqueueOptions{UniqueKey: "u"})
		require.NoError(t, err)
		require.False(t, enqueued.Duplicate, schema)
		_, err = operator.New(client, "test").PauseQueue(ctx, "default", "")
		require.NoError(t, err)
		for range i {
			jobtest.Enqueue(t, client, nil)
		}
		queues, err := monitor.New(client).Queues(ctx)
		require.NoError(t, err)
		require.EqualValues(t, i+1, queues[0].Available)
	}
}
