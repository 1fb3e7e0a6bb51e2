package worker_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/janitor"
	"github.com/jobq-dev/jobq/worker"
)

// warnings keeps what is logged at level WARN or above.
type warnings struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (w *warnings) Write(text []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(text)
}

func (w *warnings) lines() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.FieldsFunc(w.text.String(), func(r rune) bool { return r == '\n' })
}

// In transaction mode a worker and a janitor say once each, at their start, what they do
// without; in session mode nothing is said, and notifications arrive. That is so whether
// or not PgBouncer keeps prepared statements, as it can since 1.21.
func TestPoolerIsNoticed(t *testing.T) {
	t.Parallel()
	cells := map[string]map[string]string{
		"session":     {"pool_mode": "session"},
		"transaction": {"pool_mode": "transaction"},
	}
	if pgtest.PgBouncerKeepsStatements(t) {
		cells["transaction with prepared statements"] = map[string]string{"pool_mode": "transaction", "max_prepared_statements": "200"}
		cells["transaction without prepared statements"] = map[string]string{"pool_mode": "transaction", "max_prepared_statements": "0"}
	}
	for name, settings := range cells {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			direct := pgtest.URL(t)
			pooled := pgtest.StartPgBouncer(t, direct, settings).URL(t, direct)
			client, err := jobq.NewClient(pgtest.Connect(t, pooled), nil)
			require.NoError(t, err)
			var said warnings
			log := slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn}))
			w, err := worker.New(client, &worker.Config{NoJanitor: true, PollInterval: 50 * time.Millisecond, Logger: log})
			require.NoError(t, err)
			require.NoError(t, worker.Handle(w, func(context.Context, *worker.Job[task]) error { return nil }, nil))
			j, err := janitor.New(client, &janitor.Config{ScanInterval: 50 * time.Millisecond, Logger: log})
			require.NoError(t, err)
			ctx, stop := context.WithCancel(t.Context())
			var programs sync.WaitGroup
			defer programs.Wait()
			defer stop()
			programs.Go(func() { _ = w.Run(ctx) })
			programs.Go(func() { _ = j.Run(ctx) })
			shared := settings["pool_mode"] == "transaction"
			for n := range 3 { // the janitor works for a while, too
				awaitState(t, client, enqueue(t, client, n, &jobq.EnqueueOptions{RunAt: time.Now().Add(100 * time.Millisecond)}), jobq.StateCompleted)
			}
			require.Eventually(t, func() bool { return w.Health().Notified == !shared }, hung, 20*time.Millisecond)
			require.Nil(t, connectionsOf(t, client, w), "how many connections the pooler has for it is not known")
			stop()
			programs.Wait()
			var notices []string
			for _, part := range []string{"sessions are shared by a pooler, as PgBouncer does", "the janitor works in mode any"} {
				for _, line := range said.lines() {
					if strings.Contains(line, part) {
						notices = append(notices, part)
					}
				}
			}
			if shared {
				require.Len(t, notices, 2, "each once: %v", said.lines())
			} else {
				require.Empty(t, notices)
			}
		})
	}
}

// connectionsOf is how many connections the worker says that it may open.
func connectionsOf(t *testing.T, client *jobq.Client, w *worker.Worker) (connections *int) {
	t.Helper()
	// Without a prepared statement: a pooler may give the next statement to another session.
	require.NoError(t, client.Pool().QueryRow(context.Background(), "select connections_max from jobq.worker where id = $1", pgx.QueryExecModeExec, w.ID()).Scan(&connections))
	return connections
}

// A worker tells how many connections to the server it may open: those of its own pool, of the
// client's, and the one that listens.
func TestConnectionsAreTold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config worker.Config
		want   int
	}{
		"usual":      {worker.Config{}, 12 + 1},
		"two queues": {worker.Config{Queues: map[string]worker.QueueConfig{"default": {Slots: 1}, "other": {Slots: 1}}}, 14 + 1},
		"poll only":  {worker.Config{PollOnly: true}, 12},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := newClient(t)
			w := start(t, client, &c.config, func(context.Context, *worker.Job[task]) error { return nil })
			awaitState(t, client, enqueue(t, client, 1, nil), jobq.StateCompleted) // its row is there before it claims
			connections := connectionsOf(t, client, w.Worker)
			require.NotNil(t, connections)
			require.Equal(t, c.want+int(client.Pool().Config().MaxConns), *connections)
		})
	}
}
