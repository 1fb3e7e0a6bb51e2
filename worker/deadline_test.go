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

// No statement of a worker may wait for ever: each has a deadline, from the
// first at its start, and the recovery of a dead worker's jobs, to the last.
func TestEveryStatementHasADeadline(t *testing.T) {
	t.Parallel()
	plain := pgtest.Pool(t)
	var seen pgtest.Deadlines
	config := plain.Config()
	config.ConnConfig.Tracer = &seen
	client, err := jobq.NewClient(pgtest.ConnectConfig(t, config), nil)
	require.NoError(t, err)
	err = pgtest.InsertRunning(context.Background(), plain, 1, pgtest.Columns{"args": `'{"n": 1}'`})
	require.NoError(t, err)
	producer, err := jobq.NewClient(plain, nil)
	require.NoError(t, err)
	_, err = producer.Enqueue(context.Background(), task{N: 2}, nil)
	require.NoError(t, err)
	ran := make(chan int, 2)
	w := start(t, client, &worker.Config{Reconcile: worker.ReconcileAll, Lease: time.Minute}, func(_ context.Context, job *worker.Job[task]) error {
		ran <- job.Args.N
		return nil
	})
	for range 2 {
		select {
		case <-ran:
		case <-time.After(patience):
			require.Fail(t, "a job has not run")
		}
	}
	require.NoError(t, w.drain())
	without, sent := seen.Without()
	for _, statement := range without {
		t.Errorf("without a deadline: %.60s", statement)
	}
	require.Greater(t, sent, 10)
}
