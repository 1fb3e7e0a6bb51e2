package db_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

const (
	// firstBigID is above 2^31, where an integer would no longer do.
	firstBigID = 3_000_000_000
	planBatch  = 200
	// touchedMax bounds the rows that any node of a plan looks at, for each job
	// of the batch: a few, since some look twice, and never as many as the
	// table or the square of the batch has.
	touchedMax = 4
	// expiredEach: one lease of so many has expired.
	expiredEach = 20
)

// planNode is a node of a plan as EXPLAIN (ANALYZE, FORMAT JSON) shows it.
type planNode struct {
	Type         string  `json:"Node Type"`
	Relation     string  `json:"Relation Name"`
	Filter       string  `json:"Filter"`
	Rows         float64 `json:"Actual Rows"`
	Loops        float64 `json:"Actual Loops"`
	Filtered     float64 `json:"Rows Removed by Filter"`
	JoinFiltered float64 `json:"Rows Removed by Join Filter"`
	Rechecked    float64 `json:"Rows Removed by Index Recheck"`
	Plans        []planNode
}

// touched is how many rows the node has looked at in all.
func (n planNode) touched() float64 {
	return (n.Rows + n.Filtered + n.JoinFiltered + n.Rechecked) * n.Loops
}

// walk visits the node and those below it.
func (n planNode) walk(visit func(planNode)) {
	visit(n)
	for _, below := range n.Plans {
		below.walk(visit)
	}
}

// hotStatement is a statement of the hot path with arguments for a batch.
type hotStatement struct {
	name, sql string
	args      func(ids, tokens string) string
	// rows is how many it returns for each job of the batch.
	rows int
	// scansRunning is said of the reaper, which by design reads the whole of
	// running, once to look and, with a plan made early, once more to take; but
	// not once a job.
	scansRunning bool
}

func hotStatements() []hotStatement {
	repeat := func(value string) string { return "array_fill(" + value + ", array[" + fmt.Sprint(planBatch) + "])" }
	return []hotStatement{
		{"claim", db.JobClaim, func(string, string) string {
			return fmt.Sprintf("'1 hour', 'a', '{-32769}', '{0}', '{32767}', 'default', '{k,other}', %d", planBatch)
		}, 1, false},
		{"complete", db.JobComplete, func(ids, tokens string) string {
			return fmt.Sprintf("%s, %s, %s, 'a', true", ids, tokens, repeat("null::jsonb"))
		}, 1, false},
		{"end", db.JobEnd, func(ids, tokens string) string {
			return fmt.Sprintf("%s, %s, %s, %s, %s, %s, %s, %s, %s, 'a'", ids, tokens, repeat("'failed'::text"), repeat("'e'::text"),
				repeat("''::text"), repeat("null::interval"), repeat("false"), repeat("5000::bigint"), repeat("false"))
		}, 1, false},
		{"extend", db.LeaseExtend, func(ids, tokens string) string {
			return fmt.Sprintf("%s, %s, 'a', '1 hour'", ids, tokens)
		}, 2, false}, // ok and, of all that it held, busy: see there
		{"reap", db.LeaseReap, func(string, string) string { return fmt.Sprintf("null, %d, 'test'", planBatch) }, 1, true},
	}
}

// prepare makes the statements known to a connection. The hot settings come
// first, as in an exchange; the reaper runs without them.
func prepare(t *testing.T, q *queue, conn *pgxpool.Conn) {
	t.Helper()
	for _, s := range hotStatements() {
		_, err := conn.Exec(context.Background(), fmt.Sprintf("prepare hot_%s as %s", s.name, q.schema.SQL(s.sql)))
		require.NoError(t, err, s.name)
	}
}

// explain runs a statement for a batch of jobs and returns its plan with what
// each node did, and undoes it.
func explain(t *testing.T, conn *pgxpool.Conn, s hotStatement, mode string) planNode {
	t.Helper()
	ctx := context.Background()
	tx, err := conn.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(ctx) }()
	var ids, tokens string
	err = tx.QueryRow(ctx, `select coalesce(array_agg(r.id), '{}')::text, coalesce(array_agg(r.lease_token), '{}')::text
		from (select id, lease_token from jobq.running where lease_owner = 'a' order by id limit $1) r`, planBatch).Scan(&ids, &tokens)
	require.NoError(t, err)
	if !s.scansRunning {
		_, err = tx.Exec(ctx, db.HotSettings)
		require.NoError(t, err)
	}
	_, err = tx.Exec(ctx, "select set_config('plan_cache_mode', $1, true)", mode)
	require.NoError(t, err)
	var plan []byte
	err = tx.QueryRow(ctx, fmt.Sprintf("explain (analyze, timing off, format json) execute hot_%s(%s)", s.name,
		s.args("'"+ids+"'", "'"+tokens+"'"))).Scan(&plan)
	require.NoError(t, err, s.name)
	var explained []struct{ Plan planNode }
	require.NoError(t, json.Unmarshal(plan, &explained))
	if t.Failed() {
		t.Logf("%s", plan)
	}
	return explained[0].Plan
}

