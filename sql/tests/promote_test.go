package tests

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// nextDue asks from the start, with these limits.
func (q *queue) nextDue(jobsMaxMs, leasesMaxMs int64, scan bool) (db.NextDueRow, error) {
	return q.queries.NextDue(context.Background(), db.NextDueParams{
		JobsMaxMs: jobsMaxMs, LeasesMaxMs: leasesMaxMs, Scan: scan, JobsFrom: db.DueFrom(time.Time{}),
	})
}

// buffers runs a statement with the settings of the hot path, keeps what it
// did, and says how many pages of tables and indexes it has looked at.
func buffers(t *testing.T, conn *pgxpool.Conn, sql string, args ...any) int {
	t.Helper()
	ctx := context.Background()
	var plan []byte
	require.NoError(t, pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, db.HotSettings); err != nil {
			return err
		}
		return tx.QueryRow(ctx, "explain (analyze, buffers, timing off, format json) "+sql, args...).Scan(&plan)
	}))
	var explained []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	require.NoError(t, json.Unmarshal(plan, &explained))
	return explained[0].Plan.Hit + explained[0].Plan.Read
}

// While a transaction is open, what has been promoted stays in the index. Each
// step goes on where the one before stopped, also among jobs that are due at the
// same moment, and the look that follows begins there too: neither costs more, the
// more was promoted before. A look from the start does, and finds what came late.
func TestPromotionGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.withoutAutovacuum()
	const jobs, step = 30_000, 1000
	q.exec("alter table jobq.pending disable trigger user")
	// Not in the order of their ids, so that each entry of the index leads to another page.
	q.exec(`insert into jobq.pending (id, kind, position, run_at)
		select i, 'k', null, date_trunc('hour', now()) - interval '1 hour' from generate_series(1, $1::integer) i order by md5(i::text)`, jobs)
	held, err := q.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	defer func() { _ = held.Rollback(ctx) }()
	var seen int
	require.NoError(t, held.QueryRow(ctx, "select count(*) from jobq.pending").Scan(&seen))
	require.Equal(t, jobs, seen)

	conn, err := q.pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	promote := q.schema.SQL(db.JobPromote)
	first := buffers(t, conn, promote, db.DueFrom(time.Time{}), 0, step)
	after := db.DuePlace{}
	for range jobs/step - 2 {
		promoted, err := q.schema.Promote(ctx, conn, after, step)
		require.NoError(t, err)
		require.EqualValues(t, step, promoted.Due)
		after = promoted.Last
	}
	last := buffers(t, conn, promote, db.DueFrom(after.RunAt), after.ID, step)
	require.Less(t, last, 2*first, "pages for the last thousand, beside those for the first")
	require.Zero(t, q.number("select count(*) from jobq.pending where position is null"))

	look := q.schema.SQL(db.NextDue)
	near := buffers(t, conn, look, "", 0, 1000, 1000, false, []int64{}, db.DueFrom(after.RunAt.Add(time.Second)), db.DueFrom(time.Time{}))
	fromStart := buffers(t, conn, look, "", 0, 1000, 1000, false, []int64{}, db.DueFrom(time.Time{}), db.DueFrom(time.Time{}))
	require.Less(t, near, 20)
	require.Greater(t, fromStart, 20*near, "or this test shows nothing")

	q.exec("insert into jobq.pending (kind, position, run_at) values ('late', null, date_trunc('hour', now()) - interval '2 hours')")
	late, err := q.queries.DueFirst(ctx)
	require.NoError(t, err)
	require.True(t, late.Time.Before(after.RunAt))
	missed, err := q.schema.Promote(ctx, conn, after, step)
	require.NoError(t, err)
	require.Zero(t, missed.Due)
	require.Equal(t, after, missed.Last)
	found, err := q.schema.Promote(ctx, conn, db.DuePlace{RunAt: late.Time}, step)
	require.NoError(t, err)
	require.EqualValues(t, 1, found.Due, "a place without an id is before all jobs of its time")
}

// Jobs take their places in the line in the order of their times, whatever
// their order in the table, in steps of any size.
func TestPromotionKeepsOrder(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("insert into jobq.pending (kind, run_at) select 'k', now() + interval '1 hour' from generate_series(1, 500)")
	q.exec("update jobq.pending set run_at = now() - ((id * 7919) % 50) * interval '1 s'")
	after := db.DuePlace{}
	for more := true; more; {
		promoted, err := q.schema.Promote(context.Background(), q.pool, after, 30)
		require.NoError(t, err)
		after, more = promoted.Last, promoted.Due == 30
	}
	rows, err := q.pool.Query(context.Background(), "select run_at from jobq.pending order by position")
	require.NoError(t, err)
	times, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
	require.NoError(t, err)
	require.Len(t, times, 500)
	require.True(t, slices.IsSortedFunc(times, time.Time.Compare))
}
