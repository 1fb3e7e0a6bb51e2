package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/worker"
)

// A job whose time was before its enqueue has waited since its enqueue, and not for years: in what runs see, and in
// the sums of each way to complete one.
func TestWaitingBeginsWithTheEnqueue(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	waited := make(chan time.Duration, 10)
	start(t, client, nil, func(ctx context.Context, job *worker.Job[task]) error {
		waited <- job.Waited()
		switch job.Args.N {
		case 1: // ends on its row
			return job.SetResult("on a row")
		case 2:
			return pgx.BeginFunc(ctx, client.Pool(), func(tx pgx.Tx) error { return job.CompleteTx(ctx, tx) })
		case 3: // released, it keeps its place
			if job.Attempt() == 1 {
				return worker.Retry(0, errors.New("again"))
			}
		}
		return nil
	})
	for n := range 4 {
		id := enqueue(t, client, n, &jobq.EnqueueOptions{RunAt: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)})
		awaitState(t, client, id, jobq.StateCompleted)
		require.Less(t, receive(t, waited, "a run"), patience)
	}
	require.Eventually(t, func() bool {
		return number(t, client, "select coalesce(sum(completed), 0)::integer from jobq.stats") == 4
	}, patience, time.Millisecond)
	require.Zero(t, number(t, client, "select count(*)::integer from jobq.stats where wait_seconds not between 0 and $1", 10*patience.Seconds()))
}
