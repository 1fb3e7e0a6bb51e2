package jobq_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// What cancel, requeue and delete do to a job in each state.
func TestActionsInEachState(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := newWorker(t)
	for from, want := range map[jobq.State]struct {
		afterCancel, afterRequeue jobq.State
		requeue, delete           error
	}{
		jobq.Scheduled: {jobq.Cancelled, jobq.Available, nil, nil},
		jobq.Available: {jobq.Cancelled, jobq.Available, nil, nil},
		jobq.Running:   {jobq.Running, jobq.Running, jobq.ErrConflict, jobq.ErrConflict},
		jobq.Completed: {jobq.Completed, jobq.Available, nil, nil},
		jobq.Failed:    {jobq.Failed, jobq.Available, nil, nil},
		jobq.Cancelled: {jobq.Cancelled, jobq.Available, nil, nil},
	} {
		id := w.inState(from, jobq.EnqueueOptions{Queue: "cancel"})
		after, err := w.client.Cancel(ctx, id)
		require.NoError(t, err, from)
		require.Equal(t, want.afterCancel, after, from)
		require.Equal(t, want.afterCancel, state(t, w.client, id), from)

		id = w.inState(from, jobq.EnqueueOptions{Queue: "requeue " + string(from)})
		require.ErrorIs(t, w.client.Requeue(ctx, id), want.requeue, from)
		require.Equal(t, want.afterRequeue, state(t, w.client, id), from)

		id = w.inState(from, jobq.EnqueueOptions{Queue: "delete", UniqueKey: "u"})
		err = w.client.Delete(ctx, id)
		require.ErrorIs(t, err, want.delete, from)
		_, gone := w.client.Get(ctx, id)
		if want.delete == nil {
			require.ErrorIs(t, gone, jobq.ErrNotFound, from)
			attempts, err := w.client.Attempts(ctx, id)
			require.NoError(t, err)
			require.Empty(t, attempts, from)
			require.Zero(t, w.count("select count(*) from jobq.unique_key"), from)
		} else {
			require.NoError(t, gone)
			require.ErrorContains(t, err, fmt.Sprintf("job %d is running", id))
			w.complete(w.claimed(id))
		}
	}
}

// A requeued job keeps its story and gets an attempt if it had none left; its
// token goes on growing, so that nobody from before can write to it.
func TestRequeueKeepsTheStory(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := newWorker(t)
	id := enqueue(t, w.client, &jobq.EnqueueOptions{MaxAttempts: 2, Tags: []string{"t"}, Timeout: time.Minute})
	for range 2 {
		w.end(w.claim("default", 1)[0], "failed", false)
	}
	require.Equal(t, jobq.Failed, state(t, w.client, id))
	require.NoError(t, w.client.Requeue(ctx, id))
	job, err := w.client.Get(ctx, id)
	require.NoError(t, err)
	require.Equal(t, 2, job.Attempts)
	require.Equal(t, 3, job.MaxAttempts)
	require.Equal(t, "no luck", job.LastError)
	require.Equal(t, []string{"t"}, job.Tags)
	require.Equal(t, time.Minute, job.Timeout)
	require.Nil(t, job.FinishedAt)
	again := w.claim("default", 1)[0]
	require.Greater(t, again.LeaseToken, job.LeaseToken)
	w.complete(again)
	job, err = w.client.Get(ctx, id)
	require.NoError(t, err)
	require.Equal(t, jobq.Completed, job.State)
	require.JSONEq(t, `{"done": true}`, string(job.Result))
	require.Equal(t, "w", job.LeaseOwner)
	attempts, err := w.client.Attempts(ctx, id)
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
	w := newWorker(t)
	options := &jobq.EnqueueOptions{UniqueKey: "u"}
	for name, end := range map[string]func(job db.JobClaimRow){
		"completed": w.complete,
		"failed":    func(job db.JobClaimRow) { w.end(job, "failed", true) },
		"cancelled": func(job db.JobClaimRow) { w.end(job, "cancelled", false) },
		"lost": func(db.JobClaimRow) {
			require.NoError(t, pgtest.UpdateRunning(ctx, w.client.Pool(), pgtest.Columns{"max_attempts": "1"}, "true"))
			w.lose()
		},
	} {
		id := enqueue(t, w.client, options)
		held := func(when string) {
			enqueued, err := w.client.Enqueue(ctx, greeting{"other"}, options)
			require.NoError(t, err)
			require.Equal(t, jobq.Enqueued{ID: id, Duplicate: true}, enqueued, "%s, %s", name, when)
		}
		held("waiting")
		for _, outcome := range []string{"failed", "released", "snoozed"} {
			job := w.claim("default", 1)[0]
			held("running")
			w.end(job, outcome, false)
			held("after it " + outcome)
		}
		w.claim("default", 1)
		w.lose()
		held("after it was lost")
		end(w.claim("default", 1)[0])
		next := enqueue(t, w.client, options)
		require.NotEqual(t, id, next, name)
		require.ErrorIs(t, w.client.Requeue(ctx, id), jobq.ErrDuplicate, name)
		require.NotEqual(t, jobq.Available, state(t, w.client, id), "a refused requeue changes nothing")
		require.NoError(t, w.client.Delete(ctx, next))
	}
}

