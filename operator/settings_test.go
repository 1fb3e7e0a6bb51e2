package operator_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
)

// The settings of the schema are read, changed within their limits, recorded in
// the audit like what other operators do, and put back by an undo.
func TestSettings(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	const day = 24 * time.Hour
	retention := func() time.Duration {
		settings, err := monitor.New(client).Settings(ctx)
		require.NoError(t, err)
		return settings.FinishedRetention
	}
	set := func(retention time.Duration) (int64, error) {
		return operator.New(client, "test").SetSettings(ctx, operator.SettingsChange{FinishedRetention: &retention})
	}
	require.Equal(t, 7*day, retention())
	for _, wrong := range []time.Duration{-day, 0, day - 1000, 3661 * day, 1<<63 - 1} {
		_, err := set(wrong)
		require.ErrorIs(t, err, jobq.ErrInvalid)
		require.ErrorContains(t, err, "set settings: invalid value: finished_retention must be 1 day to 10 years, not ")
		require.NotContains(t, err.Error(), "SQLSTATE")
	}
	for _, change := range []operator.SettingsChange{{}, {FinishedRetention: new(7 * day)}} {
		auditID, err := operator.New(client, "test").SetSettings(ctx, change)
		require.NoError(t, err)
		require.Zero(t, auditID, "nothing is changed")
	}
	require.Equal(t, 7*day, retention())

	first, err := set(30 * day)
	require.NoError(t, err)
	second, err := set(day)
	require.NoError(t, err)
	require.Equal(t, day, retention())
	entries, err := monitor.New(client).Audit(ctx, 0, 10)
	require.NoError(t, err)
	require.Len(t, entries, 2)
	require.Equal(t, []any{second, jobq.ActionSettings, "test"}, []any{entries[0].ID, entries[0].Action, entries[0].Actor})
	require.JSONEq(t, `{"finished_retention": "1 day"}`, string(entries[0].Change))

	_, err = operator.New(client, "test").Undo(ctx, first)
	require.ErrorIs(t, err, jobq.ErrConflict)
	require.ErrorContains(t, err, "the settings have been changed meanwhile, by action 2")
	_, err = operator.New(client, "test").Undo(ctx, second)
	require.NoError(t, err)
	require.Equal(t, 30*day, retention())
	_, err = operator.New(client, "test").Undo(ctx, second)
	require.ErrorIs(t, err, jobq.ErrConflict, "an action is undone once")
}
