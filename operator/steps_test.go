package operator_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/operator"
)

// A requeue from a step is of the job that was seen: when it has run since, nothing is
// done, and no step is forgotten.
func TestRequeueFromStep(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	id := jobtest.Enqueue(t, w.Client, nil)
	steps := func() int { return w.Count("select count(*) from jobq.step") }
	fail := func() operator.Target {
		job := w.Claim("default", 1)[0]
		for _, name := range []string{"charge", "mail", "log"} {
			_, err := w.Client.Pool().Exec(ctx, "select jobq.step_put($1, $2, $3, '7')", id, jobtest.RunToken(job), name)
			require.NoError(t, err)
		}
		w.End(job, "failed", true)
		return operator.Target{ID: id, State: jobq.StateFailed, LeaseToken: job.LeaseToken}
	}
	seen := fail()
	acted, again, err := w.Operator.RequeueFromStep(ctx, seen, "mail")
	require.NoError(t, err)
	require.Equal(t, 2, again)
	require.Equal(t, []operator.ActedJob{{ID: id, Before: jobq.StateFailed, After: jobq.StateAvailable, Changed: true}}, acted.Jobs)
	require.Equal(t, 1, steps())

	_, err = w.Client.Pool().Exec(ctx, "delete from jobq.step")
	require.NoError(t, err)
	now := fail()
	acted, again, err = w.Operator.RequeueFromStep(ctx, seen, "mail")
	require.NoError(t, err)
	require.Zero(t, again)
	require.ErrorIs(t, acted.Jobs[0].Err(), jobq.ErrConflict)
	require.False(t, acted.Jobs[0].Changed)
	require.Equal(t, 3, steps())
	require.Equal(t, jobq.StateFailed, jobtest.State(t, w.Client, id))

	_, _, err = w.Operator.RequeueFromStep(ctx, now, "none")
	require.ErrorIs(t, err, jobq.ErrNotFound)
	require.Equal(t, jobq.StateFailed, jobtest.State(t, w.Client, id), "all of it or nothing")
	acted, again, err = w.Operator.RequeueFromStep(ctx, operator.Target{ID: id}, "charge")
	require.NoError(t, err)
	require.NoError(t, acted.Jobs[0].Err())
	require.Equal(t, 3, again)
	require.True(t, acted.Jobs[0].Changed)
	require.Zero(t, steps())
}
