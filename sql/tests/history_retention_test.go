package tests

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/migrate"
)

// patience ends a test that hangs.
const patience = 2 * time.Minute

// beginning is before all times.
var beginning = pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}

// finishedOn puts a job into the history as if it had ended so many days from
// today, with args kept apart when they are large.
func (q *queue) finishedOn(days int, large bool) int {
	q.Helper()
	id := q.number(`select jobq.enqueue('k', case when $1 then to_jsonb((select string_agg(md5(i::text), '') from generate_series(1, 100) i)) end)`, large)
	q.exec("select jobq.cancel($1)", id)
	q.exec(`update jobq.run set lease_id = lease_id + ($2::bigint << 40),
		finished_at = (date_trunc('day', now() at time zone 'UTC') at time zone 'UTC') + $2::integer * interval '1 day' + interval '1 hour' where id = $1`, id, days)
	return id
}

func (q *queue) days(parent string) int {
	q.Helper()
	return q.number("select count(*) from pg_inherits where inhparent = $1::regclass", "jobq."+parent) - 1
}

// A partition is made once, and not of a day of which the default partition
// has caught something; nobody loses sight of a job.
func TestPartitionAdd(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	today := q.days(pgtest.History)
	caught, other := q.finishedOn(21, false), q.finishedOn(22, true)
	require.Equal(t, 2, q.number("select count(*) from only jobq."+pgtest.History+"_default"))

	for _, parent := range []string{pgtest.History, "past_lease", "attempt"} {
		for _, want := range []bool{true, false} {
			added, err := q.queries.PartitionAdd(ctx, parent, 20)
			require.NoError(t, err)
			require.Equal(t, want, added)
		}
	}
	added, err := q.queries.PartitionAdd(ctx, pgtest.History, 21)
	require.NoError(t, err)
	require.False(t, added)
	require.Equal(t, today+1, q.days(pgtest.History))
	require.Equal(t, 2, q.number("select count(*) from only jobq."+pgtest.History+"_default"))
	inside := q.finishedOn(20, false)
	require.Equal(t, 2, q.number("select count(*) from only jobq."+pgtest.History+"_default"))
	require.Equal(t, 3, q.number("select count(*) from jobq.job where finished_at is not null"))
	for _, id := range []int{caught, other, inside} {
		job, err := q.queries.JobGet(ctx, int64(id))
		require.NoError(t, err)
		require.NotEmpty(t, job.Args)
	}

	// What is there by default is there in a new partition: the look-up by id,
	// the checks, and the trigger that frees a unique key.
	require.Equal(t, 1, q.number("select count(*) from pg_indexes where tablename like '"+pgtest.History+"_2%' and indexdef like '%(id)' group by tablename limit 1"))
	q.exec("select jobq.requeue($1)", inside)
	q.exec("insert into jobq.unique_key values ('k', 'u', $1)", caught)
	q.exec("insert into jobq.run select (jsonb_populate_record(r, jsonb_build_object('id', $1::bigint, 'unique_key', 'u', 'lease_id', r.lease_id - (2::bigint << 40)))).* from jobq.run r where id = $2", caught, other)
	require.Zero(t, q.number("select count(*) from jobq.unique_key"))

	_, err = q.queries.PartitionAdd(ctx, "pending", 1)
	require.ErrorContains(t, err, "no partitioned table 'pending'")
}

// prunePayloads removes large args in steps until there is nothing to do, and
// returns how many steps it took and how many payloads it has removed.
func (q *queue) prunePayloads(jobCount, payloadCount int32) (steps, removed int) {
	q.Helper()
	params := db.PayloadPruneParams{JobCount: jobCount, PayloadCount: payloadCount}
	for {
		row, err := q.queries.PayloadPrune(context.Background(), params)
		if errors.Is(err, pgx.ErrNoRows) {
			return steps, removed
		}
		require.NoError(q, err)
		require.LessOrEqual(q, row.Removed, int64(payloadCount))
		steps, removed = steps+1, removed+int(row.Removed)
		params.AfterDay, params.AfterJob = row.Day, row.LastJob
	}
}

