package operator_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

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

// The weight of a key is listed, also without a job, the audit has it with what it was before, and an undo takes it back unless the
// key has been given another one since.
func TestSetKeyWeight(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	ana := operator.New(w.Client, "ana")
	weights := func() map[string]int {
		keys, err := w.Monitor.Keys(ctx, monitor.KeyQuery{Queue: "q"})
		require.NoError(t, err)
		weights := make(map[string]int)
		for _, key := range keys.Keys {
			weights[key.Key] = key.Weight
		}
		return weights
	}
	jobtest.Enqueue(t, w.Client, &jobq.EnqueueOptions{Queue: "q", PartitionKey: "a"})
	jobtest.Enqueue(t, w.Client, &jobq.EnqueueOptions{Queue: "q", PartitionKey: "plain"})
	first, err := ana.SetKeyWeight(ctx, "q", "a", 3)
	require.NoError(t, err)
	require.True(t, first.Changed && first.HasJobs)
	again, err := ana.SetKeyWeight(ctx, "q", "a", 3)
	require.NoError(t, err)
	require.Equal(t, operator.KeyActed{HasJobs: true}, again)
	other, err := ana.SetKeyWeight(ctx, "q", "b", 100)
	require.NoError(t, err)
	require.True(t, other.Changed)
	require.False(t, other.HasJobs, "it may be misspelt")
	require.Equal(t, map[string]int{"a": 3, "b": 100, "plain": 1}, weights())
	few, err := w.Monitor.KeyWeights(ctx, "q", []string{"a", "plain", "none"})
	require.NoError(t, err)
	require.Equal(t, map[string]int{"a": 3}, few)
	entries, err := w.Monitor.Audit(ctx, 0, 10)
	require.NoError(t, err)
	require.Equal(t, jobq.ActionKeyWeight, entries[0].Action)
	require.JSONEq(t, `{"partition_key": "b", "weight": 100}`, string(entries[0].Change))

	second, err := ana.SetKeyWeight(ctx, "q", "a", 7)
	require.NoError(t, err)
	_, err = ana.Undo(ctx, first.AuditID)
	require.ErrorIs(t, err, jobq.ErrConflict)
	require.ErrorContains(t, err, fmt.Sprintf("key a of queue q has been given another weight meanwhile, by action %d", second.AuditID))
	_, err = ana.Undo(ctx, second.AuditID)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"a": 3, "b": 100, "plain": 1}, weights())
	_, err = ana.Undo(ctx, other.AuditID)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"a": 3, "plain": 1}, weights(), "it had none before")
	gone, err := ana.SetKeyWeight(ctx, "q", "a", 1)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"a": 1, "plain": 1}, weights())
	_, err = ana.Undo(ctx, gone.AuditID)
	require.NoError(t, err)
	require.Equal(t, 3, weights()["a"])

	for _, weight := range []int{0, -1, 101, 1 << 40} {
		_, err = ana.SetKeyWeight(ctx, "q", "a", weight)
		require.ErrorIs(t, err, jobq.ErrInvalid)
		require.ErrorContains(t, err, fmt.Sprintf("weight must be 1 to 100, not %d", weight))
	}
	for _, key := range []string{"", strings.Repeat("k", 256), "a\x00b"} {
		_, err = ana.SetKeyWeight(ctx, "q", key, 2)
		require.ErrorIs(t, err, jobq.ErrInvalid, key)
	}
	_, err = w.Client.Pool().Exec(ctx, "select * from jobq.act_key_weight('me', 'q', 'a', null, null)")
	require.ErrorContains(t, err, "weight must be 1 to 100, not null")
}

// Weights that several people give a key at once are all recorded, each with what it replaced.
func TestWeightsOfAKeyAtOnce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	var group errgroup.Group
	for n := range 6 {
		group.Go(func() error {
			for i := range 20 {
				if _, err := operator.New(w.Client, "ana").SetKeyWeight(ctx, "q", "a", 1+(n+i)%3); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	var broken int
	require.NoError(t, w.Client.Pool().QueryRow(ctx, `
		select count(*) from jobq.audit a where (a.change -> 'weight') = (a.replaced -> 'weight') or a.replaced is null`).Scan(&broken))
	require.Zero(t, broken)
}
