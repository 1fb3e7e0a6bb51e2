package worker_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/worker"
)

// A job of low priority that has waited for longer than age_after runs, although more
// urgent jobs always wait; with limits too. Method: each urgent job adds another one, so that
// at least eight always wait; and a claim takes two jobs at most, since nothing is claimed ahead
// without heartbeats.
func TestLowPriorityDoesNotStarve(t *testing.T) {
	t.Parallel()
	const low = -1 // the number of the job
	for name, change := range map[string]operator.QueueChange{
		"no limits": {},
		"a limit":   {MaxRunning: new(1)},
		"a rate":    {Rate: &jobq.Rate{Jobs: 1_000_000, Period: time.Second, Burst: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := newClient(t)
			change.Heartbeat = new(jobq.HeartbeatOff)
			setQueue(t, client, change)
			enqueue(t, client, low, &jobq.EnqueueOptions{Priority: 9})
			exec(t, client.Pool(), "update jobq.pending set run_at = run_at - interval '1 hour', created_at = created_at - interval '1 hour'")
			for i := range 10 {
				enqueue(t, client, i, nil)
			}
			ran := make(chan struct{}, 1)
			w, err := worker.New(client, &worker.Config{
				NoJanitor: true,
				Queues:    map[string]worker.QueueConfig{"default": {Slots: 2}}, Logger: slog.New(slog.DiscardHandler),
			})
			require.NoError(t, err)
			worker.LookForAgedEvery(w, 10*time.Millisecond)
			require.NoError(t, worker.Handle(w, func(ctx context.Context, job *worker.Job[task]) error {
				if job.Args.N == low {
					ran <- struct{}{}
					return nil
				}
				_, err := client.Enqueue(ctx, job.Args, nil)
				return err
			}, nil))
			run(t, w)
			awaitRun(t, ran)
		})
	}
}

// Where priorities never age, and where they have not aged yet, the order is strict: a job of
// low priority does not run before any of the more urgent ones. Method: without heartbeats
// nothing is claimed ahead, and so each claim takes one job.
func TestStrictPriorities(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		ageAfter time.Duration
		waited   string
	}{
		"never": {0, "1 hour"},
		"young": {5 * time.Minute, "1 minute"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const urgent = 300
			client := newClient(t)
			setQueue(t, client, operator.QueueChange{AgeAfter: &test.ageAfter, Heartbeat: new(jobq.HeartbeatOff)})
			enqueue(t, client, urgent, &jobq.EnqueueOptions{Priority: 9})
			exec(t, client.Pool(), "update jobq.pending set run_at = run_at - $1::text::interval, created_at = created_at - $1::text::interval", test.waited)
			together(t, client, urgent)
			order := make(chan int, urgent+1)
			w, err := worker.New(client, &worker.Config{
				NoJanitor: true,
				Queues:    map[string]worker.QueueConfig{"default": {Slots: 1}}, Logger: slog.New(slog.DiscardHandler),
			})
			require.NoError(t, err)
			worker.LookForAgedEvery(w, time.Millisecond)
			require.NoError(t, worker.Handle(w, func(_ context.Context, job *worker.Job[task]) error {
				order <- job.Args.N
				return nil
			}, nil))
			run(t, w)
			for i := range urgent {
				require.NotEqual(t, urgent, receive(t, order, "a job"), "after %d jobs", i)
			}
			require.Equal(t, urgent, receive(t, order, "the last one"))
		})
	}
}

// A priority is aged only for claims of kinds that wait in it: such a claim would walk past all
// others. And for none as long as only some of the kinds are claimed.
func TestAgedOfOwnKinds(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	w := newWorker(t, client, worker.Config{})
	var external gate
	worker.Attach(w, &external)
	for kind, slots := range map[string]int{"bulk": 0, "gated": 0, "mail": 3} {
		require.NoError(t, worker.HandleRaw(w, kind, func(context.Context, *worker.Job[jobq.RawArgs]) error { return nil }, &worker.HandleOptions{Slots: slots}))
	}
	aged := worker.AgedOf(w)
	for kind, priorities := range map[string][]int16{"bulk": {0, 9}, "mail": {0, 5}} {
		for _, priority := range priorities {
			enqueueRaw(t, client, kind, "{}", &jobq.EnqueueOptions{Priority: priority})
		}
	}
	require.Empty(t, aged())
	exec(t, client.Pool(), "update jobq.pending set run_at = run_at - interval '1 hour', created_at = created_at - interval '1 hour'")
	require.Equal(t, map[string][]int16{"bulk": {9}, "mail": {5}}, aged())
	external.closed.Store(true)
	require.Equal(t, map[string][]int16{"mail": {5}}, aged())
}
