package worker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/worker"
)

// The jobs of a paused kind wait while the worker goes on with those behind them, and
// run when the kind is resumed, although the worker has looked beyond them; with
// notifications and without.
func TestPausedKindWaits(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, pollOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("poll only %t", pollOnly), func(t *testing.T) {
			t.Parallel()
			client := newClient(t)
			ana := operator.New(client, "ana")
			w, err := worker.New(client, &worker.Config{NoJanitor: true, PollOnly: pollOnly, PollInterval: 100 * time.Millisecond})
			require.NoError(t, err)
			for _, kind := range []string{"held", "free"} {
				require.NoError(t, worker.HandleRaw(w, kind, func(context.Context, *worker.Job[jobq.RawArgs]) error { return nil }, nil))
			}
			_, err = ana.PauseKind(ctx, "held", "")
			require.NoError(t, err)
			run(t, w)
			held := enqueueRaw(t, client, "held", "{}", nil)
			for range 3 {
				free := enqueueRaw(t, client, "free", "{}", nil)
				awaitState(t, client, free, jobq.StateCompleted)
			}
			job, err := client.Get(ctx, held)
			require.NoError(t, err)
			require.Equal(t, jobq.StateAvailable, job.State)
			_, err = ana.ResumeKind(ctx, "held")
			require.NoError(t, err)
			awaitState(t, client, held, jobq.StateCompleted)
		})
	}
}