// excess says what is wrong with what a plan did, with so many jobs running:
// it must do the batch, no more than the batch, and look at few rows for it. Empty when it is right.
func excess(s hotStatement, plan planNode, running int) string {
	if want := float64(s.rows * planBatch); plan.Rows != want {
		return fmt.Sprintf("returns %.0f rows and not %.0f", plan.Rows, want)
	}
	limit, worst := float64(touchedMax*planBatch), ""
	if s.scansRunning {
		limit = max(limit, float64(running/expiredEach))
	}
	plan.walk(func(n planNode) {
		if s.scansRunning && n.Loops == 1 && n.Relation == "running" {
			return
		}
		if n.touched() > limit {
			worst = fmt.Sprintf("%s %s (%s), %.0f times, looks at %.0f rows for a batch of %d", n.Type, n.Relation, n.Filter, n.Loops, n.touched(), planBatch)
		}
	})
	return worst
}

// fillForPlans adds waiting jobs, in several queues and priorities, and
// running ones of which some have expired.
func (q *queue) fillForPlans(pending, running int) {
	q.Helper()
	q.exec("alter table jobq.pending disable trigger user")
	q.exec(`insert into jobq.pending (kind, queue, priority)
		select 'k', case when i % 2 = 0 then 'default' else 'q' || i % 10 end, i % 5 from generate_series(1, $1::integer) i`, pending)
	q.exec(`insert into jobq.running (id, lease_token, lease_expires_at, started_at, run_at, created_at, priority, attempts, max_attempts,
		  crashes, args_apart, queue, kind, lease_owner, args)
		select nextval('jobq.job_id_seq'), 1, now() + case when i % $2 = 0 then interval '-1 hour' else interval '1 hour' end, now(), now(),
		  now(), 0, 0, 25, 0, false, 'default', 'k', case when i % 2 = 0 then 'a' else 'b' end, '{}'
		from generate_series(1, $1::integer) i`, running, expiredEach)
}

// withoutAutovacuum keeps statistics what the test says they are.
func (q *queue) withoutAutovacuum() {
	q.Helper()
	q.exec("alter table jobq.pending set (autovacuum_enabled = false)")
	q.exec("alter table jobq.running set (autovacuum_enabled = false)")
	q.exec("select setval('jobq.job_id_seq', $1::bigint), setval('jobq.position_seq', $1::bigint)", firstBigID)
}

// forgeStatistics writes what VACUUM would have written when the tables had so
// many pages and rows; -1 rows means that it has never come by.
func (q *queue) forgeStatistics(pages, rows int) {
	q.Helper()
	q.exec("delete from pg_statistic where starelid in ('jobq.pending'::regclass, 'jobq.running'::regclass)")
	q.exec(`update pg_class set relpages = $1, reltuples = $2
		where oid in (select 'jobq.pending'::regclass union select 'jobq.running'::regclass
		  union select indexrelid from pg_index where indrelid in ('jobq.pending'::regclass, 'jobq.running'::regclass))`, pages, rows)
}

// With a million jobs waiting and far more running than any number of workers
// has in hand, ids above 2^31, and whatever statistics say, the hot statements
// look at the rows of their batch and few others, with plans made for any
// arguments and for these.
func TestPlansOfAMillion(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.withoutAutovacuum()
	const waiting, running = 1_000_000, 200_000
	q.fillForPlans(waiting, running)
	conn, err := q.pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	prepare(t, q, conn)
	for _, statistics := range []struct {
		name string
		make func()
	}{
		{"absent", func() { q.forgeStatistics(0, -1) }},
		{"of empty tables", func() { q.forgeStatistics(0, 0) }},
		{"of one row", func() { q.forgeStatistics(1, 1) }},
		{"fresh", func() {
			q.exec("analyze jobq.pending")
			q.exec("analyze jobq.running")
		}},
	} {
		statistics.make()
		for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
			for _, s := range hotStatements() {
				require.Empty(t, excess(s, explain(t, conn, s, mode), running), "%s, statistics %s, %s", s.name, statistics.name, mode)
			}
		}
	}
}

// A plan that a connection made when there was little or nothing, and keeps,
// serves it as well when there is much.
func TestPlansMadeEarly(t *testing.T) {
	t.Parallel()
	for name, early := range map[string]struct {
		running  int
		analyze  bool
		hollowed bool // vacuumed later, when all rows had gone and the pages stayed
	}{
		"empty, never analysed":     {0, false, false},
		"empty, vacuumed":           {0, true, false},
		"ten running, not analysed": {10, false, false},
		"ten running, vacuumed":     {10, true, false},
		"hollowed out":              {0, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			q := setUp(t)
			q.withoutAutovacuum()
			if early.analyze {
				q.exec("vacuum (analyze)")
			}
			q.fillForPlans(0, early.running)
			conn, err := q.pool.Acquire(ctx)
			require.NoError(t, err)
			defer conn.Release()
			prepare(t, q, conn)
			const mode = "force_generic_plan"
			for _, s := range hotStatements() {
				explain(t, conn, s, mode)
			}
			const running = 8_000
			q.fillForPlans(running, running)
			if early.hollowed {
				q.forgeStatistics(running/10, 0)
			}
			for _, s := range hotStatements() {
				problem := excess(s, explain(t, conn, s, mode), running)
				require.Empty(t, problem, "%s, planned when %s", s.name, name)
			}
		})
	}
}
