package programs_test

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/worker"
	"github.com/jobq-dev/jobq/worker/programs"
)

// startShell runs a worker whose jobs of kind "k" a shell runs.
func startShell(t *testing.T, client *jobq.Client, script string) *running {
	t.Helper()
	w, err := worker.New(client, &worker.Config{NoJanitor: true, DrainTimeout: -1, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	p := programs.New(w)
	command := shellCommand(script)
	command.Grace = time.Minute // the scripts use none of it
	require.NoError(t, p.HandleCommand("k", command, nil))
	return run(t, w)
}

func awaitStage(t *testing.T, client *jobq.Client, id int64) {
	t.Helper()
	require.Eventually(t, func() bool {
		job, err := client.Get(context.Background(), id)
		return err == nil && job.Progress != nil && job.Progress.Stage == "up"
	}, patience, 2*time.Millisecond)
}

// A checkpoint that a program writes after SIGTERM is stored, and an exit code
// that means something of its own does not hide that it was stopped.
func TestStopKeepsCheckpointAndCause(t *testing.T) {
	t.Parallel()
	for code, stop := range map[string]string{"1": "drain", "65": "drain", "75": "timeout", "065": "cancel"} {
		client := newClient(t)
		r := startShell(t, client, `trap 'echo "{\"checkpoint\": {\"at\": 7}}" >&3; exit `+strings.TrimPrefix(code, "0")+`' TERM
			echo '{"stage": "up"}' >&3; while :; do sleep 0.02; done`)
		options := &jobq.EnqueueOptions{BackoffBase: time.Hour}
		if stop == "timeout" {
			options.Timeout = 8 * time.Second // the script has set its trap by then
		}
		id := enqueueRaw(t, client, "k", "{}", options)
		want, counted := jobq.StateAvailable, 0
		switch stop {
		case "timeout":
			want, counted = jobq.StateScheduled, 1
		case "cancel":
			want = jobq.StateCancelled
			awaitStage(t, client, id)
			_, err := client.Cancel(context.Background(), id)
			require.NoError(t, err)
		case "drain":
			awaitStage(t, client, id)
			require.NoError(t, r.drain())
		}
		require.Eventually(t, func() bool {
			job, err := client.Get(context.Background(), id)
			return err == nil && job.State == want && job.LeaseToken > 0
		}, patience, 2*time.Millisecond, stop)
		job, err := client.Get(context.Background(), id)
		require.NoError(t, err)
		require.Equal(t, counted, job.Attempts, stop)
		require.JSONEq(t, `{"at": 7}`, string(job.Checkpoint), stop)
	}
}

// What a checkpoint becomes in the database still fits into the next run's
// environment; one that would not is refused when it is saved.
func TestCheckpointFitsTheNextRun(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	startShell(t, client, `if [ -n "$JOBQ_CHECKPOINT" ]; then exit 0; fi; cat | cut -c2- | tr -d '}' | sed 's/.*"c"://; s/^ */{"checkpoint":/; s/$/}/' >&3; exit 75`)
	ones := "[" + strings.Repeat("1,", 48_000) + "1]"
	id := enqueueRaw(t, client, "k", `{"c":`+ones+`}`, nil)
	require.Eventually(t, func() bool {
		job, err := client.Get(context.Background(), id)
		return err == nil && job.State == jobq.StateScheduled
	}, patience, 2*time.Millisecond)
	require.NoError(t, jobtest.Requeue(client, id))
	awaitState(t, client, id, jobq.StateCompleted)

	startShellKind(t, client, "big", `awk 'BEGIN { printf "{\"checkpoint\":["; for (i = 0; i < 1000; i++) printf "1e300,"; print "1]}" }' >&3`)
	id = enqueueRaw(t, client, "big", "{}", &jobq.EnqueueOptions{MaxAttempts: 1})
	require.Contains(t, awaitState(t, client, id, jobq.StateFailed).LastError, "keep the bulk elsewhere")

	// A line that cannot be understood is not hidden by a snooze.
	startShellKind(t, client, "garbled", `echo '{"checkpiont": 1}' >&3; echo '{"snooze": "1h"}' >&3`)
	id = enqueueRaw(t, client, "garbled", "{}", &jobq.EnqueueOptions{MaxAttempts: 1})
	require.Contains(t, awaitState(t, client, id, jobq.StateFailed).LastError, "checkpiont")
}

func startShellKind(t *testing.T, client *jobq.Client, kind, script string) {
	t.Helper()
	w := newWorker(t, client, worker.Config{})
	p := programs.New(w)
	require.NoError(t, p.HandleCommand(kind, shellCommand(script), nil))
	run(t, w)
}

// A connection that breaks after the server has begun is a failed attempt: no
// run posts its job twice.
func TestHTTPPostsOnce(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	var posts atomic.Int32
	startHTTP(t, client, func(w http.ResponseWriter, _ *http.Request) {
		if posts.Add(1) == 1 { // the connection is used again only after an answer
			return
		}
		connection, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_ = connection.Close()
		}
	})
	awaitState(t, client, enqueueHTTP(t, client, `{}`, nil), jobq.StateCompleted)
	id := enqueueHTTP(t, client, `{}`, &jobq.EnqueueOptions{MaxAttempts: 1})
	awaitState(t, client, id, jobq.StateFailed)
	require.Equal(t, int32(2), posts.Load())
}

// A message on descriptor 3 of a process that is kept could be taken for the
// next job's: it ends the process and fails the attempt.
func TestStreamDescriptor3(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	startStream(t, client, &worker.Config{}, programs.Stream{})
	id := enqueueStream(t, client, "", "descriptor 3", &jobq.EnqueueOptions{MaxAttempts: 1})
	require.Contains(t, awaitState(t, client, id, jobq.StateFailed).LastError, "file descriptor 3")
}

// A program that somebody else ends with SIGTERM while the worker drains was
// stopped with it: the job goes back and no attempt is counted.
func TestStoppedWithTheWorker(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	end := filepath.Join(t.TempDir(), "end")
	w := newWorker(t, client, worker.Config{DrainTimeout: time.Minute})
	p := programs.New(w)
	require.NoError(t, p.HandleCommand("k", shellCommand(`echo '{"stage": "up"}' >&3; until [ -e `+end+` ]; do sleep 0.02; done; kill -TERM $$`), nil))
	r := run(t, w)
	id := enqueueRaw(t, client, "k", "{}", nil)
	awaitStage(t, client, id)
	drained := make(chan error, 1)
	go func() { drained <- r.drain() }()
	require.Eventually(t, func() bool { return programs.IsDraining(p) }, patience, 2*time.Millisecond)
	require.NoError(t, os.WriteFile(end, nil, 0o600))
	require.NoError(t, receive(t, drained, "the end of the drain"))
	require.Zero(t, awaitState(t, client, id, jobq.StateAvailable).Attempts)
}
