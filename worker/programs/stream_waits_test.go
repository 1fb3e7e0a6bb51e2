package programs_test

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/worker"
	"github.com/jobq-dev/jobq/worker/programs"
)

// Jobs that wait for a process are not claimed: they do not run, they do not time out, and they hold no
// slot. Method: one process hangs with the first job; the others have a timeout that passes meanwhile,
// and jobs of another kind have all slots of the queue.
func TestJobsThatWaitForAProcess(t *testing.T) {
	t.Parallel()
	client, ctx := newClient(t), context.Background()
	w, err := worker.New(client, &worker.Config{
		Queues: map[string]worker.QueueConfig{"default": {Slots: 4}}, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	p := programs.New(w)
	require.NoError(t, p.HandleStream("s", programs.Stream{Processes: 1, Command: programs.Command{Args: []string{self, asStreamHandler}}}, nil))
	begun, proceed := make(chan int64, 4), make(chan struct{})
	require.NoError(t, worker.HandleRaw(w, "other", func(_ context.Context, job *worker.Job[jobq.RawArgs]) error {
		begun <- job.ID()
		<-proceed
		return nil
	}, nil))
	hangs := enqueueStream(t, client, "", "hang", &jobq.EnqueueOptions{Timeout: time.Hour})
	run(t, w)
	awaitState(t, client, hangs, jobq.StateRunning)
	waits := enqueueStream(t, client, `{"id": ID, "done": true}`, "", &jobq.EnqueueOptions{Timeout: 10 * time.Millisecond, MaxAttempts: 1})
	for range 4 {
		_, err := client.Enqueue(ctx, jobq.RawArgs{Name: "other", JSON: []byte("{}")}, nil)
		require.NoError(t, err)
	}
	for range 4 {
		<-begun // at once, in the four slots of the queue
	}
	job, err := client.Get(ctx, waits)
	require.NoError(t, err)
	require.Equal(t, jobq.StateAvailable, job.State)
	require.Zero(t, job.Attempts)
	close(proceed)
}
