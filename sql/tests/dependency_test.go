package tests

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// settleStep is a step of the janitor's, at all that is to be looked at.
func (q *queue) settleStep(count int32) db.DependencyStepRow {
	q.Helper()
	q.exec("update jobq.dependency_look set look_at = clock_timestamp() where look_at > clock_timestamp()")
	row, err := q.queries.DependencyStep(context.Background(), db.DueFrom(time.Time{}), count)
	require.NoError(q, err)
	return row
}

// settle lets the janitor look until it has dealt with all jobs of which it was told that
// they are over, and has looked at the others twice. It keeps an eye on new ones for as
// long as any transaction of the server is open that was there before: see settleNew.
func (q *queue) settle() {
	q.Helper()
	require.Eventually(q, func() bool {
		q.settleStep(500)
		return q.number("select count(*) from jobq.dependency_look where not is_new or sure_from is null") == 0
	}, eventually, tick)
	q.settleStep(500)
}

// settleNew lets the janitor look until the child waits no more. Other tests of the same
// server have transactions that may last.
func (q *queue) settleNew(child int64) {
	q.Helper()
	require.Eventually(q, func() bool {
		q.settle()
		return q.state(child) != "waiting"
	}, eventually, tick)
}

// child adds a job of its own queue that waits for the parents.
func child(ctx context.Context, conn db.DBTX, failure string, parents ...int64) (id int64, err error) {
	err = conn.QueryRow(ctx, "select jobq.enqueue('k', queue => 'children', after => $1, after_failure => $2)", parents, failure).Scan(&id)
	return id, err
}

func (q *queue) child(failure string, parents ...int64) (id int64) {
	q.Helper()
	id, err := child(context.Background(), q.pool, failure, parents...)
	require.NoError(q, err)
	return id
}

// parent adds a job that a worker claims.
func (q *queue) parent() db.JobClaimRow {
	q.Helper()
	q.exec("select jobq.enqueue('k', max_attempts => 1)")
	claimed := q.claim("a", 1)
	require.Len(q, claimed, 1)
	return claimed[0]
}

func (q *queue) state(id int64) string {
	q.Helper()
	return q.text("select coalesce((select j.state::text from jobq.job j where j.id = $1), 'gone')", id)
}

// jobEnds are the ways in which a job can end, each in a transaction.
var jobEnds = map[string]struct {
	waits     bool // the parent, in the line
	state     string
	isolation pgx.TxIsoLevel
	end       func(ctx context.Context, q *queue, tx pgx.Tx, parent db.JobClaimRow) error
}{
	"plain": {state: "completed", end: func(ctx context.Context, q *queue, tx pgx.Tx, parent db.JobClaimRow) error {
		answer, err := q.schema.Exchange(ctx, tx, db.Exchange{Owner: "a", Completions: []db.Completion{plainly(parent)}})
		require.Len(q, answer.Completed, 1)
		return err
	}},
	"on its own row": {state: "completed", end: func(ctx context.Context, q *queue, tx pgx.Tx, parent db.JobClaimRow) error {
		answer, err := q.schema.Exchange(ctx, tx, db.Exchange{Owner: "a", Completions: []db.Completion{onRow(parent)}})
		require.Len(q, answer.Completed, 1)
		return err
	}},
	"failed": {state: "failed", end: func(ctx context.Context, q *queue, tx pgx.Tx, parent db.JobClaimRow) error {
		answer, err := q.schema.Exchange(ctx, tx, db.Exchange{Owner: "a", Endings: []db.Ending{{Slot: at(parent), Outcome: "failed", Started: true}}})
		require.Len(q, answer.Ended, 1)
		return err
	}},
	"CompleteTx":                    {state: "completed", end: completeTx},
	"CompleteTx in repeatable read": {state: "completed", isolation: pgx.RepeatableRead, end: completeTx},
	"complete":                      {state: "completed", end: completeBySQL},
	"complete in serializable":      {state: "completed", isolation: pgx.Serializable, end: completeBySQL},
	"reap": {state: "failed", end: func(ctx context.Context, q *queue, tx pgx.Tx, parent db.JobClaimRow) error {
		_, err := tx.Exec(ctx, "update jobq.lease set expires_at = now() - interval '1 day' where id = $1", parent.LeaseToken)
		require.NoError(q, err)
		reaped, err := q.schema.Reap(ctx, tx, nil, 10, "test")
		require.Len(q, reaped, 1)
		return err
	}},
	"cancel": {waits: true, state: "cancelled", end: func(ctx context.Context, _ *queue, tx pgx.Tx, parent db.JobClaimRow) error {
		_, err := tx.Exec(ctx, "select jobq.cancel($1)", parent.ID)
		return err
	}},
	"delete": {waits: true, state: "gone", end: func(ctx context.Context, _ *queue, tx pgx.Tx, parent db.JobClaimRow) error {
		_, err := tx.Exec(ctx, "select jobq.delete_job($1)", parent.ID)
		return err
	}},
}

