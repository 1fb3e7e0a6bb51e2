package tests

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// sweepStep does one step, of one block or one lease, and says whether there may be another.
func (q *queue) sweepStep() (more bool, removed int) {
	q.Helper()
	row, err := q.queries.HistorySweep(context.Background(), 1, 1)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, 0
	}
	require.NoError(q, err)
	return true, int(row.Removed)
}

// sweep does steps until there is nothing to do, and returns how many jobs they have deleted.
func (q *queue) sweep() (removed int) {
	q.Helper()
	for range 10_000 {
		more, gone := q.sweepStep()
		if removed += gone; !more {
			return removed
		}
	}
	q.Fatal("there is always something to sweep")
	return removed
}

// dropDays takes out all days that can go.
func (q *queue) dropDays() {
	q.Helper()
	for _, parent := range []string{"run", "past_lease", "attempt"} {
		for pruned := "?"; pruned != ""; {
			var err error
			pruned, err = q.queries.PartitionPrune(context.Background(), parent)
			require.NoError(q, err)
		}
	}
	q.prunePayloads(1000, 1000)
}

// endedOn adds the day so many days ago, and jobs that ended on it, an hour after its beginning: a lease of three for each
// queue, of which one plainly succeeded, one failed after a retry, and one was cancelled. They have large args.
func (q *queue) endedOn(daysAgo int, queues ...string) {
	q.Helper()
	q.exec("select jobq.partition_add(parent, (now() at time zone 'UTC')::date - $1::integer) from unnest(array['run', 'past_lease', 'attempt']) parent", daysAgo)
	q.exec(`
		with l as (
		  select q.queue, t.day::timestamp at time zone 'UTC' + interval '1 h' as at, jobq.lease_day(t.day) + nextval('jobq.lease_number_seq') as id
		    from unnest($2::text[]) q(queue) cross join (select (now() at time zone 'UTC')::date - $1::integer as day) t
		), past as (
		  insert into jobq.past_lease (id, claimed_at, owner, ended) select l.id, l.at, 'w', '{5, -1, -1}' from l
		), j as (
		  insert into jobq.run (id, lease_id, slot, created_at, finished_at, state, priority, attempts, max_attempts, crashes, args_apart, queue, kind)
		    select nextval('jobq.job_id_seq'), l.id, s.slot, l.at, case when s.state is not null then l.at + interval '1 s' end, s.state, 0, 1, 25, 0, true, l.queue, 'k'
		      from l cross join (values (1::smallint, null::jobq.job_state), (2::smallint, 'failed'), (3::smallint, 'cancelled')) s(slot, state)
		    returning id, lease_id, slot, created_at
		), a as (
		  insert into jobq.attempt (job_id, finished_at, started_at, lease_token, outcome, number, worker_id)
		    select j.id, j.created_at + i * interval '500 ms', j.created_at, j.lease_id, 'failed', i, 'w' from j, generate_series(1, 2) i where j.slot = 2
		)
		insert into jobq.payload (job_id, args) select j.id, '[]' from j`, daysAgo, queues)
}

// left are the jobs of a queue that ended so many days ago and are still in the history, as states.
func (q *queue) left(queue string, daysAgo int) (states string) {
	q.Helper()
	require.NoError(q, q.pool.QueryRow(context.Background(), `
		select coalesce(string_agg(j.state::text, ' ' order by j.state), '') from jobq.job j
		  where j.queue = $1 and (j.finished_at at time zone 'UTC')::date = (now() at time zone 'UTC')::date - $2::integer`, queue, daysAgo).Scan(&states))
	return states
}

// keep sets the retentions of a queue, in days; 0 for the default.
func (q *queue) keep(queue string, days, failedDays int) (audit int) {
	q.Helper()
	return q.number(`select jobq.act_queue_set('ann', $1, jsonb_build_object('retention', nullif($2::integer, 0) * interval '1 day',
		'failed_retention', nullif($3::integer, 0) * interval '1 day'))`, queue, days, failedDays)
}

