package worker

import (
	"context"
	"log/slog"
	"testing"

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