func completeTx(ctx context.Context, q *queue, tx pgx.Tx, parent db.JobClaimRow) error {
	done, err := q.schema.Queries(tx).RunCompleteTx(ctx, db.RunCompleteTxParams{ID: parent.ID, Token: parent.LeaseToken, Owner: "a", ClaimedAt: parent.StartedAt})
	require.Len(q, done, 1)
	return err
}

func completeBySQL(ctx context.Context, _ *queue, tx pgx.Tx, parent db.JobClaimRow) error {
	_, err := tx.Exec(ctx, "select jobq.complete($1, $2)", parent.ID, runToken(parent))
	return err
}

// A child is freed, or cancelled, in whatever order its parent's end and its own insert
// are done and committed; and not before the parent is over.
func TestParentEndsAtTheSameMoment(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, way := range jobEnds {
		// E1 and E2 are the parent's end and its commit, D1 and D2 the insert's; S is what
		// the janitor does in between. See docs/decisions/0024.
		for _, order := range []string{"D1 D2 E1 E2", "E1 E2 D1 D2", "D1 E1 E2 D2", "D1 E1 D2 S E2", "E1 D1 E2 D2", "E1 D1 D2 S E2", "D1 D2 S E1 E2"} {
			t.Run(name+"/"+order, func(t *testing.T) {
				t.Parallel()
				if way.state == "gone" && order == "E1 E2 D1 D2" {
					t.Skip("there is no such parent then: see TestUnknownParents")
				}
				q := setUp(t)
				q.exec("select nextval('jobq.dependency_seq')") // as if it were not the first one
				var parent db.JobClaimRow
				if way.waits {
					parent.ID = int64(q.number("select jobq.enqueue('k')"))
				} else {
					parent = q.parent()
				}
				inserts, err := q.pool.Begin(ctx)
				require.NoError(t, err)
				defer func() { _ = inserts.Rollback(ctx) }()
				ends, err := q.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: way.isolation})
				require.NoError(t, err)
				defer func() { _ = ends.Rollback(ctx) }()
				_, err = ends.Exec(ctx, "select count(*) from jobq.dependency") // it has its snapshot, where that stays
				require.NoError(t, err)
				var id int64
				over := false
				for _, step := range strings.Fields(order) {
					switch step {
					case "D1":
						id, err = child(ctx, inserts, "cancel", parent.ID)
					case "D2":
						err = inserts.Commit(ctx)
					case "E1":
						err = way.end(ctx, q, ends, parent)
					case "E2":
						err, over = ends.Commit(ctx), true
					case "S":
						for range 5 {
							q.settleStep(500)
						}
						if !over {
							require.Equal(t, "waiting", q.state(id))
						}
					}
					require.NoError(t, err, step)
				}
				q.settleNew(id)
				require.Equal(t, way.state, q.state(parent.ID))
				if way.state == "completed" {
					require.Equal(t, "available", q.state(id))
				} else {
					require.Equal(t, "cancelled", q.state(id))
				}
				require.Zero(t, q.number("select count(*) from jobq.dependency where parent_state is null or parent_lease is null"))
			})
		}
	}
}