// require nothing that belongs to a job without it, and no job without what belongs to it.
func (q *queue) requireWhole() {
	q.Helper()
	require.Equal(q, q.number("select count(*) from jobq.run"), q.number("select count(*) from jobq.payload"), "args go with their jobs")
	require.Equal(q, 2*q.number("select count(*) from jobq.run where state = 'failed'"), q.number("select count(*) from jobq.attempt"), "so do attempts")
	require.Zero(q, q.number("select count(*) from jobq.run r where not exists (select from jobq.past_lease l where l.id = r.lease_id)"), "no lease goes before its jobs")
	require.Zero(q, q.number("select count(*) from jobq.past_lease l where not exists (select from jobq.run r where r.lease_id = l.id) and l.id < jobq.lease_day(jobq.keep_from_day())"),
		"a lease goes with its jobs, when finished_retention is over")
	require.Zero(q, q.number("select count(*) from jobq.job where state = 'running'"))
	require.Zero(q, q.number("select count(*) from jobq.sweep_lease"))
}

const all, unsuccessful, nothing = "completed failed cancelled", "failed cancelled", ""

// Each queue and state is kept for its own time, up to the end of the day, and not for less: the default is 7 days; audit has
// 90, and a year for what failed; mail has one day. What belongs to jobs goes with them. Where all of a day is gone, or past
// all retentions, the day goes.
func TestRetentionOfEachQueue(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	queues := []string{"default", "audit", "mail"}
	days := []struct {
		ago                        int
		byDefault, inAudit, inMail string
	}{
		{1, all, all, all},
		{2, all, all, nothing},
		{7, all, all, nothing},
		{8, nothing, all, nothing},
		{90, nothing, all, nothing},
		{91, nothing, unsuccessful, nothing},
		{365, nothing, unsuccessful, nothing},
		{366, nothing, nothing, nothing},
	}
	for _, day := range days {
		q.endedOn(day.ago, queues...)
	}
	q.endedOn(20, "default") // and nothing that is kept for longer
	require.Zero(t, q.sweep(), "there is one retention")
	require.Zero(t, q.number("select count(*) from jobq.sweep"))
	q.keep("audit", 90, 365)
	q.keep("mail", 1, 0)
	q.sweep()
	for _, parent := range []string{"run", "attempt"} { // as autovacuum does
		q.exec("vacuum jobq." + parent)
	}
	q.dropDays()
	for _, day := range days {
		require.Equal(t, []string{day.byDefault, day.inAudit, day.inMail},
			[]string{q.left("default", day.ago), q.left("audit", day.ago), q.left("mail", day.ago)}, "default, audit and mail %d days ago", day.ago)
	}
	q.requireWhole()
	for _, ago := range []int{20, 366} {
		require.Zero(t, q.number("select count(*) from pg_class where relname ~ to_char((now() at time zone 'UTC')::date - $1::integer, 'YYYYMMDD')", ago), "%d days ago", ago)
	}
	require.Zero(t, q.sweep(), "there is nothing left to do")
}

// A setting for failed jobs of all queues, both ways: longer than the others, and shorter.
func TestFailedRetention(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	for _, ago := range []int{3, 8, 31} {
		q.endedOn(ago, "default", "mail")
	}
	q.exec("select jobq.act_settings('ann', null, failed_retention => '30 days')")
	q.keep("mail", 2, 0)
	q.sweep()
	q.dropDays()
	require.Equal(t, []string{all, unsuccessful, nothing}, []string{q.left("default", 3), q.left("default", 8), q.left("default", 31)})
	require.Equal(t, []string{nothing, nothing, nothing}, []string{q.left("mail", 3), q.left("mail", 8), q.left("mail", 31)}, "its own counts before that of all")
	q.exec("select jobq.act_settings('ann', null, failed_retention => '2 days')")
	q.sweep()
	q.dropDays()
	require.Equal(t, []string{"completed", nothing}, []string{q.left("default", 3), q.left("default", 8)})
	q.requireWhole()
}

