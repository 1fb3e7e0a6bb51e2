package operator_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/operator"
)

// settle does what a janitor does, until no job is to be looked at but those that are looked at for a while.
func settle(t *testing.T, w *jobtest.Worker) {
	t.Helper()
	ctx := context.Background()
	require.Eventually(t, func() bool {
		_, err := w.Client.Pool().Exec(ctx, "update jobq.dependency_look set look_at = clock_timestamp() where look_at > clock_timestamp()")
		require.NoError(t, err)
		_, err = w.Queries.DependencyStep(ctx, db.DueFrom(time.Time{}), 500)
		require.NoError(t, err)
		return w.Count("select count(*) from jobq.dependency_look where not is_new or sure_from is null") == 0
	}, time.Minute, time.Millisecond)
}

// failWithChildren fails the first job of the queue, and cancels those that wait for it.
func failWithChildren(t *testing.T, w *jobtest.Worker, queue string) {
	t.Helper()
	w.End(w.Claim(queue, 1)[0], "failed", true)
	settle(t, w)
}

func requireState(t *testing.T, w *jobtest.Worker, want jobq.State, ids ...int64) {
	t.Helper()
	for _, id := range ids {
		require.Equal(t, want, jobtest.State(t, w.Client, id), "job %d", id)
	}
}

// A requeue with dependents lets all jobs wait again that were cancelled because the job had failed: a
// chain, and a job whose other parent comes back later than it is first looked at. They run in
// their order then. An undo takes all of it back, in one.
func TestRequeueWithDependents(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	ana := operator.New(w.Client, "ana@laptop via jobq")
	after := func(options jobq.EnqueueOptions, ids ...int64) int64 {
		options.After = ids
		return jobtest.Enqueue(t, w.Client, &options)
	}
	a := after(jobq.EnqueueOptions{MaxAttempts: 1})
	b := after(jobq.EnqueueOptions{UniqueKey: "b"}, a)
	c := after(jobq.EnqueueOptions{Delay: time.Hour}, b)
	d := after(jobq.EnqueueOptions{}, a, c)
	byHand := after(jobq.EnqueueOptions{}, a)
	_, err := w.Client.Cancel(ctx, byHand)
	require.NoError(t, err)
	runs := after(jobq.EnqueueOptions{Queue: "others", OnParentFailure: jobq.ParentFailureRun}, a)
	failWithChildren(t, w, "default")
	requireState(t, w, jobq.StateCancelled, b, c, d, byHand)
	requireState(t, w, jobq.StateAvailable, runs)
	before := []string{w.Story(a), w.Story(b), w.Story(c), w.Story(d)}

	acted, err := ana.RequeueWithDependents(ctx, operator.Target{ID: a})
	require.NoError(t, err)
	require.Equal(t, []operator.ActedJob{{ID: a, Before: jobq.StateFailed, After: jobq.StateAvailable, Changed: true}}, acted.Jobs)
	require.Equal(t, &operator.ActedDependents{Requeued: 3}, acted.Dependents)
	settle(t, w)
	requireState(t, w, jobq.StateWaiting, b, c, d)
	requireState(t, w, jobq.StateCancelled, byHand)

	undone, err := ana.Undo(ctx, acted.AuditID)
	require.NoError(t, err)
	require.Empty(t, undone.Problems())
	require.Equal(t, before, []string{w.Story(a), w.Story(b), w.Story(c), w.Story(d)})
	settle(t, w)
	requireState(t, w, jobq.StateCancelled, b, c, d)

	_, err = ana.RequeueWithDependents(ctx, operator.Target{ID: a})
	require.NoError(t, err)
	w.Complete(w.Claim("default", 10)[0])
	settle(t, w)
	requireState(t, w, jobq.StateAvailable, b)
	requireState(t, w, jobq.StateWaiting, c, d)
	w.Complete(w.Claim("default", 10)[0])
	settle(t, w)
	requireState(t, w, jobq.StateScheduled, c)
	requireState(t, w, jobq.StateWaiting, d)
}

// A job that waits for another parent, too, which has failed and is not requeued, stays cancelled,
// and the answer says why. Requeued together, both parents bring it back.
func TestRequeueWithDependentsOfTwo(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	ana := operator.New(w.Client, "ana@laptop via jobq")
	first := jobtest.Enqueue(t, w.Client, &jobq.EnqueueOptions{MaxAttempts: 1})
	second := jobtest.Enqueue(t, w.Client, &jobq.EnqueueOptions{MaxAttempts: 1})
	child := jobtest.Enqueue(t, w.Client, &jobq.EnqueueOptions{After: []int64{first, second}})
	failWithChildren(t, w, "default")
	failWithChildren(t, w, "default")

	acted, err := ana.RequeueWithDependents(ctx, operator.Target{ID: first})
	require.NoError(t, err)
	problem := fmt.Sprintf("it also waits for job %d, which has failed: requeue that with it", second)
	require.Equal(t, &operator.ActedDependents{Refused: 1, Problems: []operator.ActedJob{
		{ID: child, Before: jobq.StateCancelled, Problem: problem, Code: operator.CodeConflict},
	}}, acted.Dependents)
	requireState(t, w, jobq.StateCancelled, child)

	acted, err = ana.RequeueWithDependents(ctx, operator.Target{ID: first}, operator.Target{ID: second})
	require.NoError(t, err)
	require.Equal(t, &operator.ActedDependents{Requeued: 1}, acted.Dependents)
	requireState(t, w, jobq.StateWaiting, child)
}

// Thousands of dependents come back in batches, as one action. Method: a job for which more jobs
// wait than a statement is about, and one that waits for all of these.
func TestRequeueWithManyDependents(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	ana := operator.New(w.Client, "ana@laptop via jobq")
	parent := jobtest.Enqueue(t, w.Client, &jobq.EnqueueOptions{MaxAttempts: 1})
	_, err := w.Client.Pool().Exec(ctx, "select jobq.enqueue('greeting', after => array[$1::bigint]) from generate_series(1, 1200)", parent)
	require.NoError(t, err)
	_, err = w.Client.Pool().Exec(ctx, "select jobq.enqueue('greeting', after => array(select id from jobq.job where state = 'waiting'))")
	require.NoError(t, err)
	failWithChildren(t, w, "default")
	cancelled := w.Count("select count(*) from jobq.job where state = 'cancelled'")
	require.Equal(t, 1201, cancelled)

	acted, err := ana.RequeueWithDependents(ctx, operator.Target{ID: parent})
	require.NoError(t, err)
	require.Equal(t, &operator.ActedDependents{Requeued: 1201}, acted.Dependents)
	require.Equal(t, 1201, w.Count("select count(*) from jobq.job where state = 'waiting'"))
	require.Equal(t, 1, w.Count("select count(*) from jobq.audit where action = 'requeue' and done = 1202 and refused = 0"))
	settle(t, w)
	require.Equal(t, 1201, w.Count("select count(*) from jobq.job where state = 'waiting'"))

	for ended := false; !ended; {
		rows, err := w.Queries.AuditUndo(ctx, "ana", acted.AuditID)
		require.NoError(t, err)
		for _, row := range rows {
			require.Empty(t, row.Problem)
			ended = row.Ended
		}
		settle(t, w) // what a janitor does between two batches
	}
	require.Equal(t, 1201, w.Count("select count(*) from jobq.job where state = 'cancelled'"))
	require.Zero(t, w.Count("select count(*) from jobq.dependency where parent_state is null"))
}