// What becomes of a child when its parents end, by its policy.
func TestPoliciesOfChildren(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	good, bad := q.parent(), q.parent()
	children := map[string]int64{}
	for _, policy := range []string{"cancel", "run", "wait"} {
		children[policy] = q.child(policy, good.ID, bad.ID)
		children[policy+" of the good one"] = q.child(policy, good.ID)
		children[policy+" of one that waits"] = q.child(policy, children[policy])
	}
	states := func() map[string]string {
		states := map[string]string{}
		for name, id := range children {
			states[name] = q.state(id)
		}
		return states
	}
	want := states()
	for name, state := range want {
		require.Equal(t, "waiting", state, name)
	}
	q.completes(plainly(good))
	q.settle()
	for _, policy := range []string{"cancel", "run", "wait"} {
		want[policy+" of the good one"] = "available"
	}
	require.Equal(t, want, states())

	require.Equal(t, "failed", q.end(bad, db.Ending{Outcome: "failed"}))
	q.settle()
	want["cancel"], want["cancel of one that waits"], want["run"] = "cancelled", "cancelled", "available"
	require.Equal(t, want, states())
	require.Equal(t, fmt.Sprintf("job %d, for which it waited, has failed", bad.ID), q.text("select last_error from jobq.job where id = $1", children["cancel"]))
	require.Equal(t, fmt.Sprintf("job %d, for which it waited, was cancelled", children["cancel"]),
		q.text("select last_error from jobq.job where id = $1", children["cancel of one that waits"]))

	// The one that waits gets its chance when the parent does.
	q.exec("select jobq.requeue($1)", bad.ID)
	again := q.claim("a", 1)
	require.Equal(t, bad.ID, again[0].ID)
	q.completes(plainly(again[0]))
	q.settle()
	want["wait"] = "available"
	require.Equal(t, want, states())
	require.Equal(t, 2, q.number("select coalesce(sum(cancelled), 0) from jobq.stats"))
}

// A job waits for parents that are there, and for nothing else: what is not is refused, and
// adds nothing. Of none it does not wait at all, nor of one that has completed.
func TestUnknownParents(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	for call, want := range map[string]string{
		"select jobq.enqueue('k', after => '{7}')":                                                                 "no such job: 7 (SQLSTATE JQ002)",
		"select jobq.enqueue('k', after => '{0}')":                                                                 "after must be ids of jobs, not 0 (SQLSTATE JQ001)",
		"select jobq.enqueue('k', after => '{-1}')":                                                                "after must be ids of jobs, not -1 (SQLSTATE JQ001)",
		"select jobq.enqueue('k', after => array[null::bigint])":                                                   "after must be ids of jobs, not null (SQLSTATE JQ001)",
		"select jobq.enqueue('k', after_failure => 'x')":                                                           "after_failure must be cancel, run or wait, not 'x' (SQLSTATE JQ001)",
		`select * from jobq.enqueue_many('[{"kind": "k"}, {"kind": "k", "after": ["b"]}]')`:                        `jobs[1]: after: no job of the list has the name "b" (SQLSTATE JQ001)`,
		`select * from jobq.enqueue_many('[{"kind": "k", "after": ["b"]}, {"kind": "k", "name": "b"}]')`:           "jobs[0]: after: a job waits only for jobs before it in the list, not for jobs[1] (SQLSTATE JQ001)",
		`select * from jobq.enqueue_many('[{"kind": "k", "name": "b"}, {"kind": "k", "name": "b", "after": []}]')`: "jobs[0]: name \"b\" is that of several jobs (SQLSTATE JQ001)",
		`select * from jobq.enqueue_many('[{"kind": "k", "after": 7}]')`:                                           "jobs[0]: after must be an array of ids and names of jobs (SQLSTATE JQ001)",
		`select * from jobq.enqueue_many('[{"kind": "k", "after": [1.5]}]')`:                                       "jobs[0]: after must be ids and names of jobs, not 1.5 (SQLSTATE JQ001)",
		`select * from jobq.enqueue_many('[{"kind": "k", "after": [8]}]')`:                                         "jobs[0]: after: no such job: 8 (SQLSTATE JQ002)",
	} {
		require.ErrorContains(t, q.refusal(call), want, call)
	}
	require.Zero(t, q.number("select count(*) from jobq.job")+q.number("select count(*) from jobq.dependency"))

	require.Equal(t, "available", q.state(int64(q.number("select jobq.enqueue('none', after => '{}')"))))
	parent := q.parent()
	q.completes(plainly(parent))
	require.Equal(t, "available", q.state(q.child("cancel", parent.ID)))
	require.Zero(t, q.number("select count(*) from jobq.dependency_look"))
}

