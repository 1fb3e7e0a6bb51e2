package worker_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/worker"
)

// keepLeases gives the default queue leases that no busy machine lets end during a
// test, and has the worker extend them all the time, by this heartbeat.
func keepLeases(t *testing.T, client *jobq.Client, heartbeat jobq.Heartbeat) {
	t.Helper()
	lease, every := 10*time.Minute, 50*time.Millisecond
	require.NoError(t, operator.New(client, "test").SetQueue(context.Background(), "default", operator.QueueChange{Lease: &lease, ExtendEvery: &every, Heartbeat: &heartbeat}))
}

// extensions is more often than a lease is extended in all its time, which is
// three times: a job whose lease was, has outlived its first lease, but for the
// time between two extensions.
const extensions = 4

// awaitExtended waits until the lease of a running job has been extended that
// often, and meanwhile calls report, if any, many times a second. When the lease is
// lost, the context ends.
func awaitExtended(ctx context.Context, client *jobq.Client, job *worker.Job[task], report func()) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	var last time.Time
	for seen := -1; ; { // the first that is seen is no extension
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
		if report != nil {
			report()
		}
		var ends time.Time
		err := client.Pool().QueryRow(ctx, "select lease_expires_at from jobq.job where id = $1 and state = 'running'", job.ID()).Scan(&ends)
		if err != nil || !ends.After(last) {
			continue
		}
		last = ends
		if seen++; seen == extensions {
			return nil
		}
	}
}

// What extends a lease: with ticker and both, a handler that says nothing
// keeps it; with progress and both, one that reports does; with off, nothing.
func TestHeartbeats(t *testing.T) {
	t.Parallel()
	for heartbeat, test := range map[jobq.Heartbeat]struct{ silent, reporting bool }{
		jobq.HeartbeatTicker:   {silent: true, reporting: true},
		jobq.HeartbeatProgress: {silent: false, reporting: true},
		jobq.HeartbeatBoth:     {silent: true, reporting: true},
		jobq.HeartbeatOff:      {silent: false, reporting: false},
	} {
		for name, reports := range map[string]bool{"silent": false, "reporting": true} {
			keeps := test.silent
			if reports {
				keeps = test.reporting
			}
			t.Run(string(heartbeat)+" "+name, func(t *testing.T) {
				t.Parallel()
				client := newClient(t)
				startJanitor(t, client)
				keepLeases(t, client, heartbeat)
				if !keeps {
					lease, every := 2*time.Second, 50*time.Millisecond
					require.NoError(t, operator.New(client, "test").SetQueue(context.Background(), "default", operator.QueueChange{Lease: &lease, ExtendEvery: &every}))
				}
				lost := make(chan error, 10)
				var runs atomic.Int32
				start(t, client, nil, func(ctx context.Context, job *worker.Job[task]) error {
					if runs.Add(1) > 1 {
						return nil
					}
					var report func()
					if reports {
						report = job.Heartbeat
					}
					err := awaitExtended(ctx, client, job, report)
					if err != nil {
						lost <- err
					}
					return err
				})
				id := enqueue(t, client, 1, nil)
				if keeps {
					require.Zero(t, awaitState(t, client, id, jobq.StateCompleted).Attempts)
					return
				}
				require.ErrorIs(t, receive(t, lost, "the loss of the lease"), worker.ErrLeaseLost)
				job := awaitState(t, client, id, jobq.StateCompleted)
				require.Positive(t, job.Crashes) // on a slow machine, the next run loses its short lease too
				require.Equal(t, job.Crashes, job.Attempts)
			})
		}
	}
}

// A report for a job whose row another transaction has locked costs none of the
// others, which report too, its lease.
func TestReportsBesideALockedRow(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	startJanitor(t, client)
	keepLeases(t, client, jobq.HeartbeatProgress)
	begun, locked := make(chan struct{}, 10), make(chan struct{})
	start(t, client, &worker.Config{DrainTimeout: -1}, func(ctx context.Context, job *worker.Job[task]) error {
		begun <- struct{}{}
		<-locked
		if job.Args.N == 2 {
			return awaitExtended(ctx, client, job, job.Heartbeat)
		}
		job.Heartbeat()
		<-ctx.Done()
		return context.Cause(ctx)
	})
	busy, other := enqueue(t, client, 1, nil), enqueue(t, client, 2, nil)
	receive(t, begun, "the first start")
	receive(t, begun, "the second start")
	lockRow(t, client, busy)
	close(locked)
	require.Zero(t, awaitState(t, client, other, jobq.StateCompleted).Crashes, "it was taken away")
}

// Without a ticker the worker still asks after its leases, and so hears of a
// cancelled job, also when it cannot listen.
func TestCancelWithoutTicker(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	keepLeases(t, client, jobq.HeartbeatOff)
	begun := make(chan struct{}, 1)
	start(t, client, &worker.Config{PollOnly: true}, func(ctx context.Context, _ *worker.Job[task]) error {
		begun <- struct{}{}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	id := enqueue(t, client, 1, nil)
	receive(t, begun, "the handler's start")
	_, err := client.Cancel(context.Background(), id)
	require.NoError(t, err)
	awaitState(t, client, id, jobq.StateCancelled)
}

// A checkpoint is a sign of life too; and the run after a lost one is told.
func TestCheckpointExtends(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	keepLeases(t, client, jobq.HeartbeatProgress)
	reasons, extended := make(chan string, 2), make(chan struct{})
	var runs atomic.Int32
	start(t, client, nil, func(ctx context.Context, job *worker.Job[task]) error {
		reasons <- job.ClearReason()
		if runs.Add(1) > 1 {
			if !job.Cleared() {
				return errors.New("not told that the run before was lost")
			}
			return nil
		}
		err := awaitExtended(ctx, client, job, func() {
			if err := job.SaveCheckpoint(ctx, map[string]int{"at": 1}); err != nil {
				t.Error(err)
			}
		})
		close(extended)
		if err != nil {
			return err
		}
		<-ctx.Done() // silent from now on
		return ctx.Err()
	})
	id := enqueue(t, client, 1, nil)
	receive(t, extended, "the extensions")
	reap(t, client, id)
	job := awaitState(t, client, id, jobq.StateCompleted)
	require.Equal(t, 1, job.Attempts)
	require.Empty(t, <-reasons)
	require.Regexp(t, "^lease expired: worker .* stopped responding$", <-reasons)
}
