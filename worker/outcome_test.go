package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/worker"
)

// What a handler returns decides what becomes of the job.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	errBroken := errors.New("broken")
	outcomes := map[int]func(context.Context, *worker.Job[task]) error{
		1: func(context.Context, *worker.Job[task]) error { return errBroken },
		2: func(context.Context, *worker.Job[task]) error { return worker.Retry(time.Hour, errBroken) },
		3: func(context.Context, *worker.Job[task]) error { return worker.Snooze(time.Hour) },
		4: func(context.Context, *worker.Job[task]) error {
			return fmt.Errorf("wrapped: %w", worker.Discard(errBroken))
		},
		5: func(context.Context, *worker.Job[task]) error { panic("aaah") },
		6: func(ctx context.Context, _ *worker.Job[task]) error {
			<-ctx.Done()
			return context.Cause(ctx)
		},
		7: func(context.Context, *worker.Job[task]) error { return worker.Cancel(errors.New("not needed")) },
		8: func(context.Context, *worker.Job[task]) error {
			return errors.New("nul \x00, invalid \xff, " + strings.Repeat("long ", 1<<20))
		},
		9: func(context.Context, *worker.Job[task]) error { return &worker.RetryError{Delay: -time.Hour} },
		10: func(ctx context.Context, _ *worker.Job[task]) error {
			<-ctx.Done()
			return worker.Retry(time.Hour, context.Cause(ctx))
		},
	}
	options := func(n int) *jobq.EnqueueOptions {
		switch n {
		case 1, 5, 8:
			return &jobq.EnqueueOptions{BackoffBase: time.Hour, BackoffMax: 24 * time.Hour}
		case 6:
			return &jobq.EnqueueOptions{Timeout: 20 * time.Millisecond, BackoffBase: time.Hour}
		case 9:
			return &jobq.EnqueueOptions{MaxAttempts: 1}
		case 10:
			return &jobq.EnqueueOptions{Timeout: 20 * time.Millisecond}
		}
		return nil
	}
	ids := make(map[int]int64)
	for n := range outcomes {
		ids[n] = enqueue(t, client, n, options(n))
	}
	start(t, client, nil, func(ctx context.Context, job *worker.Job[task]) error { return outcomes[job.Args.N](ctx, job) })

	for n, want := range map[int]struct {
		state    jobq.State
		attempts int
		outcome  jobq.Outcome
		err      string
	}{
		1: {jobq.StateScheduled, 1, jobq.OutcomeFailed, "broken"},
		2: {jobq.StateScheduled, 1, jobq.OutcomeFailed, "broken"},
		3: {jobq.StateScheduled, 0, jobq.OutcomeSnoozed, ""},
		4: {jobq.StateFailed, 1, jobq.OutcomeFailed, "wrapped: broken"},
		5: {jobq.StateScheduled, 1, jobq.OutcomeFailed, "panic: aaah"},
		6: {jobq.StateScheduled, 1, jobq.OutcomeTimedOut, "job timed out"},
		7: {jobq.StateCancelled, 0, jobq.OutcomeCancelled, "not needed"},
		8: {jobq.StateScheduled, 1, jobq.OutcomeFailed, "nul \uFFFD, invalid \uFFFD"},

		9:  {jobq.StateFailed, 1, jobq.OutcomeFailed, "retry asked for"},
		10: {jobq.StateScheduled, 1, jobq.OutcomeTimedOut, "job timed out"},
	} {
		job := awaitState(t, client, ids[n], want.state)
		require.Equal(t, want.attempts, job.Attempts, n)
		runs := attempts(t, client, ids[n])
		require.Len(t, runs, 1, n)
		require.Equal(t, want.outcome, runs[0].Outcome, n)
		require.Contains(t, runs[0].Error, want.err, n)
		require.LessOrEqual(t, len(runs[0].Error), 17<<10, n)
		require.LessOrEqual(t, len(job.LastError), 4000, n)
		if n == 2 || n == 3 || n == 10 {
			require.Greater(t, time.Until(job.RunAt), 50*time.Minute, n)
		}
	}
	require.Contains(t, attempts(t, client, ids[5])[0].Error, "outcome_test.go", "the stack of the panic")
}

// A job whose attempts are used up has failed; until then it comes back, and
// sees the error of the run before.
func TestAttemptsRunOut(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	type sight struct {
		attempt   int
		lastError string
	}
	seen, tokens := make(chan sight, 3), make(chan int64, 3)
	start(t, client, nil, func(_ context.Context, job *worker.Job[task]) error {
		seen <- sight{job.Attempt(), job.LastError()}
		tokens <- job.LeaseToken()
		return worker.Retry(0, fmt.Errorf("failure %d", job.Attempt()))
	})
	id := enqueue(t, client, 1, &jobq.EnqueueOptions{MaxAttempts: 3})
	job := awaitState(t, client, id, jobq.StateFailed)
	require.Equal(t, 3, job.Attempts)
	require.Equal(t, "failure 3", job.LastError)
	require.Equal(t, []sight{{1, ""}, {2, "failure 1"}, {3, "failure 2"}}, []sight{<-seen, <-seen, <-seen})
	require.IsIncreasing(t, []int64{<-tokens, <-tokens, <-tokens})
}