// An id that a call is about to give to one of its own jobs is no job's yet: nobody waits for
// himself, or in a circle.
func TestNoParentOfTheSameCallById(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	for call, ahead := range map[string]int{
		"select jobq.enqueue('k', after => array[%d])": 1,
		`select * from jobq.enqueue_many(format('[{"kind": "k", "name": "a", "after": [%%s]}, {"kind": "k", "after": ["a"]}]', %d))`: 2,
	} {
		own := q.number("select nextval('jobq.job_id_seq')") + ahead
		require.ErrorContains(t, q.refusal(fmt.Sprintf(call, own)), fmt.Sprintf("no such job: %d (SQLSTATE JQ002)", own))
	}
	require.Zero(t, q.number("select count(*) from jobq.job")+q.number("select count(*) from jobq.dependency"))
}

// A parent with many children, or a child with many parents, is dealt with in steps, each
// of which does as much as it may.
func TestSettlesInSteps(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	const count = 25
	parent := q.parent()
	q.exec("select jobq.enqueue('k', queue => 'children', after => array[$1::bigint]) from generate_series(1, $2::integer)", parent.ID, count)
	last := q.number("select jobq.enqueue('last', after => (select array_agg(id) from jobq.job where state = 'waiting'))")
	q.settle()
	q.completes(plainly(parent))
	free := func() int {
		return q.number("select count(*) from jobq.pending where queue = 'children' and position is not null")
	}
	for step := 1; free() < count; step++ {
		q.settleStep(10)
		require.Equal(t, min(step*10, count), free())
	}
	q.settle()
	require.Equal(t, "waiting", q.state(int64(last)))
	q.exec("select jobq.cancel(id) from jobq.pending where queue = 'children' order by id limit 3")
	q.settle()
	require.Equal(t, "cancelled", q.state(int64(last)))
}

// Whoever waits for a job that waits for others is told when it is cancelled with one of
// these, and not when it is freed.
func TestEndsOfChildrenAreNotified(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	a := newAwaiter(t)
	good, bad := a.parent(), a.parent()
	freed, cancelled := a.child("cancel", good.ID), a.child("cancel", good.ID, bad.ID)
	below, unasked := a.child("cancel", cancelled), a.child("cancel", bad.ID)
	asked := []int64{freed, cancelled, below}
	a.announce(1, asked, nil, time.Hour)
	rows, err := a.queries.EndRead(ctx, asked, 10)
	require.NoError(t, err)
	require.Empty(t, rows, "they have not ended")
	a.completes(plainly(good))
	a.settle()
	require.Empty(t, a.told())
	require.Equal(t, "failed", a.end(bad, db.Ending{Outcome: "failed"}))
	a.settle()
	require.Equal(t, "cancelled", a.state(unasked))
	told := slices.Compact(a.told())
	require.Equal(t, []int64{cancelled, below}, told)
	read := "select state || ': ' || coalesce(error, '') from jobq.result($1)"
	require.Equal(t, "available: ", a.text(read, freed))
	require.Equal(t, fmt.Sprintf("cancelled: job %d, for which it waited, has failed", bad.ID), a.text(read, cancelled))
	rows, err = a.queries.EndRead(ctx, asked, 10)
	require.NoError(t, err)
	require.Len(t, rows, 2)
}

