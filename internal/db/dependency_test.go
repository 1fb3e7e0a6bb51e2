package db_test

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

// What a list says of how its jobs wait for one another is heeded, and checked, whatever else it
// says: a policy alone, names that nobody waits for, and members that are null.
func TestListsThatSayLittle(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	parent := q.parent()
	for list, want := range map[string]string{
		`[{"kind": "k", "after_failure": "x"}]`:                                     "after_failure must be cancel, run or wait, not 'x' (SQLSTATE JQ001)",
		`[{"kind": "k"}, {"kind": "k", "after_failure": 7}]`:                        "after_failure must be cancel, run or wait, not '7' (SQLSTATE JQ001)",
		`[{"kind": "k", "after_failure": ["run"]}]`:                                 "jobs[0]: after_failure must be text, not array (SQLSTATE JQ001)",
		`[{"kind": "k", "name": "b"}, {"kind": "k", "name": "b"}]`:                  "jobs[0]: name \"b\" is that of several jobs (SQLSTATE JQ001)",
		`[{"kind": "k", "name": {}}]`:                                               "jobs[0]: name must be text, not object (SQLSTATE JQ001)",
		`[{"kind": "k", "name": "b", "other": 1}]`:                                  "jobs[0]: unknown member \"other\"; there are kind,",
		`[{"kind": "k", "after_failure": "run"}, {"kind": "k", "after": ["none"]}]`: "jobs[1]: after: no job of the list has the name \"none\" (SQLSTATE JQ001)",
	} {
		require.ErrorContains(t, q.refusal("select * from jobq.enqueue_many($1::jsonb)", list), want, list)
	}
	for _, list := range []string{
		`[{"kind": "free", "after_failure": "run"}]`,
		`[{"kind": "free", "name": "a"}, {"kind": "free", "name": "b"}, {"kind": "free", "name": null}, {"kind": "free", "name": null}]`,
		`[{"kind": "free", "after": null, "after_failure": null}, {"kind": "free", "after": []}]`,
	} {
		q.exec("select * from jobq.enqueue_many($1::jsonb)", list)
	}
	require.Equal(t, 7, q.number("select count(*) from jobq.job where kind = 'free' and state = 'available'"))
	require.Zero(t, q.number("select count(*) from jobq.dependency"))
	q.exec(`select * from jobq.enqueue_many(jsonb_build_array(jsonb_build_object('kind', 'one', 'after', jsonb_build_array($1::bigint))))`, parent.ID)
	require.Equal(t, 1, q.number("select count(*) from jobq.job where kind = 'one' and state = 'waiting'"))
}

// Jobs of one call wait for one another by name and for others by id; nobody needs to look
// at those of the call. A job whose unique key is held is not added: others wait for its holder.
func TestGraphInOneCall(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	holder, running := int64(q.number("select jobq.enqueue('k', unique_key => 'u')")), q.parent()
	if running.ID == holder { // it was the first in the line
		running = q.parent()
	}
	q.exec(`select * from jobq.enqueue_many(jsonb_build_array(
		jsonb_build_object('kind', 'a', 'name', 'a'),
		jsonb_build_object('kind', 'b', 'name', 'b', 'after', jsonb_build_array('a', $1::bigint), 'after_failure', 'run'),
		jsonb_build_object('kind', 'k', 'name', 'u', 'unique_key', 'u', 'after', '["b"]'::jsonb),
		jsonb_build_object('kind', 'c', 'after', '["u", "a", "a"]'::jsonb)))`, running.ID)
	edges := `select coalesce(string_agg(format('%s-%s', (select j.kind from jobq.job j where j.id = d.child), d.parent), ' ' order by d.child, d.parent), '') from jobq.dependency d`
	a := q.number("select id from jobq.job where kind = 'a'")
	first, second := min(holder, int64(a)), max(holder, int64(a))
	require.Equal(t, fmt.Sprintf("b-%d b-%d c-%d c-%d", running.ID, a, first, second), q.text(edges))
	require.Equal(t, "run", q.text("select distinct on_failure from jobq.dependency d join jobq.job j on j.id = d.child and j.kind = 'b'"))
	require.Equal(t, 2, q.number("select count(*) from jobq.dependency_look"), "of the holder and the one that runs")
	require.Equal(t, 2, q.number("select count(*) from jobq.job where state = 'waiting'"))
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

// A child that somebody has locked keeps neither its parent's other children waiting nor is
// it forgotten; one that was cancelled or requeued meanwhile is left alone.
func TestChildIsLocked(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	parent := q.parent()
	locked, free, cancelled, requeued := q.child("cancel", parent.ID), q.child("cancel", parent.ID), q.child("cancel", parent.ID), q.child("cancel", parent.ID)
	q.exec("select jobq.cancel($1)", cancelled)
	q.exec("select jobq.requeue($1)", requeued)
	require.Equal(t, "available", q.state(requeued))
	release := q.locked(func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "select from jobq.pending where id = $1 for update", locked)
		return err
	})
	q.completes(plainly(parent))
	for range 5 {
		q.settleStep(2)
	}
	require.Equal(t, "waiting", q.state(locked))
	require.Equal(t, "available", q.state(free))
	release()
	q.settle()
	require.Equal(t, "available", q.state(locked))
	require.Equal(t, "cancelled", q.state(cancelled))
	require.Equal(t, "available", q.state(requeued))
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

