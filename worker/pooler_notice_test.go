package worker_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

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
			w, err := worker.New(client, &worker.Config{PollInterval: 50 * time.Millisecond, Logger: log})
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
