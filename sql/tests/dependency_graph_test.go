package tests

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

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
