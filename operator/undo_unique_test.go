package operator_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/operator"
)

// An undo of a delete takes the job's unique key up again, until the same time as before, of a job that waits as
// of one that is over. One that is over comes back without it when its time has come or another job has it by now.
func TestUndoOfADeleteTakesTheKey(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	options := &jobq.EnqueueOptions{UniqueKey: "k", UniqueFor: time.Hour}
	const key = "select count(*) from jobq.unique_key where job_id = $1 and job_over = $2 and kept_until = (select x.at from remembered x)"
	wait := func(*jobtest.Worker) {}
	complete := func(w *jobtest.Worker) { w.Complete(w.Claim("default", 1)[0]) }
	for name, c := range map[string]struct {
		before func(w *jobtest.Worker) // what becomes of the job before it is deleted
		after  string                  // and what happens before the undo
		holder bool                    // another job takes the key meanwhile
		held   bool                    // the job has its key again
		code   operator.Code           // why the job is left alone
	}{
		"waits":                          {before: wait, held: true},
		"waits, and another has the key": {before: wait, holder: true, code: operator.CodeDuplicate},
		// As for all keys: a job that is unfinished has one.
		"waits, and the time has come":     {before: wait, after: "update jobq.audit_job set before = before || jsonb_build_object('key_until', now() - interval '1 min')", held: true},
		"waits, and cannot come back":      {before: wait, after: "update jobq.audit_job set before = jsonb_set(before, '{row,max_attempts}', '0')", code: operator.CodeConflict},
		"is over":                          {before: complete, held: true},
		"is over, and another has the key": {before: complete, holder: true},
		"is over, and the time has come":   {before: complete, after: "update jobq.audit_job set before = before || jsonb_build_object('key_until', now() - interval '1 min')"},
		"is over, and cannot come back":    {before: complete, after: "update jobq.audit_job set before = jsonb_set(before, '{row,state}', '\"running\"')", code: operator.CodeConflict},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := jobtest.NewWorker(t)
			exec := func(sql string) {
				_, err := w.Client.Pool().Exec(ctx, sql)
				require.NoError(t, err)
			}
			id := jobtest.Enqueue(t, w.Client, options)
			exec("create table remembered as select kept_until as at from jobq.unique_key")
			c.before(w)
			state := jobtest.State(t, w.Client, id)
			deleted, err := w.Operator.Act(ctx, jobq.ActionDelete, operator.Target{ID: id})
			require.NoError(t, err)
			require.Empty(t, deleted.Problems())
			require.Zero(t, w.Count("select count(*) from jobq.unique_key"))
			if c.after != "" {
				exec(c.after)
			}
			var holder int64
			if c.holder {
				holder = jobtest.Enqueue(t, w.Client, options)
			}
			undone, err := w.Operator.Undo(ctx, deleted.AuditID)
			require.NoError(t, err)
			if c.code != "" {
				require.Len(t, undone.Problems(), 1)
				require.Equal(t, c.code, undone.Problems()[0].Code, undone.Problems()[0].Problem)
			} else {
				require.Empty(t, undone.Problems())
				require.Equal(t, state, jobtest.State(t, w.Client, id))
			}
			if c.held && c.after == "" {
				require.Equal(t, 1, w.Count(key, id, state == jobq.StateCompleted))
			}
			again, err := w.Client.Enqueue(ctx, jobtest.Greeting{}, options)
			require.NoError(t, err)
			switch {
			case c.held:
				require.Equal(t, jobq.Enqueued{ID: id, Duplicate: true}, again)
			case c.holder:
				require.Equal(t, jobq.Enqueued{ID: holder, Duplicate: true}, again)
			default:
				require.False(t, again.Duplicate, "job %d has the key", again.ID)
			}
			if !c.held || state == jobq.StateCompleted {
				return
			}
			w.Complete(w.Claim("default", 1)[0])
			again, err = w.Client.Enqueue(ctx, jobtest.Greeting{}, options)
			require.NoError(t, err)
			require.Equal(t, c.after == "", again.Duplicate, "it keeps its key when it is over")
		})
	}
}
