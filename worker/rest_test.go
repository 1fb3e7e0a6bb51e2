package worker_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/worker"
)

// A worker whose program fails at once, beside one whose jobs take longer, would eat the sweep: of 1,000 jobs with one attempt it
// fails 10 at most. Then it rests, says so in the list of workers, and the other one completes the others.
func TestBrokenNode(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	exec(t, client.Pool(), "select jobq.enqueue('task', jsonb_build_object('N', i), max_attempts => 1) from generate_series(1, 1000) i")
	log, broken := &logBuffer{}, restingWorker(t, client, 0, func(context.Context, *worker.Job[task]) error { return errors.New("no space left on device") })
	run(t, broken(log))
	good := restingWorker(t, client, 0, func(ctx context.Context, _ *worker.Job[task]) error {
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Millisecond):
		}
		return nil
	})
	run(t, good(&logBuffer{}))
	const ended = "select count(*) from jobq.job where state in ('completed', 'failed')"
	require.Eventually(t, func() bool { return number(t, client, ended) == 1000 }, patience, 20*time.Millisecond)
	failed := number(t, client, "select count(*) from jobq.job where state = 'failed'")
	t.Logf("%d failed", failed)
	require.LessOrEqual(t, failed, 10)
	require.Eventually(t, func() bool {
		return number(t, client, "select count(*) from jobq.worker where programs -> 'task' ->> 'trouble' like 'it rests here: at least 5 runs%'") == 1
	}, patience, 20*time.Millisecond, log.String())
	require.Contains(t, log.String(), "runs of the kind fail here and succeed on other workers: it rests here")
}

// Jobs that fail everywhere take no worker out of work, whether it is alone or beside others; and one that is told never to rest
// does not.
func TestJobsThatFailEverywhere(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ workers, after int }{"alone": {1, 0}, "three": {3, 0}, "never": {2, -1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, log := newClient(t), &logBuffer{}
			exec(t, client.Pool(), "select jobq.enqueue('task', jsonb_build_object('N', i), max_attempts => 1) from generate_series(1, 200) i")
			for range c.workers {
				start := restingWorker(t, client, c.after, func(context.Context, *worker.Job[task]) error { return errors.New("diverged") })
				run(t, start(log))
			}
			require.Eventually(t, func() bool { return number(t, client, "select count(*) from jobq.job where state = 'failed'") == 200 }, patience, 20*time.Millisecond)
			require.NotContains(t, log.String(), "it rests here")
		})
	}
}

// restingWorker returns how to make a worker of two slots that beats each second.
func restingWorker(t *testing.T, client *jobq.Client, after int, handler worker.Handler[task]) func(log *logBuffer) *worker.Worker {
	t.Helper()
	return func(log *logBuffer) *worker.Worker {
		w, err := worker.New(client, &worker.Config{
			Queues: map[string]worker.QueueConfig{"default": {Slots: 2}}, RestAfterFailures: after,
			Logger: slog.New(slog.NewTextHandler(log, nil)), NoJanitor: true,
		})
		require.NoError(t, err)
		require.NoError(t, worker.Handle(w, handler, nil))
		worker.BeatEvery(w, time.Second)
		return w
	}
}
