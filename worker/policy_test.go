package worker_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/worker"
)

// newWorker returns a worker that does not run yet.
func newWorker(t *testing.T, client *jobq.Client, config worker.Config) *worker.Worker {
	t.Helper()
	config.Logger = slog.New(slog.DiscardHandler)
	w, err := worker.New(client, &config)
	require.NoError(t, err)
	return w
}

func enqueueRaw(t *testing.T, client *jobq.Client, kind, args string, options *jobq.EnqueueOptions) int64 {
	t.Helper()
	enqueued, err := client.Enqueue(context.Background(), jobq.RawArgs{Name: kind, JSON: json.RawMessage(args)}, options)
	require.NoError(t, err)
	return enqueued.ID
}

func shellCommand(script string) worker.Command {
	return worker.Command{Args: []string{"/bin/sh", "-c", script}, Grace: 100 * time.Millisecond}
}

// A run that is silent for too long is stopped as timed out; one that writes or
// reports goes on. A kind's timeout is for jobs that have none.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	w := newWorker(t, client, worker.Config{})
	for kind, script := range map[string]string{
		"silent":   "sleep 1000",
		"writes":   "for i in $(seq 50); do echo $i; sleep 0.2; done",
		"reports":  `for i in $(seq 50); do echo '{"progress": 1}' >&3; sleep 0.2; done`,
		"too-long": "while :; do echo x; sleep 0.05; done",
	} {
		require.NoError(t, worker.HandleCommand(w, kind, shellCommand(script)))
		policy := worker.Policy{StallTimeout: 8 * time.Second} // as long as a busy machine may hold up a script
		switch kind {
		case "silent":
			policy.StallTimeout = time.Second
		case "too-long":
			policy.Timeout = 300 * time.Millisecond
		}
		require.NoError(t, worker.SetPolicy(w, kind, policy))
	}
	require.ErrorContains(t, worker.SetPolicy(w, "other", worker.Policy{}), "no handler")
	run(t, w)
	once := &jobq.EnqueueOptions{MaxAttempts: 1}
	silent, writes, reports := enqueueRaw(t, client, "silent", "{}", once), enqueueRaw(t, client, "writes", "{}", once), enqueueRaw(t, client, "reports", "{}", once)
	tooLong := enqueueRaw(t, client, "too-long", "{}", once)
	require.Contains(t, awaitState(t, client, silent, jobq.StateFailed).LastError, "no output and no progress for 1s")
	require.Equal(t, jobq.OutcomeTimedOut, attempts(t, client, silent)[0].Outcome)
	require.Contains(t, awaitState(t, client, tooLong, jobq.StateFailed).LastError, "timed out")
	awaitState(t, client, writes, jobq.StateCompleted)
	awaitState(t, client, reports, jobq.StateCompleted)
}

// A kind with slots of its own never has more runs than these, and the others
// do not wait behind it.
func TestKindSlots(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	for range 20 {
		enqueueRaw(t, client, "limited", "{}", nil)
	}
	other := enqueueRaw(t, client, "other", "{}", nil)
	w := newWorker(t, client, worker.Config{Queues: map[string]int{"default": 4}})
	var running, most atomic.Int32
	gate := make(chan struct{})
	require.NoError(t, worker.HandleRaw(w, "limited", func(context.Context, *worker.Job[jobq.RawArgs]) error {
		if now := running.Add(1); now > most.Load() {
			most.Store(now)
		}
		<-gate
		running.Add(-1)
		return nil
	}))
	require.NoError(t, worker.SetPolicy(w, "limited", worker.Policy{Slots: 2}))
	require.NoError(t, worker.HandleRaw(w, "other", func(context.Context, *worker.Job[jobq.RawArgs]) error { return nil }))
	run(t, w)
	awaitState(t, client, other, jobq.StateCompleted)
	require.Eventually(t, func() bool { return running.Load() == 2 }, patience, time.Millisecond)
	close(gate)
	require.Eventually(t, func() bool { return w.Counts().Completed == 21 }, patience, time.Millisecond)
	require.LessOrEqual(t, most.Load(), int32(2))
}

