package operator_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/operator"
)

// A requeue with other args is one step from each state in which a job can be requeued: the job begins anew, an undo takes
// it back to the last detail, and a running job keeps its args.
func TestRequeueWith(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	ana := operator.New(w.Client, "ana@laptop via jobq")
	large := json.RawMessage(`{"name": "x", "large": "` + strings.Repeat("ab", 1000) + `"}`)
	for _, state := range jobq.States() {
		for name, change := range map[string]operator.JobChange{
			"patch": {ArgsPatch: json.RawMessage(`{"n": 0.10}`)}, "large": {Args: large}, "large patch": {ArgsPatch: large},
		} {
			name := string(state) + " " + name
			id := w.InState(state, jobq.EnqueueOptions{Queue: name, UniqueKey: name})
			_, err := w.Client.Pool().Exec(ctx, "update jobq.run set checkpoint = '{\"at\": 7}' where id = $1", id)
			require.NoError(t, err)
			_, err = w.Client.Pool().Exec(ctx, "update jobq.pending set checkpoint = '{\"at\": 7}' where id = $1", id)
			require.NoError(t, err)
			before := w.Story(id)
			acted, err := ana.RequeueWith(ctx, change, operator.Target{ID: id})
			require.NoError(t, err, name)
			if state == jobq.StateRunning {
				require.ErrorIs(t, acted.Problems()[0].Err(), jobq.ErrConflict)
				require.Equal(t, before, w.Story(id), name)
				continue
			}
			require.Empty(t, acted.Problems(), name)
			job, err := w.Client.Get(ctx, id)
			require.NoError(t, err)
			require.Equal(t, jobq.StateAvailable, job.State, name)
			require.Nil(t, job.Checkpoint, name)
			require.Equal(t, name, job.UniqueKey)
			if change.Args == nil && !strings.Contains(name, "large") {
				require.Contains(t, string(job.Args), `"n": 0.10`)
				require.Contains(t, string(job.Args), `"name"`, "other members stay")
			} else {
				require.Contains(t, string(job.Args), "abab")
			}
			undone, err := ana.Undo(ctx, acted.AuditID)
			require.NoError(t, err, name)
			if state == jobq.StateAvailable { // it has been available all the time
				continue
			}
			require.Equal(t, 1, undone.Changed(), "%s: %v", name, undone.Problems())
			require.Equal(t, before, w.Story(id), name)
		}
	}
}

// A job that gets other args does its durable steps again; one that has these args already is requeued as it is.
func TestRequeueWithForgetsSteps(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	id := jobtest.Enqueue(t, w.Client, nil)
	job := w.Claim("default", 1)[0]
	for _, name := range []string{"charge", "mail"} {
		_, err := w.Client.Pool().Exec(ctx, "select jobq.step_put($1, $2, $3, '7')", id, jobtest.RunToken(job), name)
		require.NoError(t, err)
	}
	w.End(job, "failed", true)
	change := operator.JobChange{ArgsPatch: json.RawMessage(`{"n": 5}`)}
	for _, left := range []int{0, 0} {
		acted, err := w.Operator.RequeueWith(ctx, change, operator.Target{ID: id})
		require.NoError(t, err)
		require.Empty(t, acted.Problems())
		require.Equal(t, left, w.Count("select count(*) from jobq.step"))
		job = w.Claim("default", 1)[0]
		require.Contains(t, string(job.Args), `"n": 5`)
		w.End(job, "failed", true)
	}
	_, err := w.Operator.Act(ctx, jobq.ActionRequeue, operator.Target{ID: id})
	require.NoError(t, err)
	job = w.Claim("default", 1)[0]
	_, err = w.Client.Pool().Exec(ctx, "select jobq.step_put($1, $2, 'charge', '7')", id, jobtest.RunToken(job))
	require.NoError(t, err)
	w.End(job, "failed", true)
	acted, err := w.Operator.RequeueWith(ctx, change, operator.Target{ID: id})
	require.NoError(t, err)
	require.Empty(t, acted.Problems())
	require.Equal(t, 1, w.Count("select count(*) from jobq.step"), "its args are the same")
}