// The graph of a job has those for which it waits and those that wait for it, directly or
// not, and not others that wait for the same; also those that are over or gone.
func TestGraphList(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	first := q.parent()
	gone := q.parent()
	middle := q.child("run", first.ID, gone.ID)
	other := q.child("run", first.ID)
	last := q.child("run", middle, other)
	q.completes(plainly(first), plainly(gone))
	q.settle()
	q.exec("select jobq.delete_job($1)", gone.ID)
	graph := func(id int64) (told []string) {
		rows, err := q.queries.GraphList(context.Background(), id)
		require.NoError(t, err)
		for _, row := range rows {
			told = append(told, fmt.Sprint(row.ID, row.Kind, row.State, row.After))
		}
		return told
	}
	of := map[int64]string{
		first.ID: fmt.Sprint(first.ID, "k", "completed", []int64{}), gone.ID: fmt.Sprint(gone.ID, "", "", []int64{}),
		middle: fmt.Sprint(middle, "k", "available", []int64{first.ID, gone.ID}), other: fmt.Sprint(other, "k", "available", []int64{first.ID}),
		last: fmt.Sprint(last, "k", "waiting", []int64{middle, other}),
	}
	require.Equal(t, []string{of[first.ID], of[gone.ID], of[middle], of[last]}, graph(middle))
	require.Equal(t, []string{of[first.ID], of[gone.ID], of[middle], of[other], of[last]}, graph(last))
	require.Equal(t, []string{of[gone.ID], of[middle], of[last]}, graph(gone.ID))
	require.Equal(t, []string{fmt.Sprint(4711, "", "", []int64{})}, graph(4711))
}

// A graph with more than a thousand jobs each way is cut there.
func TestGraphListIsBounded(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("select * from jobq.enqueue_many((select jsonb_agg(jsonb_build_object('kind', 'k', 'name', i::text, 'after', case when i > 1 then jsonb_build_array((i - 1)::text) else '[]' end) order by i) from generate_series(1, 3000) i))")
	rows, err := q.queries.GraphList(context.Background(), 1500)
	require.NoError(t, err)
	require.Len(t, rows, 1999)
	require.EqualValues(t, 501, rows[0].ID)
	require.EqualValues(t, 2499, rows[len(rows)-1].ID)
	one, err := q.queries.GraphList(context.Background(), 1)
	require.NoError(t, err)
	require.Len(t, one, 1000)
}

// The graph says that a job waits for the one that was asked about also where it waits for more than
// are told, and of that one it has more.
func TestGraphListOfManyParents(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	const count = 150
	q.exec("select * from jobq.enqueue_many((select jsonb_agg(jsonb_build_object('kind', 'k')) from generate_series(1, $1::integer)))", count)
	join := q.number("select jobq.enqueue('k', after => (select array_agg(id) from jobq.job))")
	after := func(id int64) []int64 {
		rows, err := q.queries.GraphList(context.Background(), id)
		require.NoError(t, err)
		require.EqualValues(t, join, rows[len(rows)-1].ID)
		return rows[len(rows)-1].After
	}
	require.Len(t, after(int64(join)), count)
	require.Len(t, after(50), 100)
	require.Equal(t, append(after(50), 120), after(120))
}

// A job that an undo has put back to wait, when those for which it waits are over, is freed
// also if somebody has it locked when the janitor looks for the first time.
func TestUndoneChildIsLocked(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	parent := q.parent()
	id := q.child("cancel", parent.ID)
	audit, _ := q.act("cancel", nil, id)
	q.completes(plainly(parent))
	q.settle()
	q.exec("select jobq.undo('ann', $1)", audit)
	release := q.locked(func(tx pgx.Tx) error {
		_, err := tx.Exec(context.Background(), "select from jobq.pending where id = $1 for update", id)
		return err
	})
	for range 3 {
		q.settleStep(500)
	}
	require.Equal(t, "waiting", q.state(id))
	release()
	q.settle()
	require.Equal(t, "available", q.state(id))
}

