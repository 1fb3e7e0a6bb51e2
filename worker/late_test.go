package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/worker"
)

// Jobs whose transaction commits after later ones have been claimed are found by
// looks back of some reach, although the whole line is not looked at, and one
// such look has room for a few of them only.
func TestFindsWhatCommitsLate(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Pool(t)
	client, err := jobq.NewClient(pool, nil)
	require.NoError(t, err)
	ran := make(chan int, 10)
	w := start(t, client, &worker.Config{PollInterval: time.Hour, Queues: map[string]worker.QueueConfig{"default": {Slots: 1}}}, func(_ context.Context, job *worker.Job[task]) error {
		ran <- job.Args.N
		return nil
	})
	enqueue(t, client, 1, nil)
	require.Equal(t, 1, receive(t, ran, "the first job"))
	require.Eventually(t, func() bool { return worker.PutOffWholeLine(w.Worker) }, patience, time.Millisecond)

	late, err := pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = late.Rollback(ctx) }() // committed, unless the test has failed
	const first, last = 3, 9
	for n := first; n <= last; n++ {
		_, err = client.EnqueueTx(ctx, late, task{n}, nil)
		require.NoError(t, err)
	}
	enqueue(t, client, 2, nil)
	require.Equal(t, 2, receive(t, ran, "the job behind it in the line"))
	require.NoError(t, late.Commit(ctx))
	for n := first; n <= last; n++ {
		require.Equal(t, n, receive(t, ran, "a job that came late"))
	}
}
