package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/worker"
)

// stepResult is what is stored of a step.
func stepResult(t *testing.T, pool *pgxpool.Pool, id int64, name string) (stored json.RawMessage) {
	t.Helper()
	require.NoError(t, pool.QueryRow(context.Background(), "select result from jobq.step where job_id = $1 and name = $2", id, name).Scan(&stored))
	return stored
}

// twoSteps does two steps, and tells what they have returned.
func twoSteps(ctx context.Context, pool *pgxpool.Pool, value string) (string, error) {
	first, err := jobq.Step(ctx, "first", func(context.Context) (string, error) { return value, nil })
	if err != nil {
		return "", fmt.Errorf("in the handler: %w", err)
	}
	second, err := jobq.StepTx(ctx, pool, "second", func(context.Context, pgx.Tx) (string, error) { return value + "!", nil })
	return first + second, err
}

// doneSteps makes a job that has plain args and two steps that are done under the key k1, and waits.
func doneSteps(t *testing.T, pool *pgxpool.Pool, value string) int64 {
	t.Helper()
	client := clientWith(t, pool, newKeyring(t, "k1"))
	plain := clientWith(t, pool, nil)
	id := enqueue(t, plain, 1, &jobq.EnqueueOptions{MaxAttempts: 1})
	r := start(t, client, nil, func(ctx context.Context, _ *worker.Job[task]) error {
		if _, err := twoSteps(ctx, pool, value); err != nil {
			return err
		}
		return worker.Snooze(time.Hour)
	})
	awaitState(t, plain, id, jobq.StateScheduled)
	require.NoError(t, r.drain())
	return id
}

// Results of steps are stored encrypted, and read again after a rotation of the keys. Events
// are stored as they came.
func TestStepsEncoded(t *testing.T) {
	t.Parallel()
	pool, ctx := pgtest.Pool(t), context.Background()
	plain, rotated := clientWith(t, pool, nil), newKeyring(t, "k2", "k1")
	id := doneSteps(t, pool, "plain ann")
	requireEncrypted(t, "k1", stepResult(t, pool, id, "first"))
	requireEncrypted(t, "k1", stepResult(t, pool, id, "second"))
	_, err := plain.Emit(ctx, "paid", "by ann")
	require.NoError(t, err)
	require.NoError(t, jobtest.Requeue(plain, id))
	got := make(chan string, 3)
	start(t, clientWith(t, pool, rotated), nil, func(ctx context.Context, _ *worker.Job[task]) error {
		both, err := twoSteps(ctx, pool, "done again")
		if err != nil {
			return err
		}
		paid, err := jobq.WaitEvent[string](ctx, "paid", 0)
		if err != nil {
			return err
		}
		third, err := jobq.Step(ctx, "third", func(context.Context) (string, error) { return "new", nil })
		got <- both + " " + paid + " " + third
		return err
	})
	awaitState(t, plain, id, jobq.StateCompleted)
	require.Equal(t, "plain annplain ann! by ann new", receive(t, got, "the results"))
	requireEncrypted(t, "k1", stepResult(t, pool, id, "first"))
	requireEncrypted(t, "k2", stepResult(t, pool, id, "third"))
	require.Equal(t, `"by ann"`, string(stepResult(t, pool, id, "paid")))

	job, err := plain.Get(ctx, id)
	require.NoError(t, err)
	listed, err := monitor.New(plain).Steps(ctx, id)
	require.NoError(t, err)
	want := []string{`"plain ann"`, `"plain ann!"`, `"by ann"`, `"new"`}
	require.Len(t, listed, len(want))
	for i := range listed {
		if listed[i].Type == monitor.StepPlain {
			require.ErrorIs(t, listed[i].Decode(ctx, newKeyring(t, "k9"), job), jobq.ErrUnreadable)
			_, encrypted := jobq.EncryptedWith(listed[i].Result)
			require.True(t, encrypted, "as it was")
		}
		require.NoError(t, listed[i].Decode(ctx, rotated, job))
		require.Equal(t, want[i], string(listed[i].Result))
	}
}

