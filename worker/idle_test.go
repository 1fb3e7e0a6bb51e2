package worker_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/worker"
)

// An idle worker whose connections the server has ended, as a firewall or an
// administrator makes it do, finds that out by itself: the next job runs, and nobody is
// told of trouble.
func TestIdleWorkerSurvivesTheEndOfItsConnections(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	var log bytes.Buffer // read when the worker has ended
	w, err := worker.New(client, &worker.Config{PollInterval: time.Hour, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	ran := make(chan int, 1)
	require.NoError(t, worker.Handle(w, func(_ context.Context, job *worker.Job[task]) error {
		ran <- job.Args.N
		return nil
	}, nil))
	r := run(t, w)
	enqueue(t, client, 1, nil)
	require.Equal(t, 1, receive(t, ran, "the first job"))
	require.Eventually(t, func() bool { // when all have been idle for more than the second for which a pool trusts them
		var ended int
		require.NoError(t, client.Pool().QueryRow(ctx, `with mine as materialized (
				select pid, state = 'idle' and state_change < clock_timestamp() - interval '1.5 s' as idle
					from pg_stat_activity where datname = current_database() and application_name = 'jobq-worker'
			)
			select count(pg_terminate_backend(pid)) from mine where (select bool_and(idle) from mine)`).Scan(&ended))
		return ended > 0
	}, patience, 20*time.Millisecond)
	require.Eventually(t, func() bool {
		var left int
		require.NoError(t, client.Pool().QueryRow(ctx, "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'jobq-worker' and backend_start < clock_timestamp() - interval '1.5 s'").Scan(&left))
		return left == 0
	}, patience, 5*time.Millisecond)
	enqueue(t, client, 2, nil)
	require.Equal(t, 2, receive(t, ran, "the job afterwards"))
	require.NoError(t, r.drain())
	require.NotContains(t, log.String(), "level=WARN")
	require.Zero(t, r.Counts().Released)
}
