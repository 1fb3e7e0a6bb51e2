package programs_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/worker"
	"github.com/jobq-dev/jobq/worker/programs"
)

func TestMain(m *testing.M) {
	programs.MaybeRunShim()
	if len(os.Args) > 2 && os.Args[1] == asWitness {
		witness(os.Args[2])
	}
	if len(os.Args) > 1 && os.Args[1] == asStreamHandler {
		handleStream()
		return
	}
	pgtest.Main(m)
}

// patience ends a test that hangs: no promise is about it.
const patience = 2 * time.Minute

func newClient(t *testing.T) *jobq.Client {
	t.Helper()
	client, err := jobq.NewClient(pgtest.Pool(t), nil)
	require.NoError(t, err)
	return client
}

// newWorker returns a worker that does not run yet.
func newWorker(t *testing.T, client *jobq.Client, config worker.Config) *worker.Worker {
	t.Helper()
	config.Logger, config.NoJanitor = slog.New(slog.DiscardHandler), true
	w, err := worker.New(client, &config)
	require.NoError(t, err)
	return w
}

// running is a worker that runs in the background of a test.
type running struct {
	*worker.Worker
	drain func() error // ends it and returns what Run returned; at most once
}

func run(tb testing.TB, w *worker.Worker) *running {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	r := &running{Worker: w, drain: sync.OnceValue(func() error {
		cancel()
		return <-ended
	})}
	tb.Cleanup(func() { _ = r.drain() })
	return r
}

func enqueueRaw(t *testing.T, client *jobq.Client, kind, args string, options *jobq.EnqueueOptions) int64 {
	t.Helper()
	enqueued, err := client.Enqueue(context.Background(), jobq.RawArgs{Name: kind, JSON: json.RawMessage(args)}, options)
	require.NoError(t, err)
	return enqueued.ID
}

func shellCommand(script string) programs.Command {
	return programs.Command{Args: []string{"/bin/sh", "-c", script}, Grace: 100 * time.Millisecond}
}

// awaitState waits until the job is in the state, and returns it.
func awaitState(t *testing.T, client *jobq.Client, id int64, state jobq.State) *jobq.Job {
	t.Helper()
	var job *jobq.Job
	require.Eventually(t, func() bool {
		var err error
		job, err = client.Get(context.Background(), id)
		return err == nil && job.State == state
	}, patience, 2*time.Millisecond, "job %d does not become %s", id, state)
	return job
}

func receive[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(patience):
		require.FailNow(t, "nothing came", what)
		panic("unreachable")
	}
}

func attempts(t *testing.T, client *jobq.Client, id int64) []monitor.Attempt {
	t.Helper()
	attempts, err := monitor.New(client).Attempts(context.Background(), id)
	require.NoError(t, err)
	return attempts
}

// keepLeases gives the default queue leases that no busy machine lets end during a
// test, and has the worker extend them all the time, by this heartbeat.
func keepLeases(t *testing.T, client *jobq.Client, heartbeat jobq.Heartbeat) {
	t.Helper()
	lease, every := 10*time.Minute, 50*time.Millisecond
	_, err := operator.New(client, "test").SetQueue(context.Background(), "default", operator.QueueChange{Lease: &lease, ExtendEvery: &every, Heartbeat: &heartbeat})
	require.NoError(t, err)
}

// fencing are leases with which a test checks what is promised for a machine on
// which nobody waits for a processor for longer than half of the kill margin: when
// that was not so, it tries the next, whose kill margin is longer.
var fencing = []time.Duration{9 * time.Second, 18 * time.Second, 30 * time.Second}

func halfMargin(lease time.Duration) time.Duration { return min(lease/6, 5*time.Second) / 2 }

// skipStarved ends a test that has checked nothing, with any of the leases.
func skipStarved(t *testing.T) {
	t.Helper()
	t.Skipf("NOT CHECKED: with each of the leases %v somebody waited for a processor for longer than half of the kill margin", fencing)
}
