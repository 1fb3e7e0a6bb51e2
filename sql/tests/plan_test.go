package tests

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
	// planLease is how many jobs a lease has, and planLeases of how many leases a batch is.
	planLease  = 50
	planLeases = planBatch / planLease
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

// hotBatch is what the statements are to work on: running jobs of one owner, by
// lease, as arrays of SQL.
type hotBatch struct {
	ids, tokens, slots string // of each job
	claimed            string // when its lease was claimed
	leases, claims     string // of each lease, and when it was claimed
	lows, highs        string
}

// hotStatement is a statement of the hot path with arguments for a batch.
type hotStatement struct {
	name, sql string
	args      func(b hotBatch) string
	// rows is how many it returns for the batch.
	rows int
	// scansLease is said of the reaper, which by design reads the whole of lease,
	// once to look and, with a plan made early, once more to take; but not once a job.
	scansLease bool
}

func hotStatements() []hotStatement {
	repeat := func(value string) string { return "array_fill(" + value + ", array[" + fmt.Sprint(planBatch) + "])" }
	const jobs, leases = planBatch, planLeases
	claim := func(passLocked, leasePerJob bool) func(b hotBatch) string {
		return func(hotBatch) string {
			return fmt.Sprintf("'{-32769}', '{0}', '{32767}', 'default', '{k,other}', false, %t, %d, '1 hour', 10, 10, 'a', %t", passLocked, planBatch, leasePerJob)
		}
	}
	return []hotStatement{
		{"claim", db.JobClaim, claim(true, false), jobs, false},
		{"claim_whole", db.JobClaim, claim(false, false), jobs, false},
		{"claim_each", db.JobClaim, claim(true, true), jobs, false},
		{"claim_each_whole", db.JobClaim, claim(false, true), jobs, false},
		{"lease_end", db.LeaseEnd, func(b hotBatch) string {
			return fmt.Sprintf("'a', '{}', '{}', '{}', %s, %s, %s, %s, %s, %s, '1 min', '{}', '{}', '{}', '{}'", b.slots, b.leases, b.claims, b.lows, b.highs, b.lows)
		}, leases, false},
		{"lease_told", db.LeaseEnd, func(b hotBatch) string {
			return fmt.Sprintf("'a', %s, %s, %s, '{}', %s, %s, %s, %s, %s, '1 min', '{}', '{}', '{}', '{}'", b.tokens, b.slots, b.ids, b.leases, b.claims, b.lows, b.highs, b.lows)
		}, leases, false},
		{"lease_look", db.LeaseLook, func(b hotBatch) string { return b.leases + ", " + b.claims + ", 'a'" }, leases, false},
		{"end", db.RunEnd, func(b hotBatch) string {
			return fmt.Sprintf("%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, 'a'", b.ids, b.tokens, b.claimed, repeat("true"), repeat("'failed'::text"), repeat("'e'::text"),
				repeat("''::text"), repeat("null::interval"), repeat("false"), repeat("5000::bigint"), repeat("false"), repeat("null::jsonb"), repeat("null::jsonb"))
		}, jobs, false},
		{"complete", db.RunEnd, func(b hotBatch) string {
			return fmt.Sprintf("%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, 'a'", b.ids, b.tokens, b.claimed, repeat("true"), repeat("'completed'::text"), repeat("''::text"),
				repeat("''::text"), repeat("null::interval"), repeat("false"), repeat("5000::bigint"), repeat("false"), repeat("'1'::jsonb"), repeat("null::jsonb"))
		}, jobs, false},
		{"held", db.RunHeld, func(b hotBatch) string { return b.ids + ", " + b.tokens + ", " + b.claimed + ", 'a'" }, jobs, false},
		{"extend", db.LeaseExtend, func(b hotBatch) string { return "'1 hour', 'a', " + b.leases + ", " + b.claims + ", '1 hour'" }, leases, false},
		{"reap", db.LeaseReap, func(hotBatch) string { return fmt.Sprintf("null, '{}', null, %d, '{}', 'test'", planBatch) }, jobs, true},
	}
}

