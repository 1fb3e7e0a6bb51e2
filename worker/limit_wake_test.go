package worker_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/worker"
)

// A worker with more slots than its queue's limits admit is idle, and blocked by nothing: a
// job that comes begins. The polls are far too slow to be the reason.
func TestMoreSlotsThanLimits(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]operator.QueueChange{
		"limit": {MaxRunning: new(3)},
		"rate":  {Rate: &jobq.Rate{Jobs: 10, Period: time.Hour, Burst: 5}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := newClient(t)
			setQueue(t, client, change)
			ran := make(chan struct{}, 1)
			w := start(t, client, &worker.Config{Queues: map[string]worker.QueueConfig{"default": {Slots: 10}}, PollInterval: time.Hour}, func(context.Context, *worker.Job[task]) error {
				ran <- struct{}{}
				return nil
			})
			for i := range 3 {
				require.Eventually(t, func() bool {
					_, still := worker.LastNotification(w.Worker)
					return still && worker.IsPresent(w.Worker)
				}, patience, time.Millisecond)
				enqueue(t, client, i, nil)
				awaitRun(t, ran, "job "+strconv.Itoa(i))
			}
		})
	}
}

// startThrottled runs a worker of a queue that has used up its rate for a day, and in which
// one more job waits. It returns when the worker is blocked.
func startThrottled(t *testing.T, client *jobq.Client, config *worker.Config) (ran <-chan struct{}) {
	t.Helper()
	setQueue(t, client, operator.QueueChange{Rate: &jobq.Rate{Jobs: 1, Period: 24 * time.Hour, Burst: 1}})
	begun := make(chan struct{}, 2)
	together(t, client, 2)
	w := start(t, client, config, func(context.Context, *worker.Job[task]) error {
		begun <- struct{}{}
		return nil
	})
	awaitRun(t, begun)
	require.Eventually(t, func() bool {
		return worker.IsBlocked(w.Worker) && (config.PollOnly || worker.IsPresent(w.Worker))
	}, patience, time.Millisecond)
	return begun
}

// A worker that hears no notifications notices that a rate was raised, however long the
// rate of before has throttled it.
func TestRaisedRateIsPolled(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	ran := startThrottled(t, client, &worker.Config{PollOnly: true, PollInterval: 50 * time.Millisecond})
	setQueue(t, client, operator.QueueChange{Rate: &jobq.Rate{Jobs: 1000, Period: time.Second}})
	awaitRun(t, ran)
}

// So does one that was not listening for a moment. The polls are far too slow to be the
// reason.
func TestRaisedRateAfterAReconnect(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	ran := startThrottled(t, client, &worker.Config{PollInterval: time.Hour})
	exec(t, client.Pool(), "update jobq.queue set rate_jobs = 1000, rate_period = '1 s'") // of which nobody is told
	exec(t, client.Pool(), "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'jobq-listen' and datname = current_database()")
	awaitRun(t, ran)
}

// An end that the server has refused together with its bad result, and that is stored by
// itself, makes room for another worker as well. The polls are far too slow to be the reason.
func TestRoomOfABadResultWakesOthers(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	setQueue(t, client, operator.QueueChange{MaxRunning: new(1)})
	begun, proceed := make(chan int, 1), make(chan struct{})
	first := start(t, client, &worker.Config{PollInterval: time.Hour}, func(_ context.Context, job *worker.Job[task]) error {
		begun <- job.Args.N
		<-proceed
		return job.SetResult("\x00")
	})
	bad := enqueue(t, client, 1, &jobq.EnqueueOptions{MaxAttempts: 1})
	receive(t, begun, "the first start")
	ran := blockedOther(t, client)
	close(proceed)
	awaitRun(t, ran)
	awaitState(t, client, bad, jobq.StateFailed)
	require.NoError(t, first.drain())
}