// The idempotency key is the same in each run of a job, also after a requeue. The job of another time with the same id, such as
// one that a failover has lost, has another.
func TestIdempotencyKeyIsOfOneJob(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	keys := make(chan string, 10)
	start(t, client, nil, func(_ context.Context, job *worker.Job[task]) error {
		keys <- job.IdempotencyKey()
		if job.Attempt() < 3 {
			return worker.Retry(0, errors.New("again"))
		}
		return nil
	})
	id := enqueue(t, client, 1, nil)
	awaitState(t, client, id, jobq.StateCompleted)
	var inSQL string
	require.NoError(t, client.Pool().QueryRow(ctx, "select id || '-' || (extract(epoch from created_at) * 1000000)::bigint from jobq.job where id = $1", id).Scan(&inSQL))
	require.NoError(t, jobtest.Requeue(client, id))
	awaitState(t, client, id, jobq.StateCompleted)
	require.Len(t, keys, 4)
	for range 4 {
		require.Equal(t, inSQL, <-keys)
	}
	for _, sql := range []string{"delete from jobq.run where id = $1", "select setval('jobq.job_id_seq', $1, false)"} {
		_, err := client.Pool().Exec(ctx, sql, id)
		require.NoError(t, err)
	}
	require.Equal(t, id, enqueue(t, client, 1, nil))
	awaitState(t, client, id, jobq.StateCompleted)
	other := <-keys
	require.NotEqual(t, inSQL, other)
	require.True(t, strings.HasPrefix(other, strconv.FormatInt(id, 10)+"-"))
}

// Completing in the handler's own transaction stores both or neither.
func TestCompleteTx(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	_, err := client.Pool().Exec(ctx, "create table public.effect (n int)")
	require.NoError(t, err)
	start(t, client, nil, func(ctx context.Context, job *worker.Job[task]) error {
		tx, err := client.Pool().Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(ctx) }()
		if _, err := tx.Exec(ctx, "insert into public.effect values ($1)", job.Args.N); err != nil {
			return err
		}
		if err := job.CompleteTx(ctx, tx); err != nil {
			return err
		}
		if job.Args.N == 2 {
			return worker.Discard(errors.New("changed my mind"))
		}
		return tx.Commit(ctx)
	})
	committed, rolledBack := enqueue(t, client, 1, nil), enqueue(t, client, 2, nil)
	awaitState(t, client, committed, jobq.StateCompleted)
	awaitState(t, client, rolledBack, jobq.StateFailed)
	rows, err := client.Pool().Query(ctx, "select n from public.effect")
	require.NoError(t, err)
	effects, err := pgx.CollectRows(rows, pgx.RowTo[int])
	require.NoError(t, err)
	require.Equal(t, []int{1}, effects)
}

// A result that PostgreSQL cannot store fails its own job; those that ended in
// the same moment are stored.
func TestUnstorableResult(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	var gate sync.WaitGroup
	gate.Add(3)
	start(t, client, nil, func(_ context.Context, job *worker.Job[task]) error {
		gate.Done()
		gate.Wait() // so that they end together
		switch job.Args.N {
		case 1:
			return job.SetResult("nul \x00")
		case 2:
			return job.SetResult(strings.Repeat("x", 2<<20))
		}
		return job.SetResult("fine")
	})
	options := &jobq.EnqueueOptions{MaxAttempts: 1}
	ids := []int64{enqueue(t, client, 0, options), enqueue(t, client, 1, options), enqueue(t, client, 2, options)}
	awaitState(t, client, ids[0], jobq.StateCompleted)
	require.Contains(t, awaitState(t, client, ids[1], jobq.StateFailed).LastError, "NUL")
	require.Contains(t, awaitState(t, client, ids[2], jobq.StateFailed).LastError, "result must be at most 1048576 bytes")
}

// Args that do not fit the handler's type are a failed attempt.
func TestUndecodableArgs(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	start(t, client, nil, func(context.Context, *worker.Job[task]) error { return nil })
	enqueued, err := client.Enqueue(context.Background(), jobq.RawArgs{Name: "task", JSON: []byte(`{"n": "text"}`)}, &jobq.EnqueueOptions{MaxAttempts: 1})
	require.NoError(t, err)
	require.Contains(t, awaitState(t, client, enqueued.ID, jobq.StateFailed).LastError, "decode args")
}

// Middleware and unit tests find what a handler has asked for with errors.As, however
// it was wrapped, and the error that it was given as well.
func TestOutcomeErrors(t *testing.T) {
	t.Parallel()
	errBroken := errors.New("broken")
	wrap := func(err error) error { return fmt.Errorf("charge order 7: %w", err) }

	var retry *worker.RetryError
	require.ErrorAs(t, wrap(worker.Retry(time.Minute, errBroken)), &retry)
	require.Equal(t, &worker.RetryError{Delay: time.Minute, Err: errBroken}, retry)
	require.ErrorIs(t, retry, errBroken)

	var snooze *worker.SnoozeError
	require.ErrorAs(t, wrap(worker.Snooze(time.Hour)), &snooze)
	require.Equal(t, &worker.SnoozeError{Delay: time.Hour}, snooze)

	var discard *worker.DiscardError
	require.ErrorAs(t, wrap(worker.Discard(errBroken)), &discard)
	require.Equal(t, &worker.DiscardError{Err: errBroken}, discard)
	require.ErrorIs(t, discard, errBroken)

	var cancelled *worker.CancelError
	require.ErrorIs(t, wrap(worker.Cancel(context.Canceled)), context.Canceled, "as Discard and Release")
	require.ErrorAs(t, wrap(worker.Cancel(errors.New("not needed"))), &cancelled)
	require.Equal(t, &worker.CancelError{Err: errors.New("not needed")}, cancelled)

	var release *worker.ReleaseError
	require.ErrorAs(t, wrap(worker.Release(errBroken)), &release)
	require.Equal(t, &worker.ReleaseError{Err: errBroken}, release)
	require.ErrorIs(t, release, errBroken)
	require.ErrorAs(t, worker.Unreached(errBroken), &release)
	require.True(t, release.Unstarted)

	for _, err := range []error{worker.Retry(0, nil), worker.Discard(nil), worker.Cancel(nil), worker.Release(nil)} {
		require.NotEmpty(t, err.Error())
	}
}
