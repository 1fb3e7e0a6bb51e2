package db_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// 300,000 notifications come before the answer to one statement: few are kept. The reader is told once that some
// were lost, and hears what comes later.
func TestKeepsFewNotifications(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Connect(t, pgtest.EmptyURL(t))
	conn, err := db.Connect(ctx, pool.Config(), nil)
	require.NoError(t, err)
	defer db.Close(conn, db.CloseTimeout)
	_, err = conn.Exec(ctx, "listen bell")
	require.NoError(t, err)
	send := func(count int) {
		t.Helper()
		_, err = pool.Exec(ctx, "select count(pg_notify('bell', i || repeat('x', 50))) from generate_series(1, $1) i", count)
		require.NoError(t, err)
		_, err = conn.Exec(ctx, "select 1")
		require.NoError(t, err)
	}
	send(10)
	for range 10 {
		notification, err := db.AwaitNotification(ctx, conn)
		require.NoError(t, err)
		require.Equal(t, "bell", notification.Channel)
	}
	most := 0
	for _, count := range []int{1000, 300_000, 300_000} {
		send(count)
		most = max(most, db.NotificationsKept(conn))
	}
	require.LessOrEqual(t, most, 1000)
	notification, err := db.AwaitNotification(ctx, conn)
	require.NoError(t, err)
	require.Nil(t, notification, "some were lost")
	send(1)
	notification, err = db.AwaitNotification(ctx, conn)
	require.NoError(t, err)
	require.Equal(t, "bell", notification.Channel)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = db.AwaitNotification(ended, conn)
	require.ErrorIs(t, err, context.Canceled, "none is left")
}