// Every column of a job that is cancelled with its parent is what it is after a cancel by
// hand, but for the reason.
func TestColumnsOfOneCancelledWithItsParent(t *testing.T) {
	t.Parallel()
	changes := func(end string) []string {
		q := setUp(t)
		q.exec(everyColumn, `{"a": 1}`, "key")
		q.exec("update jobq.pending set waits = true, position = null")
		before := q.columns()
		q.exec(end)
		q.settle()
		after := q.columns()
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

// A parent with many children does not hold up those of others: its turn comes again when
// the others have had theirs.
func TestManyChildrenHoldUpNobody(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	many, few := q.parent(), q.parent()
	q.exec("select jobq.enqueue('k', queue => 'children', after => array[$1::bigint]) from generate_series(1, 40)", many.ID)
	one := q.child("cancel", few.ID)
	q.settle()
	q.completes(plainly(many))
	q.completes(plainly(few))
	q.exec("update jobq.dependency_look set look_at = now() - interval '1 min' + case when job_id = $1 then interval '0' else interval '1 s' end where not is_new", many.ID)
	row, err := q.queries.DependencyStep(context.Background(), db.DueFrom(time.Time{}), 10)
	require.NoError(t, err)
	require.True(t, row.More)
	require.Equal(t, "waiting", q.state(one))
	_, err = q.queries.DependencyStep(context.Background(), db.DueFrom(time.Time{}), 10)
	require.NoError(t, err)
	require.Equal(t, "available", q.state(one))
	q.settle()
	require.Zero(t, q.number("select count(*) from jobq.pending where waits"))
}

// Two sessions that deal at once with the two parents of one child free it: the later one
// sees what the earlier one has done, since it looks again after it has locked the child. One
// that keeps its snapshot would not, and is refused.
func TestParentsAreDealtWithAtOnce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	a, b := q.parent(), q.parent()
	id := q.child("cancel", a.ID, b.ID)
	q.settle()
	q.exec("delete from jobq.dependency_look") // those of new parents
	begin := func(level pgx.TxIsoLevel) pgx.Tx {
		tx, err := q.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		return tx
	}
	step := func(tx pgx.Tx) error {
		_, err := q.schema.Queries(tx).DependencyStep(ctx, db.DueFrom(time.Time{}), 500)
		return err
	}
	q.completes(plainly(b))
	second := begin(pgx.ReadCommitted) // has what it is to deal with before the other parent ends
	_, err := second.Exec(ctx, "select from jobq.dependency_look where job_id = $1 for update", b.ID)
	require.NoError(t, err)
	q.completes(plainly(a))
	first := begin(pgx.ReadCommitted)
	require.NoError(t, step(first))
	require.NoError(t, first.Commit(ctx))
	require.Equal(t, "waiting", q.state(id))
	require.NoError(t, step(second))
	require.NoError(t, second.Commit(ctx))
	require.Equal(t, "available", q.state(id))

	require.ErrorContains(t, step(begin(pgx.RepeatableRead)), "dependency_step needs read committed, not repeatable read")
}

// A dependency that another session has locked, such as one that forgets old ones, comes
// again: wherever it is among those of its parent, and whoever looks in between.
func TestDependencyIsLocked(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, count := range map[string]int32{"the last page": 500, "a full page": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			parent := q.parent()
			locked, free := q.child("cancel", parent.ID), q.child("cancel", parent.ID)
			q.settle()
			q.exec("delete from jobq.dependency_look") // that of a new parent
			q.completes(plainly(parent))
			other, err := q.pool.Begin(ctx)
			require.NoError(t, err)
			defer func() { _ = other.Rollback(ctx) }()
			_, err = other.Exec(ctx, "select from jobq.dependency where child = $1 for update", locked)
			require.NoError(t, err)
			for range 3 {
				q.settleStep(count)
			}
			require.Equal(t, "available", q.state(free))
			require.Equal(t, "waiting", q.state(locked))
			require.NoError(t, other.Rollback(ctx))
			q.settle()
			require.Equal(t, "available", q.state(locked))
		})
	}
}

// A parent that was deleted when it had completed stays one that had completed, also when
// another session deals with the end while this one deals with the delete.
func TestDeletedParentIsLookedAtByTwo(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	parent := q.parent()
	id := q.child("cancel", parent.ID)
	q.settle()
	q.exec("delete from jobq.dependency_look") // that of a new parent
	q.completes(plainly(parent))
	q.exec("select jobq.delete_job($1)", parent.ID)
	require.Equal(t, 2, q.number("select count(*) from jobq.dependency_look"))
	first, err := q.pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = first.Rollback(ctx) }()
	_, err = first.Exec(ctx, "select from jobq.dependency_look where ended is null for update")
	require.NoError(t, err)
	_, err = first.Exec(ctx, "select from jobq.dependency for update")
	require.NoError(t, err)
	q.settleStep(500)
	require.NoError(t, first.Rollback(ctx)) // as if it had found the child locked
	q.settle()
	require.Equal(t, "available", q.state(id))
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
		waits, err := q.queries.WorkWaits(context.Background(), []string{"k"}, []string{queue})
		require.NoError(t, err)
		require.Equal(t, want, waits, queue)
	}
	waits, err := q.queries.WorkWaits(context.Background(), []string{"other"}, []string{"children"})
	require.NoError(t, err)
	require.False(t, waits, "of another kind")
	q.exec("insert into jobq.pending (id, position, waits, kind, queue) select 1000000 + i, null, true, 'x', 'x' from generate_series(1, 1000) i")
	waits, err = q.queries.WorkWaits(context.Background(), []string{"other"}, []string{"children"})
	require.NoError(t, err)
	require.True(t, waits, "more wait than are looked at")
}
