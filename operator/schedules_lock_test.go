package operator_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/operator"
)

// Whoever waits while somebody sets a schedule finds it when that is done.
func TestWaitForSetSchedule(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	o := operator.New(client, "ann")
	set := func(kind string) error {
		_, err := o.SetSchedule(ctx, jobq.Schedule{Name: "s", Every: time.Hour, Kind: kind})
		return err
	}
	require.NoError(t, set("first"))
	for _, act := range []struct {
		what string
		do   func() error
	}{
		{"pause", func() error { _, err := o.PauseSchedule(ctx, "s", ""); return err }},
		{"resume", func() error { _, err := o.ResumeSchedule(ctx, "s"); return err }},
		{"run", func() error { _, err := o.RunSchedule(ctx, "s"); return err }},
		{"set", func() error { return set("second") }},
		{"remove", func() error { _, err := o.RemoveSchedule(ctx, "s"); return err }},
	} {
		tx, err := client.Pool().Begin(ctx)
		require.NoError(t, err)
		_, err = tx.Exec(ctx, "select jobq.schedule_set('s', $1, every => '1 hour')", "set before "+act.what)
		require.NoError(t, err)
		done := make(chan error, 1)
		go func() { done <- act.do() }()
		require.Eventually(t, func() bool {
			var waiting int
			require.NoError(t, client.Pool().QueryRow(ctx, "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'").Scan(&waiting))
			return waiting == 1
		}, time.Minute, time.Millisecond)
		require.NoError(t, tx.Commit(ctx))
		require.NoError(t, <-done, act.what)
	}
}

// The undo of a removal waits for whoever is making a schedule of that name, and leaves
// it as they have made it.
func TestUndoRemovalOfScheduleBeingMade(t *testing.T) {
	t.Parallel()
	u := newUndoing(t)
	u.set(jobq.Schedule{Name: "s", Every: time.Hour, Kind: "removed"})
	removed, err := u.RemoveSchedule(u.ctx, "s")
	require.NoError(t, err)
	tx, err := u.client.Pool().Begin(u.ctx)
	require.NoError(t, err)
	_, err = tx.Exec(u.ctx, "select jobq.schedule_set('s', 'made', every => '1 hour')")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- jobtest.ErrorOf(u.Undo(u.ctx, removed)) }()
	require.Eventually(t, func() bool {
		var waiting int
		require.NoError(t, u.client.Pool().QueryRow(u.ctx, "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'").Scan(&waiting))
		return waiting == 1
	}, time.Minute, time.Millisecond)
	require.NoError(t, tx.Commit(u.ctx))
	err = <-done
	require.ErrorIs(t, err, jobq.ErrConflict)
	require.ErrorContains(t, err, "schedule s has been made meanwhile")
	require.Equal(t, "made", u.schedule().Kind)
}
