package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/worker"
)

// The jobs of a paused key wait while the worker goes on with those of others, and run when the key goes
// on: idle workers are woken, or find them with a poll.
func TestPausedKeyWaits(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, config := range map[string]worker.Config{
		"woken":     {NoJanitor: true, PollInterval: time.Hour},
		"poll only": {NoJanitor: true, PollOnly: true, PollInterval: 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := newClient(t)
			ana := operator.New(client, "ana")
			w, err := worker.New(client, &config)
			require.NoError(t, err)
			require.NoError(t, worker.HandleRaw(w, "k", func(context.Context, *worker.Job[jobq.RawArgs]) error { return nil }, nil))
			before := enqueueRaw(t, client, "k", "{}", ofKey("free"))
			_, err = ana.PauseKey(ctx, "default", "held", "")
			require.NoError(t, err)
			run(t, w)
			awaitState(t, client, before, jobq.StateCompleted)
			held := enqueueRaw(t, client, "k", "{}", ofKey("held"))
			for range 3 {
				free := enqueueRaw(t, client, "k", "{}", ofKey("free"))
				awaitState(t, client, free, jobq.StateCompleted)
			}
			job, err := client.Get(ctx, held)
			require.NoError(t, err)
			require.Equal(t, jobq.StateAvailable, job.State)
			_, err = ana.ResumeKey(ctx, "default", "held")
			require.NoError(t, err)
			awaitState(t, client, held, jobq.StateCompleted)
		})
	}
}