// Every column of a job that is cancelled with its parent is what it is after a cancel by
// hand, but for the reason.
func TestColumnsOfOneCancelledWithItsParent(t *testing.T) {
	t.Parallel()
	changes := func(end string) []string {
		q := setUp(t)
		key := "key"
		id := q.everyColumn(sizes["small"], &key, "p")
		q.exec("update jobq.pending set waits = true, position = null")
		before := q.columns(id)
		q.exec(end)
		q.settle()
		after := q.columns(id)
		require.Equal(t, "cancelled", after["state"])
		return changed(before, after)
	}
	byHand := changes("select jobq.cancel(id) from jobq.pending")
	withParent := changes(`with d as (insert into jobq.dependency (child, parent, on_failure) select p.id, 4711, 'cancel' from jobq.pending p)
		select jobq.look_soon('{4711}')`)
	require.ElementsMatch(t, append(byHand, "last_error"), withParent)
}

// A parent that had completed when it was deleted counts as completed, and one that had
// failed as failed, also if that happens before the janitor has looked.
func TestParentIsDeletedWhenItIsOver(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	good, bad := q.parent(), q.parent()
	free, cancelled := q.child("cancel", good.ID), q.child("cancel", bad.ID)
	q.completes(plainly(good))
	require.Equal(t, "failed", q.end(bad, db.Ending{Outcome: "failed"}))
	q.exec("select jobq.delete_job(id) from unnest($1::bigint[]) as j(id)", []int64{good.ID, bad.ID})
	require.Equal(t, "gone", q.state(good.ID))
	q.settle()
	require.Equal(t, "available", q.state(free))
	require.Equal(t, "cancelled", q.state(cancelled))
	require.Equal(t, fmt.Sprintf("job %d, for which it waited, has failed", bad.ID), q.text("select last_error from jobq.job where id = $1", cancelled))
}

// Nothing that ends pays before a job really waits: not for a call that was refused, nor
// for a job whose parents had completed.
func TestOnlyOpenDependenciesCost(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	is := func() string {
		return q.text("select (pg_sequence_last_value('jobq.dependency_seq') is not null)::text")
	}
	parent, other := q.parent(), q.parent()
	q.completes(plainly(parent))
	_ = q.refusal("select jobq.enqueue('k', after => '{4711}')")
	_ = q.refusal("select jobq.enqueue('k', after => array[4711, $1::bigint])", other.ID)
	q.child("cancel", parent.ID)
	require.Equal(t, "false", is())
	q.child("cancel", other.ID)
	require.Equal(t, "true", is())
}

// A worker that ends when nothing is left waits for jobs of its own queues and kinds that
// a look of the janitor's may make available, and for no others.
func TestLooksOfOthersKeepNoWorker(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	parent := q.parent()
	q.child("cancel", parent.ID)
	q.completes(plainly(parent))
	for queue, want := range map[string]bool{"children": true, "default": false} {
		waits, err := q.queries.WorkWaits(context.Background(), true, []string{"k"}, []string{queue})
		require.NoError(t, err)
		require.Equal(t, want, waits, queue)
	}
	waits, err := q.queries.WorkWaits(context.Background(), true, []string{"other"}, []string{"children"})
	require.NoError(t, err)
	require.False(t, waits, "of another kind")
	q.exec("insert into jobq.pending (id, position, waits, kind, queue) select 1000000 + i, null, true, 'x', 'x' from generate_series(1, 1000) i")
	waits, err = q.queries.WorkWaits(context.Background(), true, []string{"other"}, []string{"children"})
	require.NoError(t, err)
	require.True(t, waits, "more wait than are looked at")
}