// prepare makes the statements known to a connection.
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
	// Of the leases of the owner's that have not expired: the reaper takes none of these.
	var b hotBatch
	err = tx.QueryRow(ctx, `
		with l as materialized (
		  select l.id, l.claimed_at, l.job_ids, row_number() over (order by l.id) - 1 as place from jobq.lease l where l.owner = 'a' and l.expires_at > now() order by l.id limit $1
		), j as materialized (
		  select u.job_id, u.slot, l.id as lease_id, l.place, l.claimed_at from l cross join lateral unnest(l.job_ids) with ordinality as u(job_id, slot)
		)
		select quote_literal(coalesce(array_agg(j.job_id order by j.place, j.slot), '{}')::text), quote_literal(coalesce(array_agg(j.lease_id order by j.place, j.slot), '{}')::text),
		    quote_literal(coalesce(array_agg(j.slot order by j.place, j.slot), '{}')::text), quote_literal(coalesce(array_agg(j.claimed_at order by j.place, j.slot), '{}')::text),
		    (select quote_literal(coalesce(array_agg(l.id order by l.place), '{}')::text) from l),
		    (select quote_literal(coalesce(array_agg(l.claimed_at order by l.place), '{}')::text) from l),
		    (select quote_literal(coalesce(array_agg(l.place * $2 + 1 order by l.place), '{}')::text) from l),
		    (select quote_literal(coalesce(array_agg((l.place + 1) * $2 order by l.place), '{}')::text) from l)
		  from j`, planLeases, planLease).Scan(&b.ids, &b.tokens, &b.slots, &b.claimed, &b.leases, &b.claims, &b.lows, &b.highs)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, db.HotSettings)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "select set_config('plan_cache_mode', $1, true)", mode)
	require.NoError(t, err)
	var plan []byte
	err = tx.QueryRow(ctx, fmt.Sprintf("explain (analyze, timing off, format json) execute hot_%s(%s)", s.name,
		s.args(b))).Scan(&plan)
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
	if want := float64(s.rows); plan.Rows != want {
		return fmt.Sprintf("returns %.0f rows and not %.0f", plan.Rows, want)
	}
	limit, worst := float64(touchedMax*planBatch), ""
	if s.scansLease {
		limit = max(limit, float64(running/expiredEach))
	}
	plan.walk(func(n planNode) {
		if s.scansLease && n.Loops == 1 && n.Relation == "lease" {
			return
		}
		if n.touched() > limit {
			worst = fmt.Sprintf("%s %s (%s), %.0f times, looks at %.0f rows for a batch of %d", n.Type, n.Relation, n.Filter, n.Loops, n.touched(), planBatch)
		}
	})
	return worst
}

// fillForPlans adds waiting jobs, in several queues and priorities, and
// running ones, in leases of which some have expired.
func (q *queue) fillForPlans(pending, running int) {
	q.Helper()
	q.exec("alter table jobq.pending disable trigger user")
	q.exec(`insert into jobq.pending (kind, queue, priority)
		select 'k', case when i % 2 = 0 then 'default' else 'q' || i % 10 end, i % 5 from generate_series(1, $1::integer) i`, pending)
	q.exec(`
		with l as (
		  insert into jobq.lease (id, claimed_at, expires_at, owner, queue, job_ids)
		    select jobq.lease_id_next(), now(), now() + case when i % $2 = 0 then interval '-1 hour' else interval '1 hour' end,
		        case when i % 2 = 0 then 'a' else 'b' end, 'default', array(select nextval('jobq.job_id_seq') from generate_series(1, least($3::integer, $1::integer)) j where i > 0)
		      from generate_series(1, ceil($1::float8 / $3::integer)::integer) i
		    returning id, job_ids
		)
		insert into jobq.run (id, lease_id, slot, position, run_at, created_at, priority, attempts, max_attempts, crashes, args_apart, queue, kind, args)
		  select u.job_id, l.id, u.slot, u.job_id, now(), now(), 0, 0, 25, 0, false, 'default', 'k', '{}'
		    from l cross join lateral unnest(l.job_ids) with ordinality as u(job_id, slot)`, running, expiredEach, planLease)
}

// tablesForPlans are those whose statistics the tests forge, with their indexes.
const tablesForPlans = `(select c.oid from pg_class c where c.relnamespace = 'jobq'::regnamespace and c.relname ~ '^(pending|lease|progress|run)(_|$)')`

// autovacuumOff keeps autovacuum away from all tables that are there now, and so from what tests of plans rely on. It would make
// statistics in the middle of a test, and while it does, statements read the dead rows of those before again and again.
const autovacuumOff = `do $$ declare name text; begin
	for name in select c.oid::regclass from pg_class c where c.relkind = 'r' and c.relnamespace = 'jobq'::regnamespace loop
	  execute format('alter table %s set (autovacuum_enabled = false)', name);
	end loop; end $$`

// withoutAutovacuum keeps statistics what the test says they are.
func (q *queue) withoutAutovacuum() {
	q.Helper()
	q.exec(autovacuumOff)
	q.exec("select setval('jobq.job_id_seq', $1::bigint), setval('jobq.position_seq', $1::bigint)", firstBigID)
}

// forgeStatistics writes what VACUUM would have written when the tables had so
// many pages and rows; -1 rows means that it has never come by.
func (q *queue) forgeStatistics(pages, rows int) {
	q.Helper()
	q.exec("delete from pg_statistic where starelid in " + tablesForPlans)
	q.exec("update pg_class set relpages = $1, reltuples = $2 where relkind in ('r', 'i') and oid in "+tablesForPlans, pages, rows)
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
			q.exec("analyze jobq.run, jobq.lease, jobq.progress")
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
