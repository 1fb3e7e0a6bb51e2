package db_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/jobq-dev/jobq/internal/db"
)

// patience ends a test that hangs.
const patience = 2 * time.Minute

// finishedOn puts a job into the history as if it had ended so many days from
// today, with args kept apart when they are large.
func (q *queue) finishedOn(days int, large bool) int {
	q.Helper()
	id := q.number(`select jobq.enqueue('k', case when $1 then to_jsonb((select string_agg(md5(i::text), '') from generate_series(1, 100) i)) end)`, large)
	q.exec("select jobq.cancel($1)", id)
	q.exec("update jobq.finished set finished_at = (date_trunc('day', now() at time zone 'UTC') at time zone 'UTC') + $2::integer * interval '1 day' + interval '1 hour' where id = $1", id, days)
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
	today := q.days("finished")
	caught, other := q.finishedOn(21, false), q.finishedOn(22, true)
	require.Equal(t, 2, q.number("select count(*) from only jobq.finished_default"))

	for _, parent := range []string{"finished", "attempt"} {
		for _, want := range []bool{true, false} {
			added, err := q.queries.PartitionAdd(ctx, parent, 20)
			require.NoError(t, err)
			require.Equal(t, want, added)
		}
	}
	added, err := q.queries.PartitionAdd(ctx, "finished", 21)
	require.NoError(t, err)
	require.False(t, added)
	require.Equal(t, today+1, q.days("finished"))
	require.Equal(t, 2, q.number("select count(*) from only jobq.finished_default"))
	inside := q.finishedOn(20, false)
	require.Equal(t, 2, q.number("select count(*) from only jobq.finished_default"))
	require.Equal(t, 3, q.number("select count(*) from jobq.finished"))
	for _, id := range []int{caught, other, inside} {
		job, err := q.queries.JobGet(ctx, int64(id))
		require.NoError(t, err)
		require.NotEmpty(t, job.Args)
	}

	// What is there by default is there in a new partition: the look-up by id,
	// the checks, and the trigger that frees a unique key.
	require.Equal(t, 1, q.number("select count(*) from pg_indexes where tablename like 'finished_2%' and indexdef like '%(id)' group by tablename limit 1"))
	q.exec("select jobq.requeue($1)", inside)
	q.exec("insert into jobq.unique_key values ('k', 'u', $1)", caught)
	q.exec("insert into jobq.finished select (jsonb_populate_record(f, jsonb_build_object('id', $1::bigint, 'unique_key', 'u', 'finished_at', f.finished_at - interval '2 days'))).* from jobq.finished f where id = $2", caught, other)
	require.Zero(t, q.number("select count(*) from jobq.unique_key"))

	_, err = q.queries.PartitionAdd(ctx, "pending", 1)
	require.ErrorContains(t, err, "no partitioned table 'pending'")
}