// A step whose result cannot be decoded makes the job wait, uses no attempt, and is not done again. The job
// goes on once the result can be read.
func TestUnreadableStep(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		codec  jobq.Codec // the worker's
		change string     // what somebody does to the rows
		want   string
	}{
		"no keys":         {nil, "", `result of step "first" cannot be decoded: encrypted with key "k1": there are no keys here`},
		"unknown key":     {newKeyring(t, "k9"), "", `encrypted with key "k1": it is none of the keys here, which are k9`},
		"changed":         {newKeyring(t, "k1"), `update jobq.step set result = jsonb_set(result, '{v}', to_jsonb(reverse(left(result ->> 'v', 40)) || substr(result ->> 'v', 41)))`, "the value was changed"},
		"of another step": {newKeyring(t, "k1"), `update jobq.step s set result = o.result from jobq.step o where o.job_id = s.job_id and o.name <> s.name`, "belongs to another"},
		"of another job":  {newKeyring(t, "k1"), `update jobq.step s set result = o.result from jobq.step o where o.job_id <> s.job_id and o.name = s.name`, "belongs to another"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Pool(t)
			plain := clientWith(t, pool, nil)
			doneSteps(t, pool, "of another")
			id := doneSteps(t, pool, "plain ann")
			if test.change != "" {
				exec(t, pool, test.change)
			}
			for range 2 { // the history has the second only if it is for another reason
				require.NoError(t, jobtest.Requeue(plain, id))
				got := make(chan string, 1)
				r := start(t, clientWith(t, pool, test.codec), nil, func(ctx context.Context, _ *worker.Job[task]) error {
					both, err := twoSteps(ctx, pool, "done again")
					got <- both
					return err
				})
				require.Empty(t, receive(t, got, "the end of a run"))
				job := awaitState(t, plain, id, jobq.StateScheduled)
				require.Zero(t, job.Attempts)
				require.Contains(t, job.LastError, test.want)
				require.NoError(t, r.drain())
				require.EqualValues(t, 1, r.Counts().Unreadable)
				require.Len(t, attempts(t, plain, id), 2, "and the one that has done the steps")
			}
			if test.change != "" {
				return
			}
			require.NoError(t, jobtest.Requeue(plain, id))
			got := make(chan string, 1)
			start(t, clientWith(t, pool, newKeyring(t, "k1")), nil, func(ctx context.Context, _ *worker.Job[task]) error {
				both, err := twoSteps(ctx, pool, "done again")
				got <- both
				return err
			})
			require.Equal(t, "plain annplain ann!", receive(t, got, "the results"))
			awaitState(t, plain, id, jobq.StateCompleted)
		})
	}
}

// Errors are stored as plain text: that an encrypted result does not fit is told without it. What is
// larger when it is encrypted is refused with an error that says so.
func TestStepErrorsAreNotQuoted(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	plain := clientWith(t, pool, nil)
	id := doneSteps(t, pool, "secret 4711")
	require.NoError(t, jobtest.Requeue(plain, id))
	start(t, clientWith(t, pool, newKeyring(t, "k1")), nil, func(ctx context.Context, _ *worker.Job[task]) error {
		_, misfit := jobq.Step(ctx, "first", func(context.Context) (time.Time, error) { return time.Time{}, nil })
		_, large := jobq.Step(ctx, "large", func(context.Context) ([]byte, error) { return make([]byte, 750<<10), nil })
		if !errors.Is(large, jobq.ErrInvalid) {
			return fmt.Errorf("not refused: %w", large)
		}
		return errors.Join(misfit, large)
	})
	lastError := awaitState(t, plain, id, jobq.StateFailed).LastError
	require.Contains(t, lastError, `step "first": decode what is stored: it does not fit time.Time`)
	require.Contains(t, lastError, "step must be at most 1048576 bytes as stored")
	require.NotContains(t, lastError, "4711")
}
