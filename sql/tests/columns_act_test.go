package tests

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// acts does something to a job, which must not be refused, and returns the audit's id. Only an edit has a change.
func (q *queue) acts(action, change string, id int64) (audit int64) {
	q.Helper()
	var problem *string
	require.NoError(q, q.pool.QueryRow(context.Background(), "select a.audit, a.problem from jobq.act('ann', $1, array[$2::bigint], null, null, null, null, nullif($3, '')::jsonb) a",
		action, id, change).Scan(&audit, &problem))
	require.Nil(q, problem)
	return audit
}

// stages are what a job can have come to, without a lease that runs.
var stages = map[string]func(q *queue, id int64){
	"available": func(*queue, int64) {},
	"scheduled": func(q *queue, id int64) {
		q.exec("update jobq.pending set position = null, run_at = '2100-01-01Z' where id = $1", id)
	},
	"waiting": func(q *queue, id int64) {
		q.exec("update jobq.pending set position = null, waits = true where id = $1", id)
	},
	"completed": func(q *queue, _ int64) {
		job := onlyJob(q.T, q.exchange(keyed("a", 1)))
		done := plainly(job)
		done.Result = []byte(`{"r": 1}`)
		q.completes(done)
	},
	"failed": func(q *queue, _ int64) {
		require.Equal(q, "failed", q.end(onlyJob(q.T, q.exchange(keyed("a", 1))), db.Ending{Outcome: "failed", Error: "e", Final: true}))
	},
}

// Traps 8 and 10: what an operator does to a job changes what is listed, and its undo
// puts everything back but for what is listed: a job that has a unique key, a partition
// key and, where it has one, a result.
func TestEveryColumnSurvivesActions(t *testing.T) {
	t.Parallel()
	const cancelled, requeued, deleted = "clear_reason finished_at lease_token state", "finished_at lease_owner lost position run_at started_at state", "deleted"
	for name, walk := range map[string]struct {
		stage, action, change string
		changes, undone       string // what is another after the action, and after its undo
	}{
		"available, edited":    {"available", "edit", `{"priority": 7}`, "position priority", "position"},
		"available, cancelled": {"available", "cancel", "", cancelled, "position"},
		"available, deleted":   {"available", "delete", "", deleted, "position"},
		"scheduled, edited":    {"scheduled", "edit", `{"tags": ["u"]}`, "tags", ""},
		"scheduled, cancelled": {"scheduled", "cancel", "", cancelled, ""},
		"scheduled, deleted":   {"scheduled", "delete", "", deleted, ""},
		"scheduled, requeued":  {"scheduled", "requeue", "", "position run_at state", ""},
		"waiting, edited":      {"waiting", "edit", `{"max_attempts": 3}`, "max_attempts", ""},
		"waiting, cancelled":   {"waiting", "cancel", "", cancelled, ""},
		"waiting, deleted":     {"waiting", "delete", "", deleted, ""},
		"waiting, requeued":    {"waiting", "requeue", "", "position run_at state", ""},
		"completed, requeued":  {"completed", "requeue", "", requeued + " result", ""},
		"completed, deleted":   {"completed", "delete", "", deleted, ""},
		"failed, requeued":     {"failed", "requeue", "", requeued, ""},
		"failed, deleted":      {"failed", "delete", "", deleted, ""},
	} {
		for size, args := range sizes {
			t.Run(name+", "+size, func(t *testing.T) {
				t.Parallel()
				q := setUp(t)
				id := q.everyColumn(args, &name, "p")
				stages[walk.stage](q, id)
				before := q.columns(id)
				require.Equal(t, walk.stage, before["state"])

				audit := q.acts(walk.action, walk.change, id)
				if after := q.columns(id); walk.changes == deleted {
					require.Nil(t, after)
				} else {
					require.ElementsMatch(t, strings.Fields(walk.changes), changed(before, after))
				}
				q.requireArgsAsSaid()

				require.Equal(t, 1, q.number("select count(*) from jobq.undo('ann', $1) u where u.problem is null", audit))
				require.ElementsMatch(t, strings.Fields(walk.undone), changed(before, q.columns(id)))
				q.requireArgsAsSaid()
			})
		}
	}
}

// A clone has all that its job was made with, whatever has become of that since, and
// nothing of what its runs have left.
func TestCloneHasEveryColumn(t *testing.T) {
	t.Parallel()
	const (
		fresh = "attempts checkpoint crashes created_at id last_error lease_token lost position run_at unique_key"
		ended = fresh + " finished_at lease_owner started_at state" // which has dropped its clear_reason
	)
	for stage, changes := range map[string]string{
		"available": fresh + " clear_reason",
		"scheduled": fresh + " clear_reason state",
		"waiting":   fresh + " clear_reason state",
		"completed": ended + " result",
		"failed":    ended,
	} {
		for size, args := range sizes {
			t.Run(stage+", "+size, func(t *testing.T) {
				t.Parallel()
				q := setUp(t)
				id := q.everyColumn(args, &stage, "p")
				stages[stage](q, id)
				before := q.columns(id)
				var clone int64
				require.NoError(t, q.pool.QueryRow(context.Background(), "select c.clone_id from jobq.act_clone('ann', $1, '{}') c", id).Scan(&clone))
				require.Empty(t, changed(before, q.columns(id)))
				require.ElementsMatch(t, strings.Fields(changes), changed(before, q.columns(clone)))
				q.requireArgsAsSaid()
			})
		}
	}
}