// A retention that gets shorter deletes from days that were looked through before; one that gets longer keeps what there is; and so
// does an undo. Changes of a queue's row by hand count as well.
func TestRetentionChanges(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	for _, ago := range []int{10, 40} {
		q.endedOn(ago, "default", "audit", "mail")
	}
	days := func(queue string) []string { return []string{q.left(queue, 10), q.left(queue, 40)} }
	q.keep("audit", 90, 0)
	longer := q.keep("mail", 80, 0)
	require.Equal(t, 6, q.sweep())
	require.Equal(t, [][]string{{nothing, nothing}, {all, all}, {all, all}}, [][]string{days("default"), days("audit"), days("mail")})
	shorter := q.keep("audit", 30, 0)
	require.Equal(t, 3, q.sweep())
	require.Equal(t, []string{all, nothing}, days("audit"))
	_, err := q.pool.Exec(ctx, "select jobq.undo('ann', $1)", shorter)
	require.NoError(t, err)
	require.Zero(t, q.sweep())
	require.Equal(t, []string{all, nothing}, days("audit"), "no undo brings back what was deleted")
	q.exec("update jobq.queue set failed_retention = '9 days' where name = 'audit'")
	require.Equal(t, 2, q.sweep())
	require.Equal(t, []string{"completed", nothing}, days("audit"))
	_, err = q.pool.Exec(ctx, "select jobq.undo('ann', $1)", longer)
	require.NoError(t, err)
	q.sweep()
	require.Equal(t, []string{nothing, nothing}, days("mail"))
	q.exec("delete from jobq.queue")
	q.sweep()
	q.dropDays()
	require.Zero(t, q.number("select count(*) from jobq.run"))
	require.Zero(t, q.number("select count(*) from jobq.sweep"))
}

// While somebody changes a retention, no day is looked through with the one before.
func TestRetentionChangesDuringASweep(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.endedOn(10, "default", "audit")
	q.keep("audit", 90, 0)
	q.keep("mail", 90, 0)
	tx, err := q.pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(ctx) }()
	_, err = tx.Exec(ctx, `select jobq.act_queue_set('ann', 'audit', '{"retention": "8 days"}')`)
	require.NoError(t, err)
	conn, err := q.pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Exec(ctx, "set lock_timeout = '50ms'")
	require.NoError(t, err)
	_, err = q.schema.Queries(conn).HistorySweep(ctx, 100, 100)
	require.True(t, db.IsTransient(err), "it waits for the change: %v", err)
	require.NoError(t, tx.Commit(ctx))
	require.Equal(t, 6, q.sweep())
}

// A sweep goes on where the last step was committed, whoever does the next one, and deletes nothing twice and nothing less.
func TestSweepGoesOn(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.endedOn(10, "default", "audit")
	q.exec(`insert into jobq.run (id, lease_id, slot, created_at, finished_at, state, priority, attempts, max_attempts, crashes, args_apart, queue, kind, last_error)
		select nextval('jobq.job_id_seq'), r.lease_id, r.slot, r.created_at, r.finished_at, r.state, 0, 1, 25, 0, false, r.queue, 'k', repeat('x', 1000)
		from jobq.run r, generate_series(1, 100) where r.state = 'cancelled'`)
	q.keep("audit", 90, 0)
	blocks := q.number("select pg_relation_size(c.oid) / 8192 from pg_class c where c.oid = (select r.tableoid from jobq.run r limit 1)")
	require.Greater(t, blocks, 20)
	more, _ := q.sweepStep() // begins the day
	require.True(t, more)
	steps, removed := 0, 0
	for more := true; more; steps++ {
		tx, err := q.pool.Begin(ctx) // a janitor that is killed before it commits
		require.NoError(t, err)
		_, err = q.schema.Queries(tx).HistorySweep(ctx, 1, 1)
		require.NoError(t, tx.Rollback(ctx))
		if !errors.Is(err, pgx.ErrNoRows) {
			require.NoError(t, err)
		}
		var gone int
		more, gone = q.sweepStep()
		removed += gone
	}
	require.Equal(t, 103, removed)
	require.Equal(t, blocks+2+1+1, steps, "each block, each lease, the end of these, and that there is nothing more")
	require.Equal(t, 103, q.number("select count(*) from jobq.run where queue = 'audit'"))
	require.Zero(t, q.number("select count(*) from jobq.run where queue = 'default'"))
	require.Equal(t, 1, q.number("select count(*) from jobq.past_lease"))
}