// A worker ends by itself when nothing is left, after its time, after too many
// failures, or when it is told to finish, and what runs then ends first.
func TestBatch(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		batch  worker.Batch
		script string
		want   error
	}{
		"empty":    {worker.Batch{ExitWhenEmpty: true}, "true", nil},
		"time":     {worker.Batch{TimeLimit: 500 * time.Millisecond}, "true", nil},
		"failures": {worker.Batch{MaxConsecutiveFailures: 3}, "exit 1", worker.ErrTooManyFailures},
		"finish":   {worker.Batch{}, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := newClient(t)
			for range 5 {
				enqueueRaw(t, client, "k", "{}", &jobq.EnqueueOptions{BackoffBase: time.Hour})
			}
			w := newWorker(t, client, worker.Config{Batch: test.batch, DrainTimeout: -1, Queues: map[string]int{"default": 1}})
			end := filepath.Join(t.TempDir(), "end")
			if name == "finish" {
				test.script = "until [ -e " + end + " ]; do sleep 0.02; done"
			}
			require.NoError(t, worker.HandleCommand(w, "k", shellCommand(test.script)))
			ended := make(chan error, 1)
			go func() { ended <- w.Run(context.Background()) }()
			if name == "finish" {
				require.Eventually(t, func() bool {
					page, err := client.List(context.Background(), jobq.Filter{States: []jobq.State{jobq.StateRunning}})
					return err == nil && len(page.Jobs) == 1
				}, patience, time.Millisecond)
				w.Finish()
				require.Eventually(t, func() bool { return worker.Draining(w) }, patience, time.Millisecond)
				require.NoError(t, os.WriteFile(end, nil, 0o600))
			}
			require.ErrorIs(t, receive(t, ended, "the end"), test.want)
			switch name {
			case "empty":
				require.Equal(t, int64(5), w.Counts().Completed)
			case "finish":
				require.Equal(t, int64(1), w.Counts().Completed, "what runs has the time it takes")
			case "failures":
				require.GreaterOrEqual(t, w.Counts().Failed, int64(3))
			}
		})
	}
}

// Parts of the job become words of the command, each one word whatever is in
// it; nothing else is replaced.
func TestTemplate(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	w := newWorker(t, client, worker.Config{})
	require.NoError(t, worker.HandleCommand(w, "k", worker.Command{Args: []string{
		"printf", "[%s]", "${args.name}", "n=${args.a.n}", "${args.list}", "${job.id}/${job.kind}", "${HOME}", "$5 ${", "${args.name",
	}}))
	run(t, w)
	id := enqueueRaw(t, client, "k", `{"name": "x; rm -rf $HOME \"${job.id}", "a": {"n": 1234567890123456789}, "list": [1, "b"]}`, nil)
	awaitState(t, client, id, jobq.StateCompleted)
	require.Equal(t, `[x; rm -rf $HOME "${job.id}][n=1234567890123456789][[1,"b"]][1/k][${HOME}][$5 ${][${args.name]`, attempts(t, client, id)[0].Output)
	for args, want := range map[string]string{
		`{}`:                   "needs args.",
		`[]`:                   "needs args.name",
		`{"name": {"a": 1}}`:   "needs args.a.n",
		`{"name": null}`:       "needs args.name",
		`{"name": "x", "a":1}`: "needs args.a.n",
	} {
		id := enqueueRaw(t, client, "k", args, nil)
		require.Contains(t, awaitState(t, client, id, jobq.StateFailed).LastError, want, args)
	}
}

// Jobs that say which program to run do so only where the worker allows it.
func TestExec(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	w := newWorker(t, client, worker.Config{})
	require.NoError(t, worker.HandleExec(w, worker.Command{Env: map[string]string{"A": "worker", "B": "worker"}}))
	run(t, w)
	folder := t.TempDir()
	args, err := json.Marshal(map[string]any{
		"cmd": []string{"sh", "-c", `echo "$A $B $JOBQ_KIND ${args.x}"; pwd`}, "env": map[string]string{"A": "job", "JOBQ_KIND": "forged"}, "cwd": folder,
	})
	require.NoError(t, err)
	id := enqueueRaw(t, client, worker.ExecKind, string(args), &jobq.EnqueueOptions{MaxAttempts: 1})
	// The shell itself chokes on ${args.x}: it came as it is.
	require.Contains(t, awaitState(t, client, id, jobq.StateFailed).LastError, "ad substitution")
	args, err = json.Marshal(map[string]any{"cmd": []string{"sh", "-c", `echo "$A $B $JOBQ_KIND"; pwd`}, "env": map[string]string{"A": "job", "JOBQ_KIND": "forged"}, "cwd": folder})
	require.NoError(t, err)
	id = enqueueRaw(t, client, worker.ExecKind, string(args), nil)
	awaitState(t, client, id, jobq.StateCompleted)
	require.Equal(t, "job worker exec\n"+folder+"\n", attempts(t, client, id)[0].Output)
	for _, bad := range []string{`{}`, `{"cmd": "ls"}`, `{"cmd": ["ls"], "shell": true}`, `{"cmd": []}`} {
		awaitState(t, client, enqueueRaw(t, client, worker.ExecKind, bad, nil), jobq.StateFailed)
	}
}
