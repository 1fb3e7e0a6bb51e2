package tests

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// Retention keeps a parent, and its result, until the children that have waited for it are
// over, in a partition and in what the default partition has caught; and then forgets that they waited.
func TestRetentionKeepsParents(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	const days = 20
	for name, prune := range map[string]func(q *queue){
		"partition": func(q *queue) {
			_, err := q.queries.PartitionPrune(ctx, "run")
			require.NoError(q, err)
		},
		"default": func(q *queue) {
			_, err := q.queries.DefaultPrune(ctx, db.DefaultPruneParams{Parent: "run", RowCount: 100})
			require.NoError(q, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			if name == "partition" {
				for _, parent := range []string{"past_lease", "run"} {
					_, err := q.queries.PartitionAdd(ctx, parent, -days)
					require.NoError(t, err)
				}
			}
			parent := q.parent()
			other := int64(q.number("select jobq.enqueue('other')"))
			id := q.child("cancel", parent.ID, other)
			done := onRow(parent)
			done.Result = []byte("7")
			q.completes(done)
			q.settle()
			q.age(days, nil)
			q.exec("update jobq.dependency set parent_lease = parent_lease - ($1::bigint << 40)", days)
			pruned := func() {
				place := db.DependencyPruneRow{}
				for range 2 {
					row, err := q.queries.DependencyPrune(ctx, db.DependencyPruneParams{
						AfterLease: place.LastLease, AfterChild: place.LastChild, AfterParent: place.LastParent, RowCount: 1,
					})
					require.NoError(t, err)
					place = row
				}
				require.Zero(t, place.Looked)
				prune(q)
			}
			pruned()
			parents, err := q.queries.ParentList(ctx, id, 0, 10)
			require.NoError(t, err)
			require.Len(t, parents, 2)
			require.Equal(t, db.ParentListRow{ID: parent.ID, Kind: "k", State: "completed", Result: []byte("7")}, parents[0])
			require.Equal(t, db.ParentListRow{ID: other, Kind: "other"}, parents[1])
			q.exec("select jobq.requeue($1)", id) // it is freed, and has yet to run
			pruned()
			require.Equal(t, "completed", q.state(parent.ID))
			q.exec("select jobq.cancel($1)", id)
			pruned()
			require.Equal(t, "gone", q.state(parent.ID))
			require.Equal(t, 1, q.number("select count(*) from jobq.dependency where child = $1 and parent = $2", id, other))
			require.Equal(t, 1, q.number("select count(*) from jobq.dependency"))
		})
	}
}

// A job that waits is edited, and cancelled, deleted or requeued and put back, as any job
// that has not begun; its parents may have ended since.
func TestActingOnAJobThatWaits(t *testing.T) {
	t.Parallel()
	for action, after := range map[string]string{"cancel": "cancelled", "delete": "deleted", "requeue": "available"} {
		for when, want := range map[string]string{"runs": "waiting", "completes": "available", "fails": "cancelled"} {
			t.Run(action+", its parent "+when, func(t *testing.T) {
				t.Parallel()
				q := setUp(t)
				parent := q.parent()
				id := q.child("cancel", parent.ID)
				q.settle()
				_, edited := q.act("edit", nil, id)
				require.Equal(t, acted{edited[0].Audit, id, "waiting", "waiting", true, "", ""}, edited[0])
				require.Equal(t, 7, q.number("select priority from jobq.job where state = 'waiting'"))
				audit, jobs := q.act(action, nil, id)
				require.Equal(t, acted{audit, id, "waiting", after, true, "", ""}, jobs[0])
				switch when {
				case "completes":
					q.completes(plainly(parent))
				case "fails":
					q.end(parent, db.Ending{Outcome: "failed"})
				}
				q.settle() // nobody to free
				require.Equal(t, 1, q.number("select count(*) from jobq.undo('ann', $1) u where u.state_after = 'waiting' and u.problem is null", audit))
				require.Equal(t, "waiting", q.state(id))
				q.settle()
				require.Equal(t, want, q.state(id))
				if want == "waiting" {
					q.completes(plainly(parent))
					q.settle()
					require.Equal(t, "available", q.state(id))
				}
			})
		}
	}
}

// A job that waits has begun no step yet: a requeue from one is refused, and the job goes on
// waiting.
func TestRequeueFromAStepOfAJobThatWaits(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	parent := q.parent()
	id := q.child("cancel", parent.ID)
	_, err := q.queries.JobActFromStep(context.Background(), db.JobActFromStepParams{Step: "charge", Actor: "ann", JobID: id})
	require.ErrorContains(t, err, fmt.Sprintf("job %d has no step 'charge' (SQLSTATE JQ002)", id))
	require.Equal(t, "waiting", q.state(id))
	q.completes(plainly(parent))
	q.settle()
	require.Equal(t, "available", q.state(id))
}

// The undo of a requeue puts a parent back to how it had ended, and what has come to wait for
// it since hears of that.
func TestRequeueOfAParentIsUndone(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	parent := q.parent()
	q.end(parent, db.Ending{Outcome: "failed"})
	audit, _ := q.act("requeue", nil, parent.ID)
	id := q.child("run", parent.ID)
	q.settle()
	q.exec("delete from jobq.dependency_look") // that of a new parent
	require.Equal(t, "waiting", q.state(id))
	require.Equal(t, 1, q.number("select count(*) from jobq.undo('ann', $1) u where u.state_after = 'failed' and u.problem is null", audit))
	q.settle()
	require.Equal(t, "available", q.state(id))
}