// Days leave the history when all of them is past retention, and are dropped
// when the large args of their jobs have gone. What the default partition has of
// such days goes row by row, with its args.
func TestPartitionPrune(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	for _, day := range []int32{-8, -7, -30} {
		_, err := q.queries.PartitionAdd(ctx, pgtest.History, day)
		require.NoError(t, err)
	}
	prune := func() (days int) {
		for {
			pruned, err := q.queries.PartitionPrune(ctx, pgtest.History)
			require.NoError(t, err)
			if pruned == "" {
				return days
			}
			days++
		}
	}
	var place db.DefaultPruneRow
	pruneDefault := func() int64 {
		var err error
		place, err = q.queries.DefaultPrune(ctx, db.DefaultPruneParams{Parent: pgtest.History, After: place.Last, AfterJob: place.LastJob, RowCount: 1})
		require.NoError(t, err)
		return place.Looked
	}
	tables := func() int {
		return q.number("select count(*) from pg_class where relkind = 'r' and relname ~ '^" + pgtest.History + "_[0-9]{8}(_past)?$'")
	}
	days := q.days(pgtest.History)
	kept, small, large := q.finishedOn(-7, true), q.finishedOn(-8, false), q.finishedOn(-30, true)
	byDefault, byDefaultLarge, byDefaultKept := q.finishedOn(-9, false), q.finishedOn(-9, true), q.finishedOn(-6, true)

	require.Equal(t, 2, prune())
	require.Equal(t, days-2, q.days(pgtest.History))
	require.EqualValues(t, 1, pruneDefault())
	require.EqualValues(t, 1, pruneDefault())
	require.Zero(t, pruneDefault())
	require.Zero(t, q.number("select count(*) from jobq.job where id in ($1, $2, $3, $4)", small, large, byDefault, byDefaultLarge))
	require.Equal(t, 2, q.number("select count(*) from jobq.job where id in ($1, $2)", kept, byDefaultKept))
	require.Equal(t, 1, q.number("select count(*) from jobq.payload where job_id = $1", large))
	require.Zero(t, q.number("select count(*) from jobq.payload where job_id = $1", byDefaultLarge))

	before := tables()
	steps, removed := q.prunePayloads(10, 10)
	require.Equal(t, 1, removed)
	require.Equal(t, 4, steps, "of two days: one step with a job and one that drops the day")
	require.Equal(t, before-2, tables())
	require.Equal(t, 2, q.number("select count(*) from jobq.payload where job_id in ($1, $2)", kept, byDefaultKept))
	require.Equal(t, 2, q.number("select count(*) from jobq.payload"))

	q.exec("update jobq.setting set finished_retention = '30 days'")
	require.Zero(t, prune())
	_, err := q.pool.Exec(ctx, "update jobq.setting set finished_retention = '1 hour'")
	require.ErrorContains(t, err, "finished_retention must be 1 day to 10 years")
}

// fillDay puts so many jobs into the history of a day, every second one with
// large args, and takes the day out of it.
func (q *queue) fillDay(day int32, from, count int) {
	q.Helper()
	_, err := q.queries.PartitionAdd(context.Background(), pgtest.History, day)
	require.NoError(q, err)
	q.exec(`insert into jobq.run (id, finished_at, lease_id, slot, run_at, created_at, state, priority, attempts, max_attempts, crashes, args_apart, queue, kind)
		select i, date_trunc('day', now() at time zone 'UTC') at time zone 'UTC' + $1::integer * interval '1 day',
			jobq.lease_day((now() at time zone 'UTC')::date + $1::integer), 1, now(), now(), 'completed', 0, 0, 25, 0, i % 2 = 0, 'q', 'k'
		from generate_series($2::integer, $2::integer + $3::integer - 1) i`, day, from, count)
	q.exec("insert into jobq.payload (job_id, args) select r.id, '{}' from jobq.run r where r.args_apart")
	pruned, err := q.queries.PartitionPrune(context.Background(), pgtest.History)
	require.NoError(q, err)
	require.NotEmpty(q, pruned)
}

