package operator_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
)

// A kind that is paused is listed with who did it and why, the audit has it, and an
// undo takes it back unless the kind was paused or resumed since.
func TestPauseKind(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	ana := operator.New(w.Client, "ana")
	paused := func() map[string]string {
		kinds, err := w.Monitor.Kinds(ctx)
		require.NoError(t, err)
		paused := make(map[string]string)
		for _, kind := range kinds {
			if kind.PausedAt != nil {
				paused[kind.Name] = kind.PausedBy + ": " + kind.PauseReason
			}
		}
		return paused
	}
	jobtest.Enqueue(t, w.Client, &jobq.EnqueueOptions{Queue: "q"})
	first, err := ana.PauseKind(ctx, "greeting", "rude")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"greeting": "ana: rude"}, paused())
	require.Empty(t, w.Claim("q", 1))
	again, err := w.Operator.PauseKind(ctx, "greeting", "other")
	require.NoError(t, err)
	require.Zero(t, again)
	require.Equal(t, map[string]string{"greeting": "ana: rude"}, paused(), "as it was")
	_, err = w.Operator.PauseKind(ctx, "other", "")
	require.NoError(t, err)
	entries, err := w.Monitor.Audit(ctx, 0, 10)
	require.NoError(t, err)
	require.Equal(t, []any{first, jobq.ActionKindPause, "greeting", "rude", "ana"},
		[]any{entries[1].ID, entries[1].Action, entries[1].Target, entries[1].Note, entries[1].Actor})

	second, err := ana.ResumeKind(ctx, "greeting")
	require.NoError(t, err)
	require.Len(t, paused(), 1)
	_, err = ana.Undo(ctx, first)
	require.ErrorIs(t, err, jobq.ErrConflict)
	require.ErrorContains(t, err, "kind greeting has been resumed meanwhile, by action 3")
	_, err = ana.Undo(ctx, second)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"greeting": "ana: rude", "other": "test: "}, paused(), "paused again, for the same reason")
	none, err := ana.ResumeKind(ctx, "unknown")
	require.NoError(t, err)
	require.Zero(t, none)
	_, err = ana.ResumeKind(ctx, "greeting")
	require.NoError(t, err)
	require.Len(t, w.Claim("q", 1), 1)

	for _, kind := range []string{"", strings.Repeat("k", 129), "a\x00b"} {
		_, err = ana.PauseKind(ctx, kind, "")
		require.ErrorIs(t, err, jobq.ErrInvalid, kind)
	}
	_, err = ana.PauseKind(ctx, "k", strings.Repeat("n", 1025))
	require.ErrorIs(t, err, jobq.ErrInvalid)
}

// What the list of kinds knows: who has them, and what became of their jobs.
func TestKinds(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	w.Fail("q", "Failing", "no luck")
	_, err := w.Client.Pool().Exec(ctx, `insert into jobq.worker (id, pid, hostname, version, queues, kinds, draining, heartbeat_at) values
		('a', 1, 'h', 'v', '{}', '{Failing,Idle}', false, now()), ('b', 1, 'h', 'v', '{}', '{Idle}', false, now()),
		('draining', 1, 'h', 'v', '{}', '{Idle}', true, now()), ('silent', 1, 'h', 'v', '{}', '{Idle}', false, now() - interval '5 minutes')`)
	require.NoError(t, err)
	_, err = w.Operator.PauseKind(ctx, "New", "")
	require.NoError(t, err)
	kinds, err := w.Monitor.Kinds(ctx)
	require.NoError(t, err)
	require.Len(t, kinds, 3)
	require.Equal(t, monitor.Kind{Name: "Failing", Workers: 1, Failed: 1, KindSettings: monitor.DefaultKindSettings()}, kinds[0])
	require.Equal(t, monitor.Kind{Name: "Idle", Workers: 2, KindSettings: monitor.DefaultKindSettings()}, kinds[1])
	require.Equal(t, "New", kinds[2].Name)
}

// The limit on crashes is a setting as others are.
func TestSetQuarantine(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	set := func(crashes int) (int64, error) {
		return w.Operator.SetSettings(ctx, operator.SettingsChange{QuarantineCrashes: &crashes})
	}
	crashes := func() int {
		settings, err := w.Monitor.Settings(ctx)
		require.NoError(t, err)
		require.NotZero(t, settings.FinishedRetention)
		return settings.QuarantineCrashes
	}
	require.Equal(t, 5, crashes())
	for _, wrong := range []int{-1, 1001, 1 << 40, -1 << 40} {
		_, err := set(wrong)
		require.ErrorIs(t, err, jobq.ErrInvalid)
		require.ErrorContains(t, err, "quarantine_crashes must be 0 to 1000")
	}
	same, err := set(5)
	require.NoError(t, err)
	require.Zero(t, same)
	id, err := set(0)
	require.NoError(t, err)
	require.Zero(t, crashes())
	_, err = w.Operator.Undo(ctx, id)
	require.NoError(t, err)
	require.Equal(t, 5, crashes())
}
