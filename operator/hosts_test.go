package operator_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/operator"
)

// A hold is recorded once, by whom and why, and an undo takes it back; the undo of a release holds the host again, for the old
// reason. An action that was not the last one on its host is not undone. A queue of the same name is left alone.
func TestHoldHost(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	o := operator.New(w.Client, "ann")
	_, err := o.PauseQueue(ctx, "h", "")
	require.NoError(t, err)
	held := func() (reason string) {
		require.NoError(t, w.Client.Pool().QueryRow(ctx, `select coalesce((select format('%s by %s', coalesce(hold_reason, 'no reason'), held_by)
			from jobq.held_host where host = 'h'), '')`).Scan(&reason))
		return reason
	}
	first, err := o.HoldHost(ctx, "h", "bad disk")
	require.NoError(t, err)
	require.NotZero(t, first.AuditID)
	require.Equal(t, "bad disk by ann", held())
	again, err := o.HoldHost(ctx, "h", "another")
	require.NoError(t, err)
	require.Equal(t, operator.HeldHost{Host: "h"}, again)
	released, err := o.ReleaseHost(ctx, "h")
	require.NoError(t, err)
	require.NotZero(t, released.AuditID)
	require.Empty(t, held())
	none, err := o.ReleaseHost(ctx, "h")
	require.NoError(t, err)
	require.Zero(t, none.AuditID)

	_, err = o.Undo(ctx, first.AuditID)
	require.ErrorIs(t, err, jobq.ErrConflict)
	require.ErrorContains(t, err, "host h has been released meanwhile")
	_, err = o.Undo(ctx, released.AuditID)
	require.NoError(t, err)
	require.Equal(t, "bad disk by ann", held())
	later, err := o.ReleaseHost(ctx, "h")
	require.NoError(t, err)
	unexplained, err := o.HoldHost(ctx, "h", "")
	require.NoError(t, err)
	require.Equal(t, "no reason by ann", held())
	_, err = o.Undo(ctx, later.AuditID)
	require.ErrorContains(t, err, "host h has been held meanwhile")
	_, err = o.Undo(ctx, unexplained.AuditID)
	require.NoError(t, err)
	require.Empty(t, held())
	_, err = o.HoldHost(ctx, "", "")
	require.ErrorIs(t, err, jobq.ErrInvalid)
	queues, err := w.Monitor.Queues(ctx)
	require.NoError(t, err)
	require.Len(t, queues, 1)
	require.NotNil(t, queues[0].PausedAt)
}

// A worker's and a viewer's role may not hold a host.
func TestLesserRolesHoldNoHost(t *testing.T) {
	t.Parallel()
	_, as := loginsServer(t, "worker", "viewer", "producer", "admin")
	for role, client := range as {
		_, err := operator.New(client, "").HoldHost(context.Background(), "h", "")
		if role == "admin" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, "permission denied", role)
	}
}
