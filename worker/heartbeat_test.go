package worker_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/worker"
)

// setHeartbeat gives the default queue leases of a second and a heartbeat.
func setHeartbeat(t *testing.T, client *jobq.Client, heartbeat jobq.Heartbeat) {
	t.Helper()
	lease := time.Second
	require.NoError(t, client.SetQueue(context.Background(), "default", jobq.QueueChange{Lease: &lease, Heartbeat: &heartbeat}))
}

// extensions is by how many seconds the lease of a running job was extended.
func extensions(ctx context.Context, client *jobq.Client, id int64) (extended float64, err error) {
	err = client.Pool().QueryRow(ctx,
		"select extract(epoch from lease_expires_at - started_at)::float8 - 1 from jobq.running where id = $1", id).Scan(&extended)
	return extended, err
}

// awaitExtended waits until the lease of a running job, of a second at first, was
// extended by so many seconds, and meanwhile calls report, if any, many times a
// second.
func awaitExtended(ctx context.Context, client *jobq.Client, job *worker.Job[task], seconds float64, report func()) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
		if report != nil {
			report()
		}
		if extended, err := extensions(ctx, client, job.ID()); err != nil || extended > seconds {
			return err
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
				setHeartbeat(t, client, heartbeat)
				lost := make(chan error, 10)
				var runs atomic.Int32
				start(t, client, nil, func(ctx context.Context, job *worker.Job[task]) error {
					if runs.Add(1) > 1 {
						return nil
					}
					report := time.NewTicker(20 * time.Millisecond)
					defer report.Stop()
					for {
						select {
						case <-ctx.Done():
							lost <- context.Cause(ctx)
							return ctx.Err()
						case <-report.C:
						}
						if reports {
							job.Heartbeat()
						}
						if extended, err := extensions(ctx, client, job.ID()); err == nil && extended > 2 {
							return nil
						}
					}
				})
				id := enqueue(t, client, 1, nil)
				if keeps {
					require.Zero(t, awaitState(t, client, id, jobq.Completed).Attempts)
					return
				}
				require.ErrorIs(t, receive(t, lost, "the loss of the lease"), worker.ErrLeaseLost)
				job := awaitState(t, client, id, jobq.Completed)
				require.Equal(t, 1, job.Attempts)
				require.Equal(t, 1, job.Crashes)
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
	setHeartbeat(t, client, jobq.HeartbeatProgress)
	begun, locked := make(chan struct{}, 10), make(chan struct{})
	start(t, client, nil, func(ctx context.Context, job *worker.Job[task]) error {
		begun <- struct{}{}
		<-locked
		if job.Args.N == 2 {
			return awaitExtended(ctx, client, job, 3, job.Heartbeat)
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
	require.EqualValues(t, 1, awaitState(t, client, other, jobq.Completed).LeaseToken, "it was taken away")
}

// Without a ticker the worker still asks after its leases, and so hears of a
// cancelled job, also when it cannot listen.
func TestCancelWithoutTicker(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	setHeartbeat(t, client, jobq.HeartbeatOff)
	lease := time.Minute
	every := 100 * time.Millisecond
	require.NoError(t, client.SetQueue(context.Background(), "default", jobq.QueueChange{Lease: &lease, ExtendEvery: &every}))
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
	awaitState(t, client, id, jobq.Cancelled)
}

// A checkpoint is a sign of life too; and the run after a lost one is told.
func TestCheckpointExtends(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	startJanitor(t, client)
	setHeartbeat(t, client, jobq.HeartbeatProgress)
	reasons := make(chan string, 2)
	var runs atomic.Int32
	start(t, client, nil, func(ctx context.Context, job *worker.Job[task]) error {
		reasons <- job.ClearReason()
		if runs.Add(1) > 1 {
			if !job.Cleared() {
				return errors.New("not told that the run before was lost")
			}
			return nil
		}
		for {
			if err := job.SaveCheckpoint(ctx, map[string]int{"at": 1}); err != nil {
				return err
			}
			if extended, err := extensions(ctx, client, job.ID()); err != nil || extended > 1 {
				<-ctx.Done() // silent from now on
				return ctx.Err()
			}
		}
	})
	job := awaitState(t, client, enqueue(t, client, 1, nil), jobq.Completed)
	require.Equal(t, 1, job.Attempts)
	require.Empty(t, <-reasons)
	require.Regexp(t, "^lease expired: worker .* stopped responding$", <-reasons)
}