// Steps go on where the one before has ended, look at no more jobs and remove no
// more payloads than they may, and leave none. A step that knows another day
// begins at the first job.
func TestPayloadPruneSteps(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.fillDay(-20, 1, 100)
	q.exec("insert into jobq.payload (job_id, args) values (1000000, '{}')") // of a job that is elsewhere
	steps, removed := q.prunePayloads(10, 100)
	require.Equal(t, 50, removed)
	require.Equal(t, 11, steps, "ten of ten jobs each, and one that drops the day")

	q.fillDay(-20, 1, 100)
	steps, removed = q.prunePayloads(1000, 5)
	require.Equal(t, 50, removed)
	require.Equal(t, 11, steps, "ten of five payloads each, and one that drops the day")

	q.fillDay(-20, 1, 10)
	row, err := q.queries.PayloadPrune(context.Background(), db.PayloadPruneParams{AfterDay: pgtest.History + "_20010101", AfterJob: 8, JobCount: 100, PayloadCount: 100})
	require.NoError(t, err)
	require.EqualValues(t, 5, row.Removed)
	require.EqualValues(t, 10, row.LastJob)
	require.Equal(t, 1, q.number("select count(*) from jobq.payload"))
}

// Migrating down removes a day that was taken out and not dropped yet.
func TestDownWithADayTakenOut(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.fillDay(-20, 1, 10)
	_, err := migrate.Down(ctx, q.pool, &migrate.Config{Target: -1, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.Zero(t, q.number("select count(*) from pg_class where relname ~ '^run_'"))
}

// A step costs the same however many payloads the steps before have removed.
// Some transaction still sees all of them, as a backup would: nothing of what
// was deleted can be cleared away.
func TestPayloadPruneIsLinear(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	const jobs, batch = 20_000, 500
	q.fillDay(-20, 1, jobs)
	backup, err := q.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	defer func() { _ = backup.Rollback(ctx) }()
	_, err = backup.Exec(ctx, "select from jobq.payload limit 1")
	require.NoError(t, err)
	conn, err := q.pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Exec(ctx, "prepare payload_prune as "+q.schema.SQL(db.PayloadPrune))
	require.NoError(t, err)
	var day string
	require.NoError(t, q.pool.QueryRow(ctx, "select max(relname::text) from pg_class where relname ~ '^"+pgtest.History+"_[0-9]{8}_past$' and not relispartition").Scan(&day))
	first := 0
	for after := 0; after < jobs-2*batch; after += 2 * batch {
		buffers := explainBuffers(t, conn, fmt.Sprintf("execute payload_prune('%s', %d, %d, %d)", day, after, jobs, batch))
		if first == 0 {
			first = buffers
		}
		require.Less(t, buffers, 2*first+100, "after job %d", after)
	}
	require.Less(t, q.number("select count(*) from jobq.payload"), 2*batch)
}

// A job whose large args somebody has removed cannot run again: requeue, alone or by filter, the undo of a cancel and a clone
// without other args say so and leave it as it is.
func TestNoRunWithoutArgs(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	id, whole := q.finishedOn(-9, true), q.finishedOn(-7, true)
	undone := q.number(`select jobq.enqueue('k', to_jsonb((select string_agg(md5(i::text), '') from generate_series(1, 100) i)))`)
	cancel := q.number("select audit from jobq.act('ann', 'cancel', array[$1]::bigint[], null, null, null, null, null) limit 1", undone)
	q.exec("delete from jobq.payload where job_id in ($1, $2)", undone, id)

	_, err := q.pool.Exec(context.Background(), "select jobq.requeue($1)", id)
	require.ErrorContains(t, err, "its args have been removed by retention")
	require.ErrorContains(t, err, "JQ003")
	require.Equal(t, 1, q.number("select count(*) from jobq.act('ann', 'requeue', array[$1, $2]::bigint[], null, null, null, null, null) where problem is null", id, whole))
	require.Equal(t, 1, q.number("select count(*) from jobq.undo('ann', $1) where problem like '%removed by retention%'", cancel))
	_, err = q.pool.Exec(context.Background(), `select jobq.act_clone('ann', $1, '{"priority": 1}')`, id)
	require.ErrorContains(t, err, "its args have been removed by retention")
	require.ErrorContains(t, err, "JQ003")
	require.Equal(t, 2, q.number("select count(*) from jobq.job where finished_at is not null and id in ($1, $2)", id, undone))
	require.Equal(t, 1, q.number(`select count(*) from jobq.act_clone('ann', $1, '{"args": {"n": 1}}')`, id))
	require.Equal(t, 1, q.number("select count(*) from jobq.act_clone('ann', $1, '{}')", whole))
}

// Retention leaves a job that somebody is requeueing at this moment, and its
// args: of the default partition by passing it by, of a day by waiting.
func TestPruneLeavesWhatIsTaken(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	_, err := q.queries.PartitionAdd(ctx, pgtest.History, -10)
	require.NoError(t, err)
	ids := []int{q.finishedOn(-9, true), q.finishedOn(-10, true)}
	requeue, err := q.pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = requeue.Rollback(ctx) }()
	_, err = requeue.Exec(ctx, "select jobq.requeue(id) from unnest($1::bigint[]) id", ids)
	require.NoError(t, err)

	row, err := q.queries.DefaultPrune(ctx, db.DefaultPruneParams{Parent: pgtest.History, RowCount: 10})
	require.NoError(t, err)
	require.EqualValues(t, 1, row.Looked)
	err = pgx.BeginFunc(ctx, q.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "set local lock_timeout = '100ms'"); err != nil {
			return err
		}
		_, err := q.schema.Queries(tx).PartitionPrune(ctx, pgtest.History)
		return err
	})
	require.True(t, db.IsLockTimeout(err), "%v", err)

	require.NoError(t, requeue.Commit(ctx))
	pruned, err := q.queries.PartitionPrune(ctx, pgtest.History)
	require.NoError(t, err)
	require.NotEmpty(t, pruned)
	_, removed := q.prunePayloads(10, 10)
	require.Zero(t, removed)
	require.Equal(t, 2, q.number("select count(*) from jobq.payload where job_id = any($1::bigint[])", ids))
}