// Days are dropped when all of them is past retention, and not before the
// large args of their jobs are gone. The default partition, too, forgets no
// job whose args it would leave behind.
func TestPartitionPrune(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	for _, day := range []int32{-8, -7, -30} {
		_, err := q.queries.PartitionAdd(ctx, "finished", day)
		require.NoError(t, err)
	}
	prune := func() (days int) {
		for {
			dropped, err := q.queries.PartitionPrune(ctx, "finished")
			require.NoError(t, err)
			if dropped == "" {
				return days
			}
			days++
		}
	}
	pruneDefault := func() int64 {
		deleted, err := q.queries.DefaultPrune(ctx, "finished", 1)
		require.NoError(t, err)
		return deleted
	}
	days := q.days("finished")
	kept, small, large := q.finishedOn(-7, true), q.finishedOn(-8, false), q.finishedOn(-30, true)
	byDefault, byDefaultLarge, byDefaultKept := q.finishedOn(-9, false), q.finishedOn(-9, true), q.finishedOn(-6, true)
	exists := func(id int) bool { return q.number("select count(*) from jobq.finished where id = $1", id) == 1 }

	require.Equal(t, 1, prune())
	require.EqualValues(t, 1, pruneDefault())
	require.Zero(t, pruneDefault())
	require.False(t, exists(small))
	require.True(t, exists(large), "its args are still there")
	require.False(t, exists(byDefault))
	require.True(t, exists(byDefaultLarge), "its args are still there")
	for {
		pruned, err := q.queries.PayloadPrune(ctx, 1)
		require.NoError(t, err)
		if pruned == 0 {
			break
		}
		require.EqualValues(t, 1, pruned, "as many as asked for")
	}
	require.Equal(t, 2, q.number("select count(*) from jobq.payload where job_id in ($1, $2)", kept, byDefaultKept))
	require.Equal(t, 2, q.number("select count(*) from jobq.payload"))
	require.Equal(t, 1, prune())
	require.EqualValues(t, 1, pruneDefault())
	require.Equal(t, days-2, q.days("finished"))
	require.Equal(t, 2, q.number("select count(*) from jobq.finished"))
	require.True(t, exists(kept))
	require.True(t, exists(byDefaultKept))

	q.exec("update jobq.setting set finished_retention = '30 days'")
	require.Zero(t, prune())
	_, err := q.pool.Exec(ctx, "update jobq.setting set finished_retention = '1 hour'")
	require.ErrorContains(t, err, "finished_retention must be at least 1 day")
}

// Partitions come and go while jobs finish and are looked up, without a
// deadlock and without a lost job.
func TestPartitionsUnderLoad(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	done := make(chan error, 1)
	const days = 8
	go func() {
		for day := range int32(days) {
			for _, parent := range []string{"finished", "attempt"} {
				if _, err := q.queries.PartitionAdd(ctx, parent, day+5); err != nil {
					done <- err
					return
				}
				if _, err := q.queries.PartitionAdd(ctx, parent, -day-20); err != nil {
					done <- err
					return
				}
				if _, err := q.queries.PartitionPrune(ctx, parent); err != nil {
					done <- err
					return
				}
			}
		}
		done <- nil
	}()
	jobs := 0
	for end := false; !end; {
		select {
		case err := <-done:
			require.NoError(t, err)
			end = true
		default:
		}
		jobs += 5
		q.exec("select jobq.enqueue('k') from generate_series(1, 5)")
		for i, job := range q.claim("a", 5) {
			require.True(t, writes[[]string{"complete", "cancel"}[i%2]](q, job.ID, job.LeaseToken, "a"))
		}
		require.Equal(t, jobs, q.number("select count(*) from jobq.job"))
		q.exec("select jobq.delete_job(max(id)) from jobq.finished")
		jobs--
	}
}

// A job whose large args retention has removed, while its day is still there,
// cannot run again: requeue, alone or by filter, the undo of a cancel and a clone
// without other args say so and leave it as it is.
func TestNoRunWithoutArgs(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	id, whole := q.finishedOn(-9, true), q.finishedOn(-7, true)
	undone := q.number(`select jobq.enqueue('k', to_jsonb((select string_agg(md5(i::text), '') from generate_series(1, 100) i)))`)
	cancel := q.number("select audit from jobq.act('ann', 'cancel', array[$1]::bigint[], null, null, null, null, null) limit 1", undone)
	q.exec("delete from jobq.payload where job_id = $1", undone)
	pruned, err := q.queries.PayloadPrune(context.Background(), 10)
	require.NoError(t, err)
	require.EqualValues(t, 1, pruned)

	_, err = q.pool.Exec(context.Background(), "select jobq.requeue($1)", id)
	require.ErrorContains(t, err, "its args have been removed by retention")
	require.ErrorContains(t, err, "55000")
	require.Equal(t, 1, q.number("select count(*) from jobq.act('ann', 'requeue', array[$1, $2]::bigint[], null, null, null, null, null) where problem is null", id, whole))
	require.Equal(t, 1, q.number("select count(*) from jobq.undo('ann', $1) where problem like '%removed by retention%'", cancel))
	_, err = q.pool.Exec(context.Background(), `select jobq.act_clone('ann', $1, '{"priority": 1}')`, id)
	require.ErrorContains(t, err, "its args have been removed by retention")
	require.ErrorContains(t, err, "55000")
	require.Equal(t, 2, q.number("select count(*) from jobq.finished where id in ($1, $2)", id, undone))
	require.Equal(t, 1, q.number(`select count(*) from jobq.act_clone('ann', $1, '{"args": {"n": 1}}')`, id))
	require.Equal(t, 1, q.number("select count(*) from jobq.act_clone('ann', $1, '{}')", whole))
}

