package worker_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/monitor"
)

// vanishing is the number of a job whose workers are killed (kill -9) until three of its runs were lost.
const vanishing = -2

// endsWith waits until a worker process has ended, and requires its exit code; -1 for one that was killed.
func endsWith(t *testing.T, client *jobq.Client, ended chan int, code int, log *logBuffer) {
	t.Helper()
	select {
	case got := <-ended:
		require.Equal(t, code, got, log)
	case <-time.After(patience):
		require.Fail(t, "the worker does not end", "jobs: %s\n%s", states(t, client), log)
	}
}

// A job with one attempt whose workers, with their janitors, are killed three times completes with max_lost: no attempt is used, and three lost runs are
// shown. A neighbour without max_lost is as ever: its only attempt is used by the first loss.
func TestMaxLostSurvivesKilledWorkers(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client, log := newClient(t), &logBuffer{}
	options := jobq.EnqueueOptions{MaxAttempts: 1, MaxLost: 20, BackoffBase: time.Millisecond, BackoffMax: 10 * time.Millisecond}
	id := enqueue(t, client, vanishing, &options)
	for range 3 {
		_, ended := startPoisonChild(t, client, log)
		endsWith(t, client, ended, -1, log)
	}
	_, ended := startPoisonChild(t, client, log)
	job := awaitState(t, client, id, jobq.StateCompleted)
	require.Equal(t, []int{0, 3, 20}, []int{job.Attempts, job.Lost, job.MaxLost})
	runs, err := monitor.New(client).Attempts(ctx, id)
	require.NoError(t, err)
	require.Len(t, runs, 3)
	for _, run := range runs {
		require.Equal(t, []any{jobq.OutcomeLost, 1}, []any{run.Outcome, run.Number})
	}
	options.MaxLost = 0
	without := enqueue(t, client, poison, &options)
	endsWith(t, client, ended, 3, log)
	child, ended := startPoisonChild(t, client, log)
	job = awaitState(t, client, without, jobq.StateFailed)
	require.Equal(t, []int{1, 0, 0}, []int{job.Attempts, job.Lost, job.MaxLost})
	require.NoError(t, child.Process.Signal(syscall.SIGTERM))
	<-ended
}

// A job that ends each of its workers does not run for ever with max_lost: the 21st loss fails it, alone in its worker, and the
// error and `jobq why` say so. An attempt was not used.
func TestMaxLostEnds(t *testing.T) {
	t.Parallel()
	const maxLost = 20
	ctx := context.Background()
	client, log := newClient(t), &logBuffer{}
	id := enqueue(t, client, poison, &jobq.EnqueueOptions{MaxAttempts: 1, MaxLost: maxLost, BackoffBase: time.Millisecond, BackoffMax: 10 * time.Millisecond})
	beside := enqueue(t, client, 1, &jobq.EnqueueOptions{MaxAttempts: 5})
	for range maxLost + 1 {
		_, ended := startPoisonChild(t, client, log)
		endsWith(t, client, ended, 3, log)
	}
	child, ended := startPoisonChild(t, client, log)
	job := awaitState(t, client, id, jobq.StateFailed)
	require.Equal(t, []int{0, maxLost + 1, maxLost, maxLost + 1}, []int{job.Attempts, job.Lost, job.MaxLost, job.Crashes})
	require.Contains(t, job.LastError, "alone in its worker when that was lost, 19 times in a row")
	require.Contains(t, job.LastError, "; it was lost 21 times, and max_lost is 20")
	reasons, err := monitor.New(client).Why(ctx, id)
	require.NoError(t, err)
	says, _ := format.Why(id, reasons[0], time.Now())
	require.Contains(t, says, "after 0 attempts of 1 and 21 lost runs of 20: ")
	awaitState(t, client, beside, jobq.StateCompleted)
	require.NoError(t, child.Process.Signal(syscall.SIGTERM))
	<-ended
}
