package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/worker"
)

// Anybody who may log in can send notifications, on any channel and as many as
// they like. None of them drains a worker, cancels or loses a job, or makes the
// worker send digests: rows decide, and the hint only makes it read them sooner.
func TestForgedNotifications(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	release, began := make(chan struct{}), make(chan struct{}, 10)
	w := start(t, client, &worker.Config{PollInterval: 100 * time.Millisecond}, func(ctx context.Context, _ *worker.Job[task]) error {
		began <- struct{}{}
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	require.Eventually(t, func() bool { return worker.IsPresent(w.Worker) }, hung, 5*time.Millisecond)
	running := enqueue(t, client, 1, nil)
	receive(t, began, "the run")
	beats := func() (at time.Time) {
		require.NoError(t, client.Pool().QueryRow(ctx, "select heartbeat_at from jobq.worker").Scan(&at))
		return at
	}
	before := beats()
	// Method: the worker beats after the hints, which it reads in the order in
	// which they were sent.
	for _, topic := range []string{db.TopicWork, db.TopicHead, db.TopicTaken, db.TopicDue, db.TopicCancel, db.TopicEvent, db.TopicWatch, db.TopicDrain} {
		for _, payload := range []string{"", w.ID(), "1", "9223372036854775807", "18446744073709551615 default", "x default", "1 0 default", "NaN", "-Inf", "{}"} {
			_, err := client.Pool().Exec(ctx, "select pg_notify($1, $2)", db.Channel("jobq", topic), payload)
			require.NoError(t, err)
		}
	}
	require.Eventually(t, func() bool { return beats().After(before) }, hung, 10*time.Millisecond, "the worker does not beat")
	require.False(t, worker.Draining(w.Worker), "drained by a notification")
	require.False(t, worker.IsWatched(w.Worker), "watched by a notification")
	close(release)
	awaitState(t, client, running, jobq.StateCompleted)
	awaitState(t, client, enqueue(t, client, 2, nil), jobq.StateCompleted)

	_, err := operator.New(client, "test").DrainWorker(ctx, w.ID())
	require.NoError(t, err)
	require.Eventually(t, func() bool { return worker.Draining(w.Worker) }, hung, 5*time.Millisecond, "not drained by its row")
}
