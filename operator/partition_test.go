package operator_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
)

// A key that is paused is listed with who did it and why, also without a job, the audit has it, and an
// undo takes it back unless that key was paused or resumed since.
func TestPauseKey(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	ana := operator.New(w.Client, "ana")
	paused := func() map[string]string {
		keys, err := w.Monitor.Keys(ctx, monitor.KeyQuery{Queue: "q"})
		require.NoError(t, err)
		paused := make(map[string]string)
		for _, key := range keys.Keys {
			require.Equal(t, key.PausedAt != nil, key.State == monitor.KeyPaused)
			if key.PausedAt != nil {
				paused[key.Key] = key.PausedBy + ": " + key.PauseReason
			}
		}
		return paused
	}
	jobtest.Enqueue(t, w.Client, &jobq.EnqueueOptions{Queue: "q", PartitionKey: "a"})
	first, err := ana.PauseKey(ctx, "q", "a", "rude")
	require.NoError(t, err)
	require.True(t, first.Changed)
	require.True(t, first.HasJobs)
	require.Equal(t, map[string]string{"a": "ana: rude"}, paused())
	again, err := w.Operator.PauseKey(ctx, "q", "a", "other")
	require.NoError(t, err)
	require.Equal(t, operator.KeyActed{HasJobs: true}, again)
	require.Equal(t, map[string]string{"a": "ana: rude"}, paused(), "as it was")
	other, err := w.Operator.PauseKey(ctx, "q", "b", "")
	require.NoError(t, err)
	require.False(t, other.HasJobs)
	_, err = w.Operator.PauseKey(ctx, "r", "a", "")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "ana: rude", "b": "test: "}, paused(), "not of another queue")
	entries, err := w.Monitor.Audit(ctx, 0, 10)
	require.NoError(t, err)
	require.Equal(t, []any{first.AuditID, jobq.ActionKeyPause, "q", "rude", "ana", `{"partition_key": "a"}`},
		[]any{entries[2].ID, entries[2].Action, entries[2].Target, entries[2].Note, entries[2].Actor, string(entries[2].Change)})

	_, err = ana.Undo(ctx, first.AuditID)
	require.NoError(t, err, "others were paused since, and not this one")
	require.Equal(t, map[string]string{"b": "test: "}, paused())
	third, err := ana.PauseKey(ctx, "q", "a", "ruder")
	require.NoError(t, err)
	resumed, err := ana.ResumeKey(ctx, "q", "a")
	require.NoError(t, err)
	require.True(t, resumed.Changed)
	_, err = ana.Undo(ctx, third.AuditID)
	require.ErrorIs(t, err, jobq.ErrConflict)
	require.ErrorContains(t, err, fmt.Sprintf("key a of queue q has been resumed meanwhile, by action %d", resumed.AuditID))
	_, err = ana.Undo(ctx, resumed.AuditID)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "ana: ruder", "b": "test: "}, paused(), "paused again, for the same reason")
	none, err := ana.ResumeKey(ctx, "q", "unknown")
	require.NoError(t, err)
	require.Zero(t, none)

	for _, key := range []string{"", strings.Repeat("k", 256), "a\x00b"} {
		_, err = ana.PauseKey(ctx, "q", key, "")
		require.ErrorIs(t, err, jobq.ErrInvalid, key)
	}
	for _, queue := range []string{"", strings.Repeat("q", 129), "a\x00b"} {
		_, err = ana.PauseKey(ctx, queue, "a", "")
		require.ErrorIs(t, err, jobq.ErrInvalid, queue)
	}
	_, err = ana.PauseKey(ctx, "q", "k", strings.Repeat("n", 1025))
	require.ErrorIs(t, err, jobq.ErrInvalid)
}
