package main

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

// What the design of 0008 has besides what is measured.
const (
	// splitOff takes one job out of a batch that runs, so that it can be cancelled,
	// extended or completed as any other. Takes the job's id.
	splitOff = `with d as materialized (
  select ` + dColumns + ` from jobq.batch b
    where int8range(b.id_min, b.id_max, '[]') @> $1::bigint and b.finished_at is null and $1 <> all(b.gone)
      and exists (select from unnest(b.jobs) j where j.id = $1)
    for update
), marked as (
  update jobq.batch b set gone = b.gone || $1 from d where b.id = d.id
)
insert into jobq.running (lease_owner, lease_expires_at, started_at, cancel_requested_at, position, clear_reason, ` + movedColumns + `)
  select d.lease_owner, d.lease_expires_at, d.claimed_at, clock_timestamp(), j.position, j.clear_reason, ` + movedValues + `
    from d cross join unnest(d.jobs) j
    where j.id = $1`
	// reapBatches turns batches whose lease has ended into rows of running, whose leases have ended.
	reapBatches = `with stale as materialized (
  select b.ctid as place, b.tableoid as part from jobq.batch b
    where b.finished_at is null and b.lease_expires_at < clock_timestamp()
    order by b.lease_expires_at
    limit $1
    for update skip locked
), d as (
  delete from jobq.batch b using stale s where b.ctid = s.place and b.tableoid = s.part returning ` + dColumns + `
)
insert into jobq.running (lease_owner, lease_expires_at, started_at, position, clear_reason, ` + movedColumns + `)
  select d.lease_owner, d.lease_expires_at, d.claimed_at, j.position, j.clear_reason, ` + movedValues + `
    from d cross join unnest(d.jobs) j
    where j.id <> all(d.gone)`
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// bedsOf are beds of plans in a database of the test's own.
func bedsOf(ctx context.Context, t *testing.T, plans ...plan) (beds []*bed) {
	t.Helper()
	url := pgtest.EmptyURL(t)
	for i, p := range plans {
		b, err := makeBed(ctx, url, p, i)
		require.NoError(t, err)
		t.Cleanup(func() { b.close(context.WithoutCancel(ctx)) })
		beds = append(beds, b)
	}
	return beds
}

// claimTen is a bed with ten jobs in one batch.
func claimTen(ctx context.Context, t *testing.T, p path) (*worker, work) {
	t.Helper()
	b := bedsOf(ctx, t, standard(p))[0]
	args := []string{"{}", "{}", "{}", "{}", "{}", "{}", "{}", "{}", "{}", "{}"}
	_, err := b.conns[0].Exec(ctx, b.schema.SQL(b.fill), args)
	require.NoError(t, err)
	w := b.worker(0)
	got, err := w.exchange(ctx, work{}, claimed{})
	require.NoError(t, err)
	require.Len(t, got.ids, 10)
	return w, w.run(got)
}

func count(ctx context.Context, t *testing.T, w *worker, sql string) (n int) {
	t.Helper()
	require.NoError(t, w.conn.QueryRow(ctx, w.schema.SQL(sql)).Scan(&n))
	return n
}

func lz4() path { return rowPerBatch("", "alter jobs set compression lz4") }

// Goal: a job that somebody has split off a batch is still its owner's, under
// the same token, and is not split off a second time by an owner who does not know.
func TestSplitByOthers(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w, had := claimTen(ctx, t, lz4())
	other := w.conns[1]
	for _, rows := range []int64{1, 0} { // the second time there is nothing to split off
		tag, err := other.Exec(ctx, w.schema.SQL(splitOff), had.ids[3])
		require.NoError(t, err)
		require.Equal(t, rows, tag.RowsAffected())
	}
	// The owner takes one job more for an exception, and the split one too.
	had.failed, had.succeeded = []int{3, 5}, append(append([]int{}, had.succeeded[:3]...), had.succeeded[6:]...)
	_, err := w.exchange(ctx, had, claimed{})
	require.NoError(t, err)
	require.Equal(t, 0, count(ctx, t, w, "select count(*) from jobq.running"))
	require.Equal(t, 1, count(ctx, t, w, "select count(*) from jobq.finished where state = 'cancelled'"))
	require.Equal(t, 1, count(ctx, t, w, "select count(*) from jobq.pending where attempts = 1"))
	require.Equal(t, 8, count(ctx, t, w, w.history), "the others are in the batch")
}

// Goal: a batch whose lease has ended is reaped job by job, and what its owner
// sends afterwards has no effect.
func TestReapBatch(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w, had := claimTen(ctx, t, lz4())
	_, err := w.conn.Exec(ctx, w.schema.SQL("update jobq.batch b set lease_expires_at = clock_timestamp() - interval '1 s'"))
	require.NoError(t, err)
	tag, err := w.conns[1].Exec(ctx, w.schema.SQL(reapBatches), 100)
	require.NoError(t, err)
	require.EqualValues(t, 10, tag.RowsAffected())
	reaped, err := w.schema.Queries(w.conns[1]).LeaseReap(ctx, nil, 100, "test")
	require.NoError(t, err)
	require.Len(t, reaped, 10)
	_, err = w.exchange(ctx, had, claimed{})
	require.ErrorContains(t, err, "1 jobs or batches were not stored")
	require.Equal(t, 0, count(ctx, t, w, w.history))
}

// Goal: a finish that has waited for another transaction's split sees it.
func TestFinishWaitsForSplit(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	w, had := claimTen(ctx, t, lz4())
	tx, err := w.conns[1].Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, w.schema.SQL(splitOff), had.ids[3])
	require.NoError(t, err)
	gone := make(chan []int64, 1)
	go func() {
		var id int64
		var ids []int64
		batch := &pgx.Batch{}
		w.finish(batch, had).QueryRow(func(row pgx.Row) error { return row.Scan(&id, &ids) })
		if err := w.conn.SendBatch(ctx, batch).Close(); err != nil {
			ids = nil
		}
		gone <- ids
	}()
	require.Eventually(t, func() bool {
		var waits bool
		err := tx.QueryRow(ctx, "select exists (select from pg_locks l where not l.granted and l.pid = $1)", w.conn.PgConn().PID()).Scan(&waits)
		return err == nil && waits
	}, 30*time.Second, 5*time.Millisecond)
	require.NoError(t, tx.Commit(ctx))
	require.Equal(t, []int64{had.ids[3]}, <-gone)
}
