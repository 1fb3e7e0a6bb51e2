package operator_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/operator"
)

// One of many jobs has lost its unique key to another: a requeue of all, by ids and by filter, and an undo of
// their cancel, does the others, and says of the one who has the key. So it is with a key that a job
// which has ended keeps for a time.
func TestOneConflictAmongMany(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	const count, odd = 600, 333 // more than a batch
	for name, again := range map[string]func(w *jobtest.Worker, ids []int64, cancelled int64) (changed int, problems []operator.ActedJob){
		"act": func(w *jobtest.Worker, ids []int64, _ int64) (int, []operator.ActedJob) {
			targets := make([]operator.Target, len(ids))
			for i, id := range ids {
				targets[i].ID = id
			}
			acted, err := w.Operator.Act(ctx, jobq.ActionRequeue, targets...)
			require.NoError(w, err)
			return acted.Changed(), acted.Problems()
		},
		"bulk": func(w *jobtest.Worker, _ []int64, _ int64) (int, []operator.ActedJob) {
			progress, err := w.Operator.Bulk(ctx, operator.BulkParams{Action: jobq.ActionRequeue, Filter: jobq.Filter{Match: "state:cancelled queue:many"}})
			require.NoError(w, err)
			require.Equal(w, len(progress.Problems), progress.Refused)
			return progress.Done, progress.Problems
		},
		"undo": func(w *jobtest.Worker, _ []int64, cancelled int64) (int, []operator.ActedJob) {
			undone, err := w.Operator.Undo(ctx, cancelled)
			require.NoError(w, err)
			return undone.Changed(), undone.Problems()
		},
	} {
		for _, isKept := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, kept %t", name, isKept), func(t *testing.T) {
				t.Parallel()
				w := jobtest.NewWorker(t)
				jobs := make([]jobq.EnqueueParams, count)
				for i := range jobs {
					jobs[i] = jobtest.Raw("greeting", "{}", &jobq.EnqueueOptions{Queue: "many", UniqueKey: fmt.Sprint(i)})
				}
				added, err := w.Client.EnqueueMany(ctx, jobs)
				require.NoError(t, err)
				ids := make([]int64, count)
				for i, job := range added {
					ids[i] = job.ID
				}
				cancelled, err := w.Operator.Bulk(ctx, operator.BulkParams{Action: jobq.ActionCancel})
				require.NoError(t, err)
				options := &jobq.EnqueueOptions{UniqueKey: fmt.Sprint(odd)}
				if isKept {
					options.UniqueFor = time.Hour
				}
				holder := jobtest.Enqueue(t, w.Client, options)
				words := fmt.Sprintf("unique_key '%d' of kind 'greeting' is held by unfinished job %d", odd, holder)
				if isKept {
					w.Complete(w.Claim("default", 1)[0])
					words = fmt.Sprintf("unique_key '%d' of kind 'greeting' is held by job %d, which is over, until ", odd, holder)
				}
				changed, problems := again(w, ids, cancelled.AuditID)
				require.Equal(t, count-1, changed)
				require.Len(t, problems, 1)
				require.Equal(t, []any{ids[odd], operator.CodeDuplicate}, []any{problems[0].ID, problems[0].Code})
				require.ErrorIs(t, problems[0].Err(), jobq.ErrDuplicate)
				require.Contains(t, problems[0].Problem, words)
				require.Equal(t, count-1, w.Count("select count(*) from jobq.pending where queue = 'many'"))
				require.Equal(t, count-1, w.Count("select count(*) from jobq.unique_key where job_id <> $1", holder))
				require.Equal(t, jobq.StateCancelled, jobtest.State(t, w.Client, ids[odd]))
			})
		}
	}
}

// A requeue that is refused, since the job is not as it was seen, leaves its key as it was: kept for a time, although the job is over.
func TestRefusedRequeueKeepsTheKey(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	options := &jobq.EnqueueOptions{UniqueKey: "k", UniqueFor: time.Hour}
	id := jobtest.Enqueue(t, w.Client, options)
	w.Complete(w.Claim("default", 1)[0])
	acted, err := w.Operator.Act(ctx, jobq.ActionRequeue, operator.Target{ID: id, State: jobq.StateFailed})
	require.NoError(t, err)
	require.Len(t, acted.Problems(), 1)
	require.Equal(t, operator.CodeConflict, acted.Problems()[0].Code)
	require.Equal(t, 1, w.Count("select count(*) from jobq.unique_key where job_id = $1 and job_over and kept_until > now()", id))
	require.Equal(t, id, jobtest.Enqueue(t, w.Client, options), "it is still held")
}
