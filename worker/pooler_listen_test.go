package worker_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/janitor"
	"github.com/jobq-dev/jobq/worker"
)

// Behind PgBouncer in transaction mode, with a direct connection for notifications,
// programs do all that TestPoolerMatrix wants of them without ever polling: each job
// starts because a notification of it has arrived.
func TestPoolerListen(t *testing.T) {
	t.Parallel()
	pooler := pgtest.StartPgBouncer(t, pgtest.Server(t).URL("postgres"), map[string]string{"pool_mode": "transaction", "default_pool_size": "5"})
	for _, janitorMode := range []janitor.Mode{janitor.ModeLeader, janitor.ModeAny} {
		t.Run(string(janitorMode), func(t *testing.T) {
			t.Parallel()
			direct := pgtest.URL(t)
			cell := &poolerCell{T: t, direct: pgtest.Connect(t, direct), url: pooler.URL(t, direct), shared: 5, listen: parse(t, direct)}
			cell.run(execModes[0], janitorMode)
		})
	}
}

func parse(t *testing.T, url string) *pgxpool.Config {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	return config
}

// pooledClient is a client of a new database behind PgBouncer in transaction mode, with
// a direct connection for notifications.
func pooledClient(t *testing.T) (client *jobq.Client, listen *pgxpool.Config) {
	t.Helper()
	direct := pgtest.URL(t)
	return pooledClientWith(t, direct, parse(t, direct))
}

func pooledClientWith(t *testing.T, direct string, listen *pgxpool.Config) (*jobq.Client, *pgxpool.Config) {
	t.Helper()
	pooled := pgtest.StartPgBouncer(t, direct, map[string]string{"pool_mode": "transaction", "default_pool_size": "3"}).URL(t, direct)
	client, err := jobq.NewClient(pgtest.Connect(t, pooled), &jobq.Config{Listen: listen})
	require.NoError(t, err)
	return client, listen
}

// A worker that listens on a direct connection is told of new jobs and of cancelled ones, says
// that it is notified, and complains of nothing.
func TestListensOnADirectConnection(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client, _ := pooledClient(t)
	var said warnings
	w, err := worker.New(client, &worker.Config{NoJanitor: true, PollInterval: time.Hour, Logger: slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	require.NoError(t, err)
	started, ended := make(chan int64, 10), make(chan error, 10)
	require.NoError(t, worker.Handle(w, func(ctx context.Context, job *worker.Job[task]) error {
		started <- job.ID()
		if job.Args.N == 0 {
			return nil
		}
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return ctx.Err()
	}, nil))
	r := run(t, w)
	require.Eventually(t, func() bool { return w.Health().Notified }, patience, 5*time.Millisecond, "the worker does not listen")
	for range 3 { // it is idle before each of them
		id := enqueue(t, client, 0, nil)
		require.Equal(t, id, receive(t, started, "the job"))
		awaitState(t, client, id, jobq.StateCompleted)
	}
	id := enqueue(t, client, 1, nil)
	require.Equal(t, id, receive(t, started, "the job that is to be cancelled"))
	_, err = client.Cancel(ctx, id)
	require.NoError(t, err)
	require.ErrorIs(t, receive(t, ended, "word of its cancellation"), worker.ErrCancelled)
	require.NoError(t, r.drain())
	require.Empty(t, said.lines())
}

// A worker whose direct connection leads to another database does not start: it would
// never hear of a job. One that only polls does not look.
func TestListensElsewhere(t *testing.T) {
	t.Parallel()
	client, _ := pooledClientWith(t, pgtest.URL(t), parse(t, pgtest.URL(t)))
	require.ErrorContains(t, client.Check(context.Background()), "does not lead to the pool's database")
	handler := func(context.Context, *worker.Job[task]) error { return nil }
	w, err := worker.New(client, &worker.Config{NoJanitor: true, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, worker.Handle(w, handler, nil))
	ended := make(chan error, 1)
	inBackground(t)(func(ctx context.Context) { ended <- w.Run(ctx) })
	require.ErrorContains(t, receive(t, ended, "the end of the worker"), "does not lead to the pool's database")

	polling := start(t, client, &worker.Config{PollInterval: 10 * time.Millisecond, PollOnly: true}, handler)
	awaitState(t, client, enqueue(t, client, 0, nil), jobq.StateCompleted)
	require.NoError(t, polling.drain())
}

// While the host for notifications is away, a worker starts and polls, and says that it is
// not notified. When the host comes back, the worker is woken without a poll.
func TestListenHostIsAway(t *testing.T) {
	t.Parallel()
	direct := pgtest.URL(t)
	listen := parse(t, direct)
	var isAway atomic.Bool
	isAway.Store(true)
	listen.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
		if isAway.Load() {
			return errors.New("no route to the host")
		}
		return nil
	}
	client, _ := pooledClientWith(t, direct, listen)
	require.NoError(t, client.Check(context.Background()))
	handler := func(context.Context, *worker.Job[task]) error { return nil }
	polling := start(t, client, &worker.Config{PollInterval: 10 * time.Millisecond}, handler)
	awaitState(t, client, enqueue(t, client, 0, nil), jobq.StateCompleted)
	require.False(t, polling.Health().Notified)
	require.NoError(t, polling.drain())

	w := start(t, client, &worker.Config{PollInterval: time.Hour}, handler)
	isAway.Store(false)
	require.Eventually(t, func() bool { return w.Health().Notified }, patience, 5*time.Millisecond, "the worker does not listen")
	for range 2 {
		awaitState(t, client, enqueue(t, client, 0, nil), jobq.StateCompleted)
	}
}
