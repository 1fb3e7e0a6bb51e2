package jobq_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// The settings of the schema are read, changed within their limits, recorded in
// the audit like what other operators do, and put back by an undo.
func TestSettings(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	const day = 24 * time.Hour
	retention := func() time.Duration {
		settings, err := client.Settings(ctx)
		require.NoError(t, err)
		return settings.FinishedRetention
	}
	set := func(retention time.Duration) (int64, error) {
		return client.SetSettings(ctx, jobq.SettingsChange{FinishedRetention: &retention})
	}
	require.Equal(t, 7*day, retention())
	for _, wrong := range []time.Duration{-day, 0, day - 1000, 3661 * day, 1<<63 - 1} {
		_, err := set(wrong)
		require.ErrorIs(t, err, jobq.ErrInvalid)
		require.ErrorContains(t, err, "set settings: invalid value: finished_retention must be 1 day to 10 years, not ")
		require.NotContains(t, err.Error(), "SQLSTATE")
	}
	for _, change := range []jobq.SettingsChange{{}, {FinishedRetention: pointerTo(7 * day)}} {
		auditID, err := client.SetSettings(ctx, change)
		require.NoError(t, err)
		require.Zero(t, auditID, "nothing is changed")
	}
	require.Equal(t, 7*day, retention())

	first, err := set(30 * day)
	require.NoError(t, err)
	second, err := set(day)
	require.NoError(t, err)
	require.Equal(t, day, retention())
	entries, err := client.Audit(ctx, 0, 10)
	require.NoError(t, err)
	require.Len(t, entries, 2)
	require.Equal(t, []any{second, jobq.ActionSettings, "unknown"}, []any{entries[0].ID, entries[0].Action, entries[0].Actor})
	require.JSONEq(t, `{"finished_retention": "1 day"}`, string(entries[0].Change))

	_, err = client.Undo(ctx, first)
	require.ErrorIs(t, err, jobq.ErrConflict)
	require.ErrorContains(t, err, "the settings have been changed meanwhile, by action 2")
	_, err = client.Undo(ctx, second)
	require.NoError(t, err)
	require.Equal(t, 30*day, retention())
	_, err = client.Undo(ctx, second)
	require.ErrorIs(t, err, jobq.ErrConflict, "an action is undone once")
}

func pointerTo[T any](value T) *T { return &value }

// A pause or resume says whether there was a sign of a queue of that name, for
// names are misspelt. What is not known is paused all the same.
func TestQueueKnown(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	enqueue(t, client, &jobq.EnqueueOptions{Queue: "waits"})
	enqueue(t, client, &jobq.EnqueueOptions{Queue: "later", Delay: time.Hour})
	require.NoError(t, client.SetQueue(ctx, "set", jobq.QueueChange{}))
	_, err := client.Pool().Exec(ctx, `insert into jobq.worker (id, pid, hostname, version, queues, kinds)
		values ('w', 1, 'h', 'v', '{"served": 1}', '{}')`)
	require.NoError(t, err)
	err = pgtest.InsertRunning(ctx, client.Pool(), 1, pgtest.Columns{"queue": "'runs'"})
	require.NoError(t, err)
	_, err = client.Pool().Exec(ctx, `with rolled as (insert into jobq.stat (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
			values (now() - interval '29 days', 'monthly', 'k', 1, 0, 0, 0, 0, 1, 0))
		insert into jobq.stat_delta (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
			values (now(), 'ended', 'k', 1, 0, 0, 0, 0, 1, 0)`)
	require.NoError(t, err)
	err = pgtest.InsertFinished(ctx, client.Pool(), 1, pgtest.Columns{"finished_at": "now() - interval '40 days'", "state": "'failed'", "queue": "'failed'"})
	require.NoError(t, err)
	for queue, known := range map[string]bool{
		"waits": true, "later": true, "set": true, "served": true, "runs": true, "monthly": true, "ended": true, "failed": true, "emial": false,
	} {
		asked, err := client.QueueKnown(ctx, queue)
		require.NoError(t, err)
		require.Equal(t, known, asked, queue)
		resumed, err := client.ResumeQueue(ctx, queue)
		require.NoError(t, err)
		require.Equal(t, jobq.QueueActed{Known: known}, resumed, queue)
		paused, err := client.PauseQueue(ctx, queue, "", "")
		require.NoError(t, err)
		require.Positive(t, paused.AuditID)
		require.Equal(t, jobq.QueueActed{AuditID: paused.AuditID, Changed: true, Known: known}, paused, queue)
	}
	paused, err := client.PauseQueue(ctx, "emial", "", "")
	require.NoError(t, err)
	require.Equal(t, jobq.QueueActed{Known: true}, paused, "a pause is a setting")
}
