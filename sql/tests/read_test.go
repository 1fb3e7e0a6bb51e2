package tests

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// A page of the list reads about as many rows as it shows, however deep it
// is, and a job is found by its id, with a hundred thousand jobs in the
// history and as many waiting.
func TestReadPlans(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	const count = 100_000
	q.exec("insert into jobq.pending (kind) select 'k' from generate_series(1, $1::integer)", count)
	require.NoError(t, pgtest.InsertFinished(context.Background(), q.pool, count, pgtest.Columns{"finished_at": "now() + (i % 4) * interval '1 day'"}))
	q.exec("analyze jobq.pending")
	q.exec("analyze jobq." + pgtest.History)
	states := []string{"scheduled", "available", "running", "completed", "failed", "cancelled"}
	plans := []string{q.explainRead(db.JobGet, fmt.Sprint(count+500))}
	// The few that did not succeed are found without the many that did.
	list, _ := db.JobPage{States: []string{"failed"}, Sort: db.SortFinished}.SQL()
	plans = append(plans, q.explainRead(list, "50"))
	for _, before := range []int{math.MaxInt64, count + 1000, 1000} {
		list, _ := db.JobPage{States: states, Sort: db.SortID, After: &db.JobKey{ID: int64(before)}}.SQL()
		plans = append(plans, q.explainRead(list, fmt.Sprintf("50, %d, %d, %d", before, before, before)))
	}
	numbers := regexp.MustCompile(`(?:actual rows=|Rows Removed by Filter: )(\d+)`) // 18 writes 500.00, of which this is the 500
	for _, plan := range plans {
		for _, match := range numbers.FindAllStringSubmatch(plan, -1) {
			rows, err := strconv.Atoi(match[1])
			require.NoError(t, err)
			require.LessOrEqual(t, rows, 100, plan)
		}
	}
}

// The failed jobs of all queues, which every look at the queues counts, lie far
// apart among those that completed: they are counted without reading their rows.
func TestQueueListReadsNoEndedRow(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	require.NoError(t, pgtest.InsertFinished(context.Background(), q.pool, 50_000, pgtest.Columns{
		"finished_at": "now() + (i % 4) * interval '1 day'", "state": "case when i % 100 < 4 then 'failed' else 'completed' end::jobq.job_state",
	}))
	q.vacuumWhole(pgtest.History)
	plan := q.explainRead(db.QueueList, "10000")
	require.Regexp(t, `Index Only Scan[^\n]* on run_\d+ .*actual rows=500(\.00)? `, plan) // 18 has fractions
	require.NotRegexp(t, `(?:Index|Seq|Bitmap Heap) Scan[^\n]* on run_\d+ `, plan)
	require.NotRegexp(t, `Heap Fetches: [1-9]`, plan)
}

// vacuumWhole vacuums a partitioned table until each page is all-visible. Somebody else's snapshot, such as autovacuum's while it
// analyzes another table, can keep it from that.
func (q *queue) vacuumWhole(table string) {
	q.Helper()
	require.Eventually(q, func() bool {
		q.exec("vacuum (analyze) jobq." + table)
		return q.text(`select bool_and(c.relallvisible = c.relpages)::text
			from pg_partition_tree($1) t join pg_class c on c.oid = t.relid where t.isleaf`, "jobq."+table) == "true"
	}, eventually, tick)
}

// explainRead runs a statement and returns its plan with what it read.
func (q *queue) explainRead(query, args string) string {
	q.Helper()
	ctx := context.Background()
	tx, err := q.pool.Begin(ctx)
	require.NoError(q, err)
	defer func() { _ = tx.Rollback(ctx) }()
	_, err = tx.Exec(ctx, "prepare reading as "+q.schema.SQL(query))
	require.NoError(q, err)
	defer func() { _, _ = tx.Exec(ctx, "deallocate reading") }()
	rows, err := tx.Query(ctx, fmt.Sprintf("explain (analyze, timing off, summary off) execute reading(%s)", args))
	require.NoError(q, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(q, err)
	return strings.Join(lines, "\n")
}
