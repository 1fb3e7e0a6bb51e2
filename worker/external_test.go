package worker_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/worker"
)

// gate is an External that may forbid the kind "gated".
type gate struct {
	closed atomic.Bool
	ends   atomic.Int32 // how often it was told to Close
}

func (g *gate) Claimable(kinds []string) []string {
	if !g.closed.Load() {
		return kinds
	}
	return slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return kind == "gated" })
}

func (g *gate) Grace() time.Duration { return 0 }

func (g *gate) Unreached() map[string]string {
	if !g.closed.Load() {
		return nil
	}
	return map[string]string{"gated": "closed"}
}

func (g *gate) Summary() map[string]monitor.Programs {
	return map[string]monitor.Programs{"gated": {Started: 7}}
}

func (g *gate) Close() { g.ends.Add(1) }

// A kind that an External forbids is not claimed while others are; it is claimed
// when the External allows it and wakes the worker, long before the next poll. What
// the External counts is in the worker's row, and it is closed once, after Run.
func TestExternal(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	w := newWorker(t, client, worker.Config{PollInterval: time.Hour})
	var external gate
	external.closed.Store(true)
	host := worker.Attach(w, &external)
	var waking sync.WaitGroup
	waking.Go(func() {
		for range 1000 { // before Run, and while it begins
			host.Wake("gated")
		}
	})
	for _, kind := range []string{"gated", "other"} {
		require.NoError(t, worker.HandleRaw(w, kind, func(context.Context, *worker.Job[jobq.RawArgs]) error { return nil }, nil))
	}
	gated, other := enqueueRaw(t, client, "gated", "{}", nil), enqueueRaw(t, client, "other", "{}", nil)
	r := run(t, w)
	waking.Wait()
	awaitState(t, client, other, jobq.StateCompleted)
	awaitState(t, client, gated, jobq.StateAvailable)
	require.Equal(t, []string{"kind gated: its handler cannot be reached: closed"}, w.Health().Problems())
	require.Eventually(t, func() bool { _, still := worker.LastNotification(w); return still }, patience, time.Millisecond)
	workers, err := monitor.New(client).Workers(context.Background())
	require.NoError(t, err)
	require.EqualValues(t, 7, workers[0].Programs["gated"].Started)
	external.closed.Store(false)
	host.Wake("gated")
	awaitState(t, client, gated, jobq.StateCompleted)
	require.Empty(t, w.Health().Problems())
	require.False(t, host.IsDraining())
	require.Zero(t, external.ends.Load())
	require.NoError(t, r.drain())
	require.True(t, host.IsDraining())
	require.EqualValues(t, 1, external.ends.Load())
}

// A job that is given back for no fault of its own loses no attempt; the history
// has the run if its handler has seen the job.
func TestReleases(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		give func(reason error) error
		kept int // runs in the history
	}{
		"released":  {worker.Release, 1},
		"unreached": {worker.Unreached, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := newClient(t)
			var runs atomic.Int32
			start(t, client, nil, func(context.Context, *worker.Job[task]) error {
				if runs.Add(1) == 1 {
					return test.give(errors.New("not now"))
				}
				return nil
			})
			id := enqueue(t, client, 1, &jobq.EnqueueOptions{MaxAttempts: 1})
			require.Zero(t, awaitState(t, client, id, jobq.StateCompleted).Attempts)
			kept := attempts(t, client, id)
			require.Len(t, kept, test.kept)
			for _, attempt := range kept {
				require.Equal(t, jobq.OutcomeReleased, attempt.Outcome)
				require.Equal(t, "not now", attempt.Error)
			}
		})
	}
}

// OnLeaseLost tells of the loss once, also of a run that was told to stop before.
func TestLeaseLostAfterStop(t *testing.T) {
	t.Parallel()
	ctx, client := context.Background(), newClient(t)
	keepLeases(t, client, jobq.HeartbeatTicker)
	begun, stopped, lost, proceed := make(chan struct{}), make(chan error, 1), make(chan struct{}, 2), make(chan struct{})
	w := start(t, client, nil, func(ctx context.Context, job *worker.Job[task]) error {
		worker.ExternalRun{Run: job.Run}.OnLeaseLost(func() { lost <- struct{}{} })
		close(begun)
		<-ctx.Done()
		stopped <- context.Cause(ctx)
		<-proceed
		return nil
	})
	id := enqueue(t, client, 1, nil)
	receive(t, begun, "the start")
	_, err := client.Cancel(ctx, id)
	require.NoError(t, err)
	require.ErrorIs(t, receive(t, stopped, "the stop"), worker.ErrCancelled)
	require.Empty(t, lost)
	require.NoError(t, pgtest.StealLeases(ctx, client.Pool(), "thief", id))
	receive(t, lost, "the loss of the lease")
	close(proceed)
	require.NoError(t, w.drain())
	require.Empty(t, lost)
	require.EqualValues(t, 1, w.Counts().Lost)
}
