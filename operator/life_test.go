package operator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// What cancel, requeue and delete do to a job in each state.
func TestActionsInEachState(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	for from, want := range map[jobq.State]struct {
		afterCancel, afterRequeue jobq.State
		requeue, delete           error
	}{
		jobq.StateScheduled: {jobq.StateCancelled, jobq.StateAvailable, nil, nil},
		jobq.StateAvailable: {jobq.StateCancelled, jobq.StateAvailable, nil, nil},
		jobq.StateRunning:   {jobq.StateRunning, jobq.StateRunning, jobq.ErrConflict, jobq.ErrConflict},
		jobq.StateCompleted: {jobq.StateCompleted, jobq.StateAvailable, nil, nil},
		jobq.StateFailed:    {jobq.StateFailed, jobq.StateAvailable, nil, nil},
		jobq.StateCancelled: {jobq.StateCancelled, jobq.StateAvailable, nil, nil},
	} {
		id := w.InState(from, jobq.EnqueueOptions{Queue: "cancel"})
		after, err := w.Client.Cancel(ctx, id)
		require.NoError(t, err, from)
		require.Equal(t, want.afterCancel, after, from)
		require.Equal(t, want.afterCancel, jobtest.State(t, w.Client, id), from)

		id = w.InState(from, jobq.EnqueueOptions{Queue: "requeue " + string(from)})
		require.ErrorIs(t, jobtest.Requeue(w.Client, id), want.requeue, from)
		require.Equal(t, want.afterRequeue, jobtest.State(t, w.Client, id), from)

		id = w.InState(from, jobq.EnqueueOptions{Queue: "delete", UniqueKey: "u"})
		err = jobtest.Delete(w.Client, id)
		require.ErrorIs(t, err, want.delete, from)
		_, gone := w.Client.Get(ctx, id)
		if want.delete == nil {
			require.ErrorIs(t, gone, jobq.ErrNotFound, from)
			attempts, err := w.Monitor.Attempts(ctx, id)
			require.NoError(t, err)
			require.Empty(t, attempts, from)
			require.Zero(t, w.Count("select count(*) from jobq.unique_key"), from)
		} else {
			require.NoError(t, gone)
			require.ErrorContains(t, err, fmt.Sprintf("job %d is running", id))
			w.Complete(w.Claimed(id))
		}
	}
}

// A requeued job keeps its story and gets an attempt if it had none left; its
// token goes on growing, so that nobody from before can write to it.
func TestRequeueKeepsTheStory(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	id := jobtest.Enqueue(t, w.Client, &jobq.EnqueueOptions{MaxAttempts: 2, Tags: []string{"t"}, Timeout: time.Minute})
	for range 2 {
		w.End(w.Claim("default", 1)[0], "failed", false)
	}
	require.Equal(t, jobq.StateFailed, jobtest.State(t, w.Client, id))
	require.NoError(t, jobtest.Requeue(w.Client, id))
	job, err := w.Client.Get(ctx, id)
	require.NoError(t, err)
	require.Equal(t, 2, job.Attempts)
	require.Equal(t, 3, job.MaxAttempts)
	require.Equal(t, "no luck", job.LastError)
	require.Equal(t, []string{"t"}, job.Tags)
	require.Equal(t, time.Minute, job.Timeout)
	require.Nil(t, job.FinishedAt)
	again := w.Claim("default", 1)[0]
	require.Greater(t, again.LeaseToken, job.LeaseToken)
	w.Complete(again)
	job, err = w.Client.Get(ctx, id)
	require.NoError(t, err)
	require.Equal(t, jobq.StateCompleted, job.State)
	require.JSONEq(t, `{"done": true}`, string(job.Result))
	require.Equal(t, "w", job.LeaseOwner)
	attempts, err := w.Monitor.Attempts(ctx, id)
	require.NoError(t, err)
	require.Len(t, attempts, 3)
	for i, attempt := range attempts {
		require.Equal(t, i+1, attempt.Number)
		require.True(t, i == 0 || attempt.LeaseToken > attempts[i-1].LeaseToken)
		require.Equal(t, "w", attempt.WorkerID)
		require.False(t, attempt.FinishedAt.Before(attempt.StartedAt))
	}
	require.Equal(t, jobq.OutcomeFailed, attempts[0].Outcome)
	require.Equal(t, "no luck", attempts[0].Error)
	require.Equal(t, jobq.OutcomeCompleted, attempts[2].Outcome)
	require.Equal(t, "said", attempts[2].Output)
	require.Equal(t, again.LeaseToken, attempts[2].LeaseToken)
}

