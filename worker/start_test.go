package worker_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/worker"
)

// countdown calls a function when so many statements have been answered.
type countdown struct {
	left atomic.Int64
	end  func()
}

func (c *countdown) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (c *countdown) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {
	if c.left.Add(-1) == 0 {
		c.end()
	}
}

// A worker that is asked to stop at any moment of its start stops, and leaves no
// connection open, whichever way it is asked.
func TestStopsWhileItStarts(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(w *worker.Worker, cancel func()){
		"context":  func(_ *worker.Worker, cancel func()) { cancel() },
		"Drain":    func(w *worker.Worker, _ func()) { w.Drain() },
		"DrainNow": func(w *worker.Worker, _ func()) { w.DrainNow() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stopsWhileItStarts(t, ask)
		})
	}
}

func stopsWhileItStarts(t *testing.T, ask func(w *worker.Worker, cancel func())) {
	t.Helper()
	url := pgtest.URL(t)
	for statements := int64(1); statements <= 5; statements++ {
		ctx, cancel := context.WithCancel(context.Background())
		config, err := pgxpool.ParseConfig(url)
		require.NoError(t, err)
		tracer := &countdown{}
		tracer.left.Store(statements)
		config.ConnConfig.Tracer = tracer
		client, err := jobq.NewClient(pgtest.ConnectConfig(t, config), nil)
		require.NoError(t, err)
		w, err := worker.New(client, &worker.Config{NoJanitor: true, PollOnly: true, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		require.NoError(t, worker.Handle(w, func(context.Context, *worker.Job[task]) error { return nil }, nil))
		tracer.end = func() { ask(w, cancel) }
		require.NoError(t, w.Run(ctx), "after %d statements", statements)
		cancel()
		require.False(t, worker.PoolIsOpen(w), "after %d statements", statements)
	}
}

// A worker that waits for a database which is not there ends when it is told to.
func TestDrainsWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig("postgres://nobody@127.0.0.1:1/none?sslmode=disable")
	require.NoError(t, err)
	client, err := jobq.NewClient(pgtest.ConnectConfig(t, config), nil)
	require.NoError(t, err)
	w, err := worker.New(client, &worker.Config{NoJanitor: true, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, worker.Handle(w, func(context.Context, *worker.Job[task]) error { return nil }, nil))
	w.Drain()
	ended := make(chan error, 1)
	go func() { ended <- w.Run(context.Background()) }()
	require.NoError(t, receive(t, ended, "the end"))
}