// Jobs of the day that still run stay, with their lease and those beside them that are kept; a day later the rest is looked at
// again, and goes when its own time has come.
func TestSweepBesideRunningJobs(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	const days = 20
	q.endedOn(days, "audit")
	q.keep("audit", 90, 0)
	q.exec("select jobq.enqueue('k') from generate_series(1, 4)")
	jobs := q.claim("a", 2)
	other := q.claim("a", 2)
	q.completes(plainly(jobs[0]), plainly(other[0]), plainly(other[1]))
	q.exec("update jobq.run set lease_id = lease_id - ($1::bigint << 40) where queue = 'default'", days)
	q.exec("update jobq.lease set id = id - ($1::bigint << 40), claimed_at = claimed_at - $1::integer * interval '1 day'", days)
	q.exec("update jobq.past_lease set id = id - ($1::bigint << 40), claimed_at = claimed_at - $1::integer * interval '1 day' where id > (select max(r.lease_id) from jobq.run r where queue = 'audit')", days)
	jobs[1].LeaseToken -= days << 40
	jobs[1].StartedAt.Time = jobs[1].StartedAt.Time.AddDate(0, 0, -days)
	count := func(state string) int {
		return q.number("select count(*) from jobq.job where queue = 'default' and state::text = $1", state)
	}
	require.Equal(t, []int{1, 3}, []int{count("running"), count("completed")})

	require.Equal(t, 3, q.sweep())
	require.Equal(t, []int{1, 0}, []int{count("running"), count("completed")})
	require.Equal(t, 1, q.number("select count(*) from jobq.sweep where left_over and again_at > now() + interval '23 h'"))
	require.Zero(t, q.sweep(), "it is looked at a day later")
	require.Equal(t, 1, q.number("select count(*) from jobq.past_lease l where not exists (select from jobq.run r where r.lease_id = l.id)"),
		"while a lease is held, a row may move to where nobody looks for it any more")

	again := func() { q.exec("update jobq.sweep set again_at = now()") }
	q.completes(onRow(jobs[1]))
	again()
	require.Zero(t, q.sweep(), "it has ended just now")
	require.Equal(t, 1, count("completed"))
	require.Equal(t, 1, q.number("select count(*) from jobq.job where id = $1 and lease_owner = 'a' and finished_at > started_at + interval '19 days'", jobs[1].ID))
	q.dropDays()
	q.exec("update jobq.run set finished_at = finished_at - $1::integer * interval '1 day' where id = $2", days, jobs[1].ID)
	again()
	require.Equal(t, 1, q.sweep())
	require.Equal(t, all, q.left("audit", days))
	q.requireWhole()
	_, err := q.queries.PartitionPrune(ctx, "run")
	require.NoError(t, err)
	require.Equal(t, all, q.left("audit", days))
}

