package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/postgres"
)

// Goal: a load that fails ends the measurement, and its error is the bench's;
// so is one that comes when the load is ended.
func TestBeside(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	broken := errors.New("broken")
	untilEnd := func(ctx context.Context) error { <-ctx.Done(); return nil }
	fails := func(context.Context) error { return broken }
	failsAtEnd := func(ctx context.Context) error { <-ctx.Done(); return broken }
	waits := func(ctx context.Context) error { return pause(ctx, time.Hour) }
	ends := func(context.Context) error { return nil }

	require.ErrorIs(t, beside(ctx, waits, untilEnd, fails), broken)
	require.ErrorIs(t, beside(ctx, ends, untilEnd, failsAtEnd), broken)
	require.ErrorIs(t, beside(ctx, fails, untilEnd), broken)
	require.NoError(t, beside(ctx, ends, untilEnd))
}

// Goal: a feed that cannot add jobs says so, unless it is over anyhow.
func TestFeedFails(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(context.Background())
	pool, err := pgxpool.New(ctx, "host="+t.TempDir())
	require.NoError(t, err)
	client, err := jobq.NewClient(pool, nil)
	require.NoError(t, err)
	pool.Close()
	b := &bench{client: client}
	require.ErrorContains(t, b.feed(ctx), "feed of the queue")
	stop()
	require.NoError(t, b.feed(ctx))
}

// Goal: silence is what was listened to, and a lost connection is none.
func TestNotifications(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server, err := postgres.Start(ctx, postgres.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Stop(ctx) }) // it is removed with its folder anyhow
	conn, err := pgx.Connect(ctx, server.URL("postgres"))
	require.NoError(t, err)
	_, err = conn.Exec(ctx, "listen a; notify a, '1'; notify a, '2'")
	require.NoError(t, err)
	count, err := notifications(ctx, conn, 50*time.Millisecond)
	require.NoError(t, err)
	require.Equal(t, 2, count)
	ended, end := context.WithCancel(ctx)
	end()
	_, err = notifications(ended, conn, time.Minute)
	require.Error(t, err, "the load has ended")
	require.NoError(t, conn.Close(ctx))
	_, err = notifications(ctx, conn, time.Minute)
	require.Error(t, err)
}