// Large args are stored once, are there for every run and in the history, and
// go with the job.
func TestLargeArgsThroughRuns(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := newWorker(t)
	for _, length := range []int{10, 900, 1100, 1990, 2100, 500_000} {
		text := longText(length)
		enqueued, err := w.client.Enqueue(ctx, greeting{text}, nil)
		require.NoError(t, err)
		apart := 0
		if length > 1000 {
			apart = 1
		}
		has := func(args json.RawMessage) {
			t.Helper()
			require.JSONEq(t, fmt.Sprintf(`{"name": %q}`, text), string(args), "%d", length)
			require.Equal(t, apart, w.count("select count(*) from jobq.payload"), "%d", length)
		}
		get := func() {
			t.Helper()
			job, err := w.client.Get(ctx, enqueued.ID)
			require.NoError(t, err)
			has(job.Args)
		}
		get()
		for _, outcome := range []string{"failed", "released"} {
			job := w.claim("default", 1)[0]
			has(job.Args)
			get()
			w.end(job, outcome, false)
		}
		w.claim("default", 1)
		w.lose()
		w.complete(w.claim("default", 1)[0])
		get()
		require.NoError(t, w.client.Requeue(ctx, enqueued.ID))
		w.end(w.claim("default", 1)[0], "cancelled", false)
		get()
		require.NoError(t, w.client.Delete(ctx, enqueued.ID))
		require.Zero(t, w.count("select count(*) from jobq.payload"))
	}
}

// Ids and places above 2^31 go through every statement.
func TestLargeIDsThroughRuns(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := newWorker(t)
	_, err := w.client.Pool().Exec(ctx, "alter sequence jobq.job_id_seq restart 9007199254740993; alter sequence jobq.position_seq restart 9007199254740993")
	require.NoError(t, err)
	id := enqueue(t, w.client, nil)
	require.EqualValues(t, 9007199254740993, id, "which a float64 cannot hold")
	w.end(w.claim("default", 1)[0], "failed", false)
	job := w.claim("default", 1)[0]
	require.Equal(t, id, job.ID)
	answers, err := w.schema.ExtendLeases(ctx, w.client.Pool(), "w", []db.Extension{{ID: job.LeaseToken, ClaimedAt: job.StartedAt.Time, Lease: db.Interval(time.Hour)}})
	require.NoError(t, err)
	require.Equal(t, db.LeaseOK, answers[job.LeaseToken])
	w.lose()
	w.complete(w.claim("default", 1)[0])
	attempts, err := w.client.Attempts(ctx, id)
	require.NoError(t, err)
	require.Len(t, attempts, 3)
	page, err := w.client.List(ctx, jobq.Filter{Before: id + 1})
	require.NoError(t, err)
	require.Equal(t, id, page.Jobs[0].ID)
	encoded, err := json.Marshal(page.Jobs[0])
	require.NoError(t, err)
	require.Contains(t, string(encoded), `"id":9007199254740993`)
}