// What happens to a job after it was requeued with other args stands: an undo leaves it alone, with its new args.
func TestRequeueWithIsFenced(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	ana := operator.New(w.Client, "ana@laptop via jobq")
	id := w.InState(jobq.StateFailed, jobq.EnqueueOptions{Queue: "q"})
	target := operator.Target{ID: id, State: jobq.StateFailed, LeaseToken: 1 << 40}
	acted, err := ana.RequeueWith(ctx, operator.JobChange{ArgsPatch: json.RawMessage(`{"n": 1}`)}, target)
	require.NoError(t, err)
	require.Contains(t, acted.Problems()[0].Problem, "it has changed meanwhile")
	acted, err = ana.RequeueWith(ctx, operator.JobChange{ArgsPatch: json.RawMessage(`{"n": 1}`)}, operator.Target{ID: id})
	require.NoError(t, err)
	_, err = ana.Act(ctx, jobq.ActionCancel, operator.Target{ID: id})
	require.NoError(t, err)
	undone, err := ana.Undo(ctx, acted.AuditID)
	require.NoError(t, err)
	require.Contains(t, undone.Problems()[0].Problem, "it has changed meanwhile, and is cancelled now")
	job, err := w.Client.Get(ctx, id)
	require.NoError(t, err)
	require.Contains(t, string(job.Args), `"n": 1`)
}

// A job whose args cannot be patched is refused with the reason, and stays as it is; the others of the call go on.
func TestRequeueWithRefused(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	ana := operator.New(w.Client, "ana@laptop via jobq")
	add := func(args string) int64 {
		job, err := w.Client.Enqueue(ctx, jobq.RawArgs{Name: "k", JSON: json.RawMessage(args)}, &jobq.EnqueueOptions{Queue: "q"})
		require.NoError(t, err)
		_, err = w.Client.Cancel(ctx, job.ID)
		require.NoError(t, err)
		return job.ID
	}
	encrypted, list, large, plain := add(`{"$jobq": "enc", "key": "k1", "v": "AAAA"}`), add(`[1]`), add(`{"a": "`+strings.Repeat("x", 1<<20-100)+`"}`), add(`{"n": 1}`)
	patch := operator.JobChange{ArgsPatch: json.RawMessage(`{"n": "` + strings.Repeat("y", 200) + `"}`)}
	progress, err := ana.Bulk(ctx, operator.BulkParams{Action: jobq.ActionRequeue, Filter: jobq.Filter{Match: "queue:q"}, Change: patch})
	require.NoError(t, err)
	require.Equal(t, []int{1, 3}, []int{progress.Done, progress.Refused})
	problems := make(map[int64]string)
	for _, problem := range progress.Problems {
		require.ErrorIs(t, problem.Err(), jobq.ErrConflict)
		problems[problem.ID] = problem.Problem
	}
	require.Contains(t, problems[encrypted], `its args are encrypted with key "k1": members of them cannot be set`)
	require.Contains(t, problems[list], "its args are not an object")
	require.Contains(t, problems[large], "its args must be at most 1048576 bytes")
	require.Equal(t, 3, w.Count("select count(*) from jobq.job where state = 'cancelled'"))
	job, err := w.Client.Get(ctx, plain)
	require.NoError(t, err)
	require.Equal(t, jobq.StateAvailable, job.State)

	for _, change := range []operator.JobChange{
		{}, {Priority: new(int16(1))}, {ArgsPatch: patch.ArgsPatch, Queue: new("x")}, {Args: json.RawMessage("{}"), ArgsPatch: patch.ArgsPatch}, {ArgsPatch: json.RawMessage("[1]")}, {ArgsPatch: json.RawMessage("{")},
	} {
		_, err := ana.RequeueWith(ctx, change, operator.Target{ID: plain})
		require.ErrorIs(t, err, jobq.ErrInvalid, "%+v", change)
	}
	_, err = ana.Bulk(ctx, operator.BulkParams{Action: jobq.ActionRequeue, Filter: jobq.Filter{Match: "queue:q"}, Change: operator.JobChange{Priority: new(int16(1))}})
	require.ErrorIs(t, err, jobq.ErrInvalid)
}
