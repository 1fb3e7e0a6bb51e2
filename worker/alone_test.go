package worker_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	osexec "os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/internal/sleep"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/worker"
)

// poisonChild is the variable that makes the test program a worker of this database, which the job
// with the number poison ends.
const poisonChild = "JOBQ_POISON_CHILD"

const poison = -1

func runPoisonChild(url string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // it ends with its parent
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(4)
	}()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	client, err := jobq.NewClient(pool, nil)
	if err != nil {
		return err
	}
	w, err := worker.New(client, &worker.Config{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	err = worker.Handle(w, func(ctx context.Context, job *worker.Job[task]) error {
		if job.Args.N == poison {
			_ = sleep.For(ctx, 20*time.Millisecond) // others are in the middle of theirs
			os.Exit(3)
		}
		return sleep.For(ctx, 50*time.Millisecond)
	}, nil)
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// startPoisonChild starts a worker process and returns its exit code when it has ended.
func startPoisonChild(t *testing.T, client *jobq.Client, log *logBuffer) (child *osexec.Cmd, ended chan int) {
	t.Helper()
	child, ended = osexec.Command(os.Args[0]), make(chan int, 1) // #nosec G204 -- this test program
	child.Env, child.Stderr = append(os.Environ(), poisonChild+"="+client.Pool().Config().ConnString()), log
	_, err := child.StdinPipe() // which this process holds open
	require.NoError(t, err)
	require.NoError(t, child.Start())
	go func() {
		_ = child.Wait()
		ended <- child.ProcessState.ExitCode()
	}()
	return child, ended
}

// A job ends its worker's process, and the worker is restarted at once, 50 times, with other jobs that
// come all the time. None of these fails, not even those with two attempts; the poison does, and the log
// and `jobq why` name it.
func TestPoisonJobTakesNoInnocents(t *testing.T) {
	t.Parallel()
	const restarts = 50
	ctx := context.Background()
	client, log := newClient(t), &logBuffer{}
	add := func(n, maxAttempts int) int64 {
		// No janitor makes a suspect available: its worker sees when it is due.
		return enqueue(t, client, n, &jobq.EnqueueOptions{MaxAttempts: maxAttempts, BackoffBase: time.Millisecond, BackoffMax: 10 * time.Millisecond})
	}
	id := add(poison, restarts)
	for n := range 20 {
		add(n, 2+n%7)
	}
	for restart := 1; ; restart++ {
		require.LessOrEqual(t, restart, 2*restarts)
		_, ended := startPoisonChild(t, client, log)
		code := <-ended
		require.Equal(t, 3, code, log)
		job, err := client.Get(ctx, id)
		require.NoError(t, err)
		if job.State == jobq.StateRunning && job.Attempts == restarts-1 {
			break // the next worker finds out that this was its last attempt
		}
		for n := range 5 {
			add(n, 2+n)
		}
	}
	child, ended := startPoisonChild(t, client, log)
	require.Eventually(t, func() bool {
		return number(t, client, "select count(*) from jobq.job where state not in ('completed', 'failed')") == 0
	}, patience, 10*time.Millisecond)
	require.NoError(t, child.Process.Signal(syscall.SIGTERM))
	<-ended
	require.Zero(t, number(t, client, "select count(*) from jobq.job where state <> 'completed' and id <> $1", id), "innocents that have failed")
	require.LessOrEqual(t, number(t, client, "select coalesce(max(attempts), 0) from jobq.job where id <> $1", id), 2, "attempts that innocents have lost")
	job := awaitState(t, client, id, jobq.StateFailed)
	require.Equal(t, restarts, job.Attempts)
	require.Equal(t, restarts, job.Crashes)
	require.Contains(t, job.LastError, fmt.Sprintf("alone in its worker when that was lost, %d in a row", restarts-2))
	require.Contains(t, log.String(), `msg="a job was alone in its worker when that was lost" worker=`)
	require.Contains(t, log.String(), fmt.Sprintf("job_id=%d", id))
	reasons, err := monitor.New(client).Why(ctx, id)
	require.NoError(t, err)
	says, _ := format.Why(id, reasons[0], time.Now())
	require.Contains(t, says, "alone in its worker when that was lost", "jobq why")
}
