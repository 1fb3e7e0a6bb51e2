package worker

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
)

// NewReconciler returns what a worker does about dead workers of its host when
// it starts; the function says how many jobs it has recovered.
func NewReconciler(t *testing.T, client *jobq.Client) func() int {
	t.Helper()
	w, err := New(client, &Config{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	w.queries = w.schema.Queries(client.Pool())
	return func() int {
		dead, err := w.deadOnHost(context.Background())
		require.NoError(t, err)
		total, err := w.recover(context.Background(), dead)
		require.NoError(t, err)
		return total
	}
}

// SpreadWakeUps sets the longest time that a worker waits before it looks after
// a word of new jobs.
func SpreadWakeUps(w *Worker, longest time.Duration) {
	w.herd.spread = longest
}

// ShortenAnnouncements sets how long an announcement holds that the worker waits
// for jobs, in whole seconds.
func ShortenAnnouncements(w *Worker, holds time.Duration) {
	w.wait.holds = holds
}

// Draining says whether a worker has begun to drain.
func Draining(w *Worker) bool { return w.draining.Load() }
