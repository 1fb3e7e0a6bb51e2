package worker_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/janitor"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/worker"
)

// hookedPool is a pool whose connections come about by its hooks alone, as with
// a cloud's connector, passwords that change and a role to be taken: nobody
// listens at its address, its user does not exist, and the one that does may do
// nothing before it has taken a role.
func hookedPool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	ctx := context.Background()
	url := pgtest.URL(t)
	direct := pgtest.Connect(t, url)
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	user := pgx.Identifier{config.ConnConfig.Database + "_login"}.Sanitize()
	_, err = direct.Exec(ctx, fmt.Sprintf("create role %s login noinherit; grant %s to %[1]s", user, pgx.Identifier{config.ConnConfig.User}.Sanitize()))
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := pgtest.Connect(t, url).Exec(ctx, "drop role "+user)
		require.NoError(t, err)
	})
	role := config.ConnConfig.User
	network, address := pgconn.NetworkAddress(config.ConnConfig.Host, config.ConnConfig.Port)
	config.ConnConfig.Host, config.ConnConfig.Port, config.ConnConfig.User = "127.0.0.1", 1, "does not exist"
	config.ConnConfig.Fallbacks = nil
	config.ConnConfig.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	config.BeforeConnect = func(_ context.Context, conn *pgx.ConnConfig) error {
		conn.User = conn.Database + "_login"
		return nil
	}
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "set role "+pgx.Identifier{role}.Sanitize())
		return err
	}
	return pgtest.ConnectConfig(t, config)
}

// Every connection of jobq's is made as the pool makes its own: the janitor leads
// and promotes, the worker hears of jobs (its poll is far too slow), and a watcher
// hears of what workers do.
func TestHooksOfThePool(t *testing.T) {
	t.Parallel()
	client, err := jobq.NewClient(hookedPool(t), nil)
	require.NoError(t, err)
	j, err := janitor.New(client, &janitor.Config{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	digests := make(chan *monitor.Digest, 100)
	var programs sync.WaitGroup
	programs.Go(func() { _ = j.Run(ctx) })
	programs.Go(func() {
		_ = monitor.New(client).Watch(ctx, monitor.WatchConfig{Logger: slog.New(slog.DiscardHandler), OnDigest: func(digest *monitor.Digest) {
			select {
			case digests <- digest:
			default:
			}
		}})
	})
	defer programs.Wait()
	defer stop()
	w := start(t, client, &worker.Config{PollInterval: time.Hour}, func(context.Context, *worker.Job[task]) error { return nil })
	require.Eventually(t, j.Leading, hung, 5*time.Millisecond, "the janitor does not lead")
	require.Eventually(t, func() bool { return worker.IsPresent(w.Worker) }, hung, 5*time.Millisecond, "the worker does not listen")
	id := enqueue(t, client, 1, &jobq.EnqueueOptions{RunAt: time.Now().Add(100 * time.Millisecond)})
	require.Eventually(t, func() bool {
		job, err := client.Get(ctx, id)
		return err == nil && job.State == jobq.StateCompleted
	}, hung, 5*time.Millisecond, "the job does not complete")
	// Of what ends before the worker knows that somebody watches it tells nothing.
	require.Eventually(t, func() bool {
		enqueue(t, client, 2, nil)
		select {
		case <-digests:
			return true
		default:
			return false
		}
	}, hung, 50*time.Millisecond, "the watcher hears nothing")
}