// Retention leaves the args of a job that somebody is requeueing at this moment.
func TestPayloadPruneSkipsTaken(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	id := q.finishedOn(-9, true)
	tx, err := q.pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(ctx) }()
	_, err = tx.Exec(ctx, "select jobq.requeue($1)", id)
	require.NoError(t, err)
	pruned, err := q.queries.PayloadPrune(ctx, 10)
	require.NoError(t, err)
	require.Zero(t, pruned)
	require.NoError(t, tx.Commit(ctx))
	require.Equal(t, 1, q.number("select count(*) from jobq.payload where job_id = $1", id))
}

// While somebody reads the history for long, as pg_dump does, no day is dropped
// or made. The attempt does not wait for the reader, since all who finish jobs would
// wait behind it: it ends at once, though there is no lock_timeout, and says who
// reads.
func TestPartitionsYieldToAReader(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	q := setUp(t)
	_, err := q.queries.PartitionAdd(ctx, "finished", -30)
	require.NoError(t, err)
	config := q.pool.Config().ConnConfig.Copy()
	config.RuntimeParams["application_name"] = "long reader"
	reader, err := pgx.ConnectConfig(ctx, config)
	require.NoError(t, err)
	defer func() { _ = reader.Close(ctx) }()
	_, err = reader.Exec(ctx, "begin; select count(*) from jobq.finished")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return q.number("select count(*) from pg_stat_activity where pid = $1 and xact_start < clock_timestamp() - interval '1 s'", reader.PgConn().PID()) == 1
	}, patience, time.Millisecond)

	days := q.days("finished")
	_, err = q.queries.PartitionPrune(ctx, "finished")
	require.True(t, db.IsLockTimeout(err), "%v", err)
	require.ErrorContains(t, err, "is in use by session")
	require.ErrorContains(t, err, "long reader")
	_, err = q.queries.PartitionAdd(ctx, "finished", 30)
	require.True(t, db.IsLockTimeout(err), "%v", err)
	require.ErrorContains(t, err, "table jobq.finished_default is in use by session")
	require.Equal(t, days, q.days("finished"))
	holder, err := q.queries.TableHolder(ctx)
	require.NoError(t, err)
	require.Equal(t, "long reader", holder.Application)
	require.NotNil(t, holder.QueryStart)

	_, err = reader.Exec(ctx, "rollback")
	require.NoError(t, err)
	dropped, err := q.queries.PartitionPrune(ctx, "finished")
	require.NoError(t, err)
	require.NotEmpty(t, dropped)
	added, err := q.queries.PartitionAdd(ctx, "finished", 30)
	require.NoError(t, err)
	require.True(t, added)
}

// Several sessions that make the same days and drop the same old ones at once
// make and drop each once, and none of them fails.
func TestPartitionsByMany(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	const days = 6
	before := q.days("attempt")
	for day := range int32(days) {
		_, err := q.queries.PartitionAdd(ctx, "attempt", -day-20)
		require.NoError(t, err)
	}
	var added, dropped atomic.Int32
	var group errgroup.Group
	for range 4 {
		group.Go(func() error {
			for day := range int32(days) {
				made, err := q.queries.PartitionAdd(ctx, "attempt", day+20)
				if err != nil {
					return err
				}
				if made {
					added.Add(1)
				}
				if _, err := q.queries.PartitionPrune(ctx, "attempt"); err != nil {
					return err
				}
				dropped.Add(1)
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	require.EqualValues(t, days, added.Load())
	require.Equal(t, before+days, q.days("attempt"))
	require.GreaterOrEqual(t, dropped.Load(), int32(days))
}