// A key is kept through retries, release and loss of the worker, and is free
// as soon as the job has ended, in whatever way.
func TestUniqueKeyThroughRuns(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	options := &jobq.EnqueueOptions{UniqueKey: "u"}
	for name, end := range map[string]func(job db.JobClaimRow){
		"completed": w.Complete,
		"failed":    func(job db.JobClaimRow) { w.End(job, "failed", true) },
		"cancelled": func(job db.JobClaimRow) { w.End(job, "cancelled", false) },
		"lost": func(db.JobClaimRow) {
			require.NoError(t, pgtest.UpdateRunning(ctx, w.Client.Pool(), pgtest.Columns{"max_attempts": "1"}, "true"))
			w.Lose()
		},
	} {
		id := jobtest.Enqueue(t, w.Client, options)
		held := func(when string) {
			enqueued, err := w.Client.Enqueue(ctx, jobtest.Greeting{Name: "other"}, options)
			require.NoError(t, err)
			require.Equal(t, jobq.Enqueued{ID: id, Duplicate: true}, enqueued, "%s, %s", name, when)
		}
		held("waiting")
		for _, outcome := range []string{"failed", "released", "snoozed"} {
			job := w.Claim("default", 1)[0]
			held("running")
			w.End(job, outcome, false)
			held("after it " + outcome)
		}
		w.Claim("default", 1)
		w.Lose()
		held("after it was lost")
		end(w.Claim("default", 1)[0])
		next := jobtest.Enqueue(t, w.Client, options)
		require.NotEqual(t, id, next, name)
		require.ErrorIs(t, jobtest.Requeue(w.Client, id), jobq.ErrDuplicate, name)
		require.NotEqual(t, jobq.StateAvailable, jobtest.State(t, w.Client, id), "a refused requeue changes nothing")
		require.NoError(t, jobtest.Delete(w.Client, next))
	}
}

// Large args are stored once, are there for every run and in the history, and
// go with the job.
func TestLargeArgsThroughRuns(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	for _, length := range []int{10, 900, 1100, 1990, 2100, 500_000} {
		text := jobtest.LongText(length)
		enqueued, err := w.Client.Enqueue(ctx, jobtest.Greeting{Name: text}, nil)
		require.NoError(t, err)
		apart := 0
		if length > 1000 {
			apart = 1
		}
		has := func(args json.RawMessage) {
			t.Helper()
			require.JSONEq(t, fmt.Sprintf(`{"name": %q}`, text), string(args), "%d", length)
			require.Equal(t, apart, w.Count("select count(*) from jobq.payload"), "%d", length)
		}
		get := func() {
			t.Helper()
			job, err := w.Client.Get(ctx, enqueued.ID)
			require.NoError(t, err)
			has(job.Args)
		}
		get()
		for _, outcome := range []string{"failed", "released"} {
			job := w.Claim("default", 1)[0]
			has(job.Args)
			get()
			w.End(job, outcome, false)
		}
		w.Claim("default", 1)
		w.Lose()
		w.Complete(w.Claim("default", 1)[0])
		get()
		require.NoError(t, jobtest.Requeue(w.Client, enqueued.ID))
		w.End(w.Claim("default", 1)[0], "cancelled", false)
		get()
		require.NoError(t, jobtest.Delete(w.Client, enqueued.ID))
		require.Zero(t, w.Count("select count(*) from jobq.payload"))
	}
}

// Ids and places above 2^31 go through every statement.
func TestLargeIDsThroughRuns(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	_, err := w.Client.Pool().Exec(ctx, "alter sequence jobq.job_id_seq restart 9007199254740993; alter sequence jobq.position_seq restart 9007199254740993")
	require.NoError(t, err)
	id := jobtest.Enqueue(t, w.Client, nil)
	require.EqualValues(t, 9007199254740993, id, "which a float64 cannot hold")
	w.End(w.Claim("default", 1)[0], "failed", false)
	job := w.Claim("default", 1)[0]
	require.Equal(t, id, job.ID)
	answers, err := w.Schema.ExtendLeases(ctx, w.Client.Pool(), "w", []db.Extension{{ID: job.LeaseToken, ClaimedAt: job.StartedAt.Time, Lease: db.Interval(time.Hour)}})
	require.NoError(t, err)
	require.Equal(t, db.LeaseOK, answers[job.LeaseToken])
	w.Lose()
	w.Complete(w.Claim("default", 1)[0])
	attempts, err := w.Monitor.Attempts(ctx, id)
	require.NoError(t, err)
	require.Len(t, attempts, 3)
	page, err := w.Client.List(ctx, jobq.Filter{Before: id + 1})
	require.NoError(t, err)
	require.Equal(t, id, page.Jobs[0].ID)
	encoded, err := json.Marshal(page.Jobs[0])
	require.NoError(t, err)
	require.Contains(t, string(encoded), `"id":9007199254740993`)
}
