package worker_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/janitor"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/worker"
)

// With several hosts in one address and target_session_attrs=read-write, every
// connection of ours leads to the primary, wherever in the list it is: a job that is
// due later needs the janitor, the worker hears of it (its poll is far too slow), and
// a watcher hears of the worker. When the primary dies and its standby takes over, all
// of them find that one.
func TestSeveralHosts(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	primary := pgtest.OwnServer(t)
	require.NoError(t, pgtest.Migrate(ctx, primary.URL("postgres"), "jobq"))
	standby := pgtest.StartStandby(t, primary)
	config, err := pgxpool.ParseConfig(pgtest.SocketURL(standby, filepath.Dir(primary.SocketFile())) + "&target_session_attrs=read-write")
	require.NoError(t, err)
	client, err := jobq.NewClient(pgtest.ConnectConfig(t, config), nil)
	require.NoError(t, err)

	j, err := janitor.New(client, &janitor.Config{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	programs, digests := inBackground(t), make(chan *monitor.Digest, 100)
	programs(func(ctx context.Context) { _ = j.Run(ctx) })
	programs(func(ctx context.Context) {
		_ = monitor.New(client).Watch(ctx, monitor.WatchConfig{Logger: slog.New(slog.DiscardHandler), OnDigest: func(digest *monitor.Digest) {
			select {
			case digests <- digest:
			default:
			}
		}})
	})
	w := start(t, client, &worker.Config{PollInterval: time.Hour}, func(context.Context, *worker.Job[task]) error { return nil })

	// add enqueues a job, as soon as the database takes it.
	add := func(options *jobq.EnqueueOptions) (id int64) {
		require.Eventually(t, func() bool {
			enqueued, err := client.Enqueue(ctx, task{1}, options)
			if err == nil {
				id = enqueued.ID
			}
			return err == nil
		}, patience, 5*time.Millisecond, "no job can be added")
		return id
	}
	works := func() {
		require.Eventually(t, j.Leading, patience, 5*time.Millisecond, "the janitor does not lead")
		require.Eventually(t, func() bool { return worker.IsPresent(w.Worker) }, patience, 5*time.Millisecond, "the worker does not listen")
		awaitState(t, client, add(&jobq.EnqueueOptions{RunAt: time.Now().Add(100 * time.Millisecond)}), jobq.StateCompleted)
		for len(digests) > 0 {
			<-digests
		}
		require.Eventually(t, func() bool { // the worker may not know yet that somebody watches
			add(nil)
			return len(digests) > 0
		}, patience, 50*time.Millisecond, "the watcher hears nothing")
	}
	works()

	direct := pgtest.Connect(t, pgtest.SocketURL(standby))
	flushed := number(t, client, "select (pg_current_wal_lsn() - '0/0')::bigint")
	require.Eventually(t, func() bool {
		var replayed int
		err := direct.QueryRow(ctx, "select (pg_last_wal_replay_lsn() - '0/0')::bigint").Scan(&replayed)
		return err == nil && replayed >= flushed
	}, patience, 5*time.Millisecond, "the standby does not follow")
	require.NoError(t, primary.Halt())
	require.Eventually(t, func() bool { return !j.Leading() && !worker.IsPresent(w.Worker) }, patience, time.Millisecond, "the end of the primary is not noticed")
	exec(t, direct, "select pg_promote(false)")
	works()
}

// inBackground runs functions until the test ends, and waits for them then.
func inBackground(t *testing.T) (run func(func(ctx context.Context))) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	return func(work func(ctx context.Context)) { running.Go(func() { work(ctx) }) }
}