// Actions older than 90 days are forgotten with their jobs, in steps of so many
// rows, and younger ones are kept.
func TestAuditPrune(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec(`insert into jobq.audit (at, actor, action)
		select now() - case when i % 2 = 0 then interval '91 days' else interval '89 days' end, 'ann', 'cancel' from generate_series(1, 20) i`)
	q.exec(`insert into jobq.audit_job (audit_id, job_id, lease_token, state_before, state_after, before)
		select a.id, i, 1, 'failed', 'available', '{}' from jobq.audit a, generate_series(1, (a.id % 3) * 10) i`)
	old := q.number("select count(*) from jobq.audit_job t join jobq.audit a on a.id = t.audit_id where a.at < now() - interval '90 days'")
	young := q.number("select count(*) from jobq.audit_job") - old
	require.NotZero(t, old)
	const batch = 7
	var last db.AuditPruneRow
	deleted := 0
	for {
		row, err := q.queries.AuditPrune(context.Background(), last.LastAudit, last.LastJob, batch)
		require.NoError(t, err)
		require.LessOrEqual(t, row.Deleted, int64(batch))
		deleted, last = deleted+int(row.Deleted), row
		if row.Deleted < batch {
			break
		}
	}
	require.Equal(t, old+10, deleted)
	require.Equal(t, young, q.number("select count(*) from jobq.audit_job"))
	require.Equal(t, 10, q.number("select count(*) from jobq.audit"))
	require.Zero(t, q.number("select count(*) from jobq.audit where at < now() - interval '90 days'"))
}

// What is small and old goes in steps too, each of which goes on after the last.
func TestPruneSteps(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.exec(`insert into jobq.stat (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
		select now() - i * interval '1 day', 'q' || j, 'k', 1, 0, 0, 0, 0, 1, 1 from generate_series(0, 9) i, generate_series(1, 3) j`)
	q.exec("insert into jobq.event (at, type, source) select now() - i * interval '1 day', 'stalled', 's' from generate_series(0, 9) i, generate_series(1, 3) j")
	age := db.Interval(108 * time.Hour) // four and a half days: five of ten are older
	after := beginning
	for _, want := range []int64{4, 4, 4, 3, 0} {
		row, err := q.queries.StatPrune(ctx, after, age, 4)
		require.NoError(t, err)
		require.Equal(t, want, row.Deleted)
		after = row.Last
	}
	require.Equal(t, 15, q.number("select count(*) from jobq.stat"))
	after = beginning
	for _, want := range []int64{4, 4, 4, 3, 0} {
		row, err := q.queries.EventPrune(ctx, after, age, 4)
		require.NoError(t, err)
		require.Equal(t, want, row.Deleted)
		after = row.Last
	}
	require.Equal(t, 15, q.number("select count(*) from jobq.event"))
}
