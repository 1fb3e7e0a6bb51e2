package tests

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// listCase is a list of jobs, and how many buffers its page, and a count of up to
// 10,000 of its jobs, may look at. 0 means that it may look at many.
type listCase struct {
	name        string
	page        db.JobPage
	list, count int
}

// listCases are lists of jobs of fillHistory. A filter that matches few of many
// jobs is not among them: it looks at many, as jobq.List says. What runs is looked
// up one by one (four buffers), and so is the lease of what is over.
func listCases() []listCase {
	const few, many = 1_000, 20_000
	all := []string{"waiting", "scheduled", "available", "running", "completed", "failed", "cancelled"}
	scheduled, over, run := all[1:2], all[4:], all[3:]
	by := func(states []string, condition db.Condition) db.JobPage {
		return db.JobPage{States: states, Sort: db.SortID, Condition: condition}
	}
	condition := func(sql func(db.Stage) string, values ...any) db.Condition {
		return func(stage db.Stage, first int) (string, []any) { return fmt.Sprintf(sql(stage), first), values }
	}
	owner := condition(func(s db.Stage) string { return s.Worker + " = any($%d::text[])" }, []string{"w3"})
	queue := condition(func(s db.Stage) string { return s.Queue + " = any($%d::text[])" }, []string{"q3"})
	since := condition(func(s db.Stage) string { return s.Since + " > now() - $%d::bigint * interval '1 us'" }, time.Hour.Microseconds())
	before := condition(func(s db.Stage) string { return s.Since + " < now() - $%d::bigint * interval '1 us'" }, (4 * 24 * time.Hour).Microseconds())
	one := func(id int64) db.Condition {
		return condition(func(s db.Stage) string { return s.ID + " = $%d::bigint" }, id)
	}
	return []listCase{
		{"all", by(all, nil), few, few},
		{"all, deep", db.JobPage{States: all, Sort: db.SortID, After: &db.JobKey{ID: 20_100_000}}, few, few},
		{"all, oldest", db.JobPage{States: all, Sort: db.SortID, Ascending: true}, few, few},
		{"due", db.JobPage{States: scheduled, Sort: db.SortDue, Ascending: true}, few, few},
		{"last due", db.JobPage{States: scheduled, Sort: db.SortDue}, few, few},
		{"scheduled", by(scheduled, nil), few, few},
		{"waiting", by([]string{"waiting"}, nil), few, few},
		{"waiting, deep", db.JobPage{States: []string{"waiting"}, Sort: db.SortID, After: &db.JobKey{ID: 6_010_000}}, few, few},
		{"waiting, oldest", db.JobPage{States: []string{"waiting"}, Sort: db.SortID, Ascending: true}, few, few},
		{"waiting, scheduled or available", by([]string{"waiting", "scheduled", "available"}, nil), few, few},
		{"running", by(run[:1], nil), few, few},
		{"running, longest", db.JobPage{States: run[:1], Sort: db.SortStarted, Ascending: true}, few, few},
		{"running, longest, deep", db.JobPage{States: run[:1], Sort: db.SortStarted, Ascending: true, After: &db.JobKey{Time: time.Now().Add(-time.Hour), ID: 1}}, few, few},
		{"running, deep", db.JobPage{States: run[:1], Sort: db.SortID, After: &db.JobKey{ID: 40_001_000}}, few, few},
		{"running, of a queue", by(run[:1], queue), few, few},
		{"running, of a worker", by(run[:1], owner), few, few},
		{"running or over", by(run, nil), few, few},
		{"over", by(over, nil), few, few},
		{"over, up to an id", db.JobPage{States: over, Sort: db.SortID, IDMax: 20_100_000}, few, few},
		{"over, of a queue", by(over, queue), few, 2 * few},
		{"over, of a worker", by(over, owner), 4 * few, 8 * many}, // a look at each job, but not at the lease of each
		{"over within an hour", db.JobPage{States: over, Sort: db.SortID, Condition: since, EndedWithin: time.Hour}, few, many},
		{"over within an hour of a moment", db.JobPage{States: over, Sort: db.SortID, Condition: since, EndedWithin: time.Hour, Now: time.Now()}, few, many},
		{"over before four days", db.JobPage{States: over, Sort: db.SortID, Condition: before, EndedBefore: 4 * 24 * time.Hour}, 4 * many, 0},
		{"completed", by(over[:1], nil), few, few},
		{"completed, deep", db.JobPage{States: over[:1], Sort: db.SortID, After: &db.JobKey{ID: 20_100_000}}, few, few},
		{"completed within an hour", db.JobPage{States: over[:1], Sort: db.SortID, Condition: since, EndedWithin: time.Hour}, few, many},
		{"failed", db.JobPage{States: over[1:], Sort: db.SortFinished}, few, few},
		{"failed, oldest", db.JobPage{States: over[1:], Sort: db.SortFinished, Ascending: true}, few, few},
		{"failed, deep", db.JobPage{States: over[1:], Sort: db.SortFinished, After: &db.JobKey{Time: time.Now().Add(-72 * time.Hour), ID: 1}}, few, few},
		{"failed within an hour", db.JobPage{States: over[1:], Sort: db.SortFinished, Condition: since, EndedWithin: time.Hour}, few, few},
		{"failed within an hour of a moment", db.JobPage{States: over[1:], Sort: db.SortFinished, Condition: since, EndedWithin: time.Hour, Now: time.Now()}, few, few},
		{"with args and results", db.JobPage{States: all, Sort: db.SortID, Values: true}, few, few},
		{"running, with args", db.JobPage{States: run[:1], Sort: db.SortID, Values: true}, few, few},
		{"of a queue", by(all, queue), few, 2 * few},
		{"one that is over", by(all, one(20_000_004)), few, few},
		{"one that runs", by(all, one(40_000_026)), few, few},
	}
}

// checkLists looks at what the lists of fillHistory's jobs cost, and how.
func (q *queue) checkLists(conn db.DBTX) {
	q.Helper()
	for _, c := range listCases() {
		c.page.Size = 51
		sql, args := c.page.SQL()
		buffers := fewestBuffers(cmp.Or(c.list, math.MaxInt), func() int { return explainBuffers(q.T, conn, sql, args...) })
		c.page.Size = 10_000
		countSQL, countArgs := c.page.CountSQL()
		counted := fewestBuffers(cmp.Or(c.count, math.MaxInt), func() int { return explainBuffers(q.T, conn, countSQL, countArgs...) })
		q.Logf("list %s: %d buffers, count %d", c.name, buffers, counted)
		if c.list > 0 && buffers > c.list || c.count > 0 && counted > c.count {
			q.Errorf("list %s looks at %d buffers, not %d at most; to count at %d, not %d", c.name, buffers, c.list, counted, c.count)
		}
		for _, statement := range []struct {
			sql  string
			args []any
		}{{sql, args}, {countSQL, countArgs}} {
			plan := q.plan(conn, statement.sql, statement.args...)
			// It would be one of the leases of the whole history.
			require.NotRegexp(q, `Hash (\w+ )*Join`, plan, c.name)
		}
	}
}

func (q *queue) plan(conn db.DBTX, sql string, args ...any) string {
	q.Helper()
	rows, err := conn.Query(context.Background(), "explain (costs off) "+sql, args...)
	require.NoError(q, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(q, err)
	return strings.Join(lines, "\n")
}