// A job that an undo brings back into a day that was looked through goes with the next look, with what it had; and one on which
// others still depend stays.
func TestSweepAfterAnUndoAndOfAWorkflow(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.endedOn(10, "default", "audit")
	q.keep("audit", 90, 0)
	failed := q.number("select id from jobq.run where queue = 'default' and state = 'failed'")
	parent := q.number("select id from jobq.run where queue = 'default' and state = 'cancelled'")
	q.exec("insert into jobq.dependency (child, parent, parent_lease, parent_state, on_failure) select 1000, id, lease_id, state, 'run' from jobq.run where id = $1", parent)
	q.exec("insert into jobq.pending (id, kind, position, waits) values (1000, 'k', null, true)")
	deleted := q.number("select a.audit from jobq.act('ann', 'delete', array[$1::bigint], null, null, null, null, null) a", failed)
	require.Equal(t, 1, q.sweep(), "one was deleted, and one has a child")
	_, err := q.pool.Exec(ctx, "select jobq.undo('ann', $1)", deleted)
	require.NoError(t, err)
	require.Equal(t, unsuccessful, q.left("default", 10))
	require.Equal(t, 1, q.sweep())
	require.Equal(t, "cancelled", q.left("default", 10))
	require.Zero(t, q.number("select count(*) from jobq.sweep_again"))
	q.exec("delete from jobq.pending")
	_, err = q.queries.DependencyPrune(ctx, db.DependencyPruneParams{RowCount: 100})
	require.NoError(t, err)
	q.exec("update jobq.sweep set again_at = now()")
	require.Equal(t, 1, q.sweep())
	q.requireWhole()
}

// With keep_until_exported nothing of a day is deleted before it was exported; and what was begun stops when days are to be exported
// again.
func TestSweepWaitsForExport(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.endedOn(10, "default", "audit")
	q.keep("audit", 90, 0)
	exported := func(ago int) {
		t.Helper()
		q.exec("select jobq.act_settings('test', null, keep_until_exported => true, exported_before => (now() at time zone 'UTC')::date - $1::integer)", ago)
	}
	exported(10)
	require.Zero(t, q.sweep())
	require.Equal(t, all, q.left("default", 10))
	exported(9)
	more, _ := q.sweepStep() // begins the day
	require.True(t, more)
	exported(10)
	// What makes known that it is to be exported again may commit when a step has begun.
	tx, err := q.pool.Begin(context.Background())
	require.NoError(t, err)
	var removed int
	require.NoError(t, tx.QueryRow(context.Background(), "select jobq.sweep_blocks(s, to_char(s.day, 'YYYYMMDD'), 100) from jobq.sweep s").Scan(&removed))
	require.NoError(t, tx.Rollback(context.Background()))
	require.Zero(t, removed)
	require.Zero(t, q.sweep())
	require.Equal(t, all, q.left("default", 10))
	exported(9)
	require.Equal(t, 3, q.sweep())
	require.Equal(t, all, q.left("audit", 10))
	q.requireWhole()
}

// What the default partitions have caught is kept by queue and state as well.
func TestRetentionOfEachQueueByDefault(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.exec("alter function jobq.partition_add(text, date) rename to partition_add_real")
	q.exec("create function jobq.partition_add(parent text, day date) returns boolean language sql return false")
	for _, ago := range []int{2, 8, 91} {
		q.endedOn(ago, "default", "audit", "mail")
	}
	q.keep("audit", 90, 365)
	q.keep("mail", 1, 0)
	for _, parent := range []string{"run", "past_lease", "attempt"} {
		_, err := q.queries.DefaultPrune(ctx, db.DefaultPruneParams{Parent: parent, RowCount: 100})
		require.NoError(t, err)
	}
	require.Equal(t, []string{all, nothing, nothing}, []string{q.left("default", 2), q.left("default", 8), q.left("default", 91)})
	require.Equal(t, []string{all, all, unsuccessful}, []string{q.left("audit", 2), q.left("audit", 8), q.left("audit", 91)})
	require.Equal(t, []string{nothing, nothing, nothing}, []string{q.left("mail", 2), q.left("mail", 8), q.left("mail", 91)})
	q.requireWhole()
}
