package main

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// hands are a worker of the second layout, and somebody else beside it.
type hands struct {
	*worker
	t     *testing.T
	ctx   context.Context //nolint:containedctx // of one test
	other *pgx.Conn
}

// execer is a connection or a transaction.
type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// secondOf is a bed of the second layout with so many jobs that wait.
func secondOf(t *testing.T, jobs int) *hands {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	p := standard(second())
	p.jobs = jobs
	b := bedsOf(ctx, t, p)[0]
	for range b.chunks() {
		require.NoError(t, b.addChunk(ctx))
	}
	return &hands{worker: b.worker(0), t: t, ctx: ctx, other: b.conns[1]}
}

func (h *hands) exec(sql string, args ...any) int64 {
	h.t.Helper()
	return h.execOn(h.conn, sql, args...)
}

func (h *hands) execOn(conn execer, sql string, args ...any) int64 {
	h.t.Helper()
	tag, err := conn.Exec(h.ctx, h.schema.SQL(sql), args...)
	require.NoError(h.t, err)
	return tag.RowsAffected()
}

// ask is one value that a query answers with.
func ask[T any](h *hands, sql string, args ...any) (value T) {
	h.t.Helper()
	require.NoError(h.t, h.other.QueryRow(h.ctx, h.schema.SQL(sql), args...).Scan(&value))
	return value
}

// hot sends one of the hot statements as a worker does, and returns its rows.
func (h *hands) hot(sql string, args ...any) (rows []map[string]any) {
	h.t.Helper()
	batch := &pgx.Batch{}
	batch.Queue(db.HotSettings)
	batch.Queue(h.schema.SQL(sql), args...).Query(func(got pgx.Rows) (err error) {
		rows, err = pgx.CollectRows(got, pgx.RowToMap)
		return err
	})
	require.NoError(h.t, h.conn.SendBatch(h.ctx, batch).Close())
	return rows
}

// claim takes all jobs in one lease, in the order of their slots.
func (h *hands) claim() (claimed, *lease) {
	h.t.Helper()
	got, err := h.exchangeSecond(h.ctx, work{}, claimed{})
	require.NoError(h.t, err)
	require.NotEmpty(h.t, got.ids)
	h.line[0] = 0 // what is given back to its old place is found
	return got, leasesOf(got)[0]
}

// end sends the lease's array, and says whether it was stored.
func (h *hands) end(l *lease) bool {
	h.t.Helper()
	sql := leaseEnd
	if l.over() {
		sql = leaseClose
	}
	rows := h.hot(sql, endsOf(h.owner, []*lease{l})...)
	if len(rows) == 0 {
		return false
	}
	if millis, ok := rows[0]["millis"].(int16); ok {
		l.acknowledge(millis)
	}
	return true
}

// endOwn ends runs on their own rows with one outcome, and returns how many were stored.
func (h *hands) endOwn(got claimed, outcome string, slots ...int) int {
	h.t.Helper()
	return len(h.hot(runEnd, h.ownArgs(got, outcome, time.Hour, slots...)...))
}

func (h *hands) ownArgs(got claimed, outcome string, delay time.Duration, slots ...int) []any {
	n := len(slots)
	ids, leases, outcomes, errors := make([]int64, n), make([]int64, n), make([]string, n), make([]string, n)
	delays, finals, results := make([]pgtype.Interval, n), make([]bool, n), make([]json.RawMessage, n)
	for i, slot := range slots {
		ids[i], leases[i], outcomes[i], errors[i] = h.id(got, slot), got.tokens[0], outcome, "no such file"
		delays[i] = db.Interval(delay)
	}
	return []any{ids, leases, h.owner, outcomes, errors, delays, finals, results}
}

// id is the job in a slot.
func (h *hands) id(got claimed, slot int) int64 {
	for i := range got.slots {
		if got.slots[i] == slot {
			return got.ids[i]
		}
	}
	h.t.Fatalf("no slot %d", slot)
	return 0
}

// state is that of a job as everybody sees it.
func (h *hands) state(id int64) string {
	h.t.Helper()
	return ask[string](h, `select coalesce(
		(select case when p.position is null then 'scheduled' else 'available' end from jobq.pending p where p.id = $1),
		(select j.state::text from jobq.run_job j where j.id = $1), 'none')`, id)
}

func (h *hands) expire() {
	h.t.Helper()
	h.execOn(h.other, "update jobq.lease set expires_at = clock_timestamp() - interval '1 s'")
}

// reap returns how many runs were taken away, and how many leases stay open.
func (h *hands) reap() (runs int64, open int64) {
	h.t.Helper()
	runs = h.execOn(h.other, leaseReap, 10, nil)
	return runs, ask[int64](h, "select count(*) from jobq.lease")
}

// extend asks for the lease to be extended, and returns the answer; empty for a lost one.
func (h *hands) extend(l *lease) string {
	h.t.Helper()
	rows := h.hot(leaseExtend, []int64{l.id}, h.owner, db.Interval(time.Minute))
	if len(rows) == 0 {
		return ""
	}
	return fmt.Sprint(rows[0]["answer"])
}

// Goal: the place of an id in the lease's array is the slot of its run.
func TestSlotsAreThoseOfTheLease(t *testing.T) {
	t.Parallel()
	h := secondOf(t, 300)
	got, l := h.claim()
	require.Len(t, got.ids, 300)
	require.EqualValues(t, 300, ask[int64](h, `select count(*) from jobq.run r join jobq.lease l on l.id = r.lease_id
		where l.job_ids[r.slot] = r.id and l.id = $1 and l.ended[r.slot] is null`, l.id))
}

// Trap 1: after some of its jobs were reaped, a stale owner's bulk end is
// refused as a whole, and it learns which of its jobs have ended, and which are lost.
func TestStaleBulkEndIsRefusedAsAWhole(t *testing.T) {
	t.Parallel()
	h := secondOf(t, 4)
	got, l := h.claim()
	l.succeed(1)
	require.True(t, h.end(l))
	require.Equal(t, 1, h.endOwn(got, "failed", 2))
	h.expire()
	runs, open := h.reap()
	require.EqualValues(t, []int64{2, 0}, []int64{runs, open}, "3 and 4 go back, and the lease is closed")
	l.elsewhere(2)
	l.succeed(3, 4)
	require.False(t, h.end(l))
	require.Zero(t, h.endOwn(got, "failed", 3), "nor does it get through on its own row")
	require.Empty(t, h.extend(l))
	look := h.hot(leaseLook, l.id, h.owner)[0]
	require.Equal(t, false, look["held"])
	require.Empty(t, look["open"], "nothing of it is anybody's to end under this lease")
	require.NotNil(t, look["ended"].([]any)[0], "and 1 has ended by it")
	require.Equal(t, []string{"completed", "scheduled", "available", "available"},
		[]string{h.state(h.id(got, 1)), h.state(h.id(got, 2)), h.state(h.id(got, 3)), h.state(h.id(got, 4))})
	require.EqualValues(t, 1, ask[int64](h, "select sum(completed) from jobq.stat_delta"))
}

// Trap 2: a reaper passes by the row that CompleteTx has; whether that commits
// or not, the job ends once, and the lease is closed only after it.
func TestReaperPassesCompleteTxBy(t *testing.T) {
	t.Parallel()
	for _, commits := range []bool{true, false} {
		t.Run(fmt.Sprint("commit ", commits), func(t *testing.T) {
			t.Parallel()
			h := secondOf(t, 2)
			got, l := h.claim()
			tx, err := h.conn.Begin(h.ctx)
			require.NoError(t, err)
			require.EqualValues(t, 1, h.execOn(tx, runCompleteTx, h.id(got, 1), l.id, h.owner, json.RawMessage(`1`)))
			h.expire()
			runs, open := h.reap()
			require.EqualValues(t, []int64{1, 1}, []int64{runs, open}, "the other job is taken, the lease waits")
			runs, open = h.reap()
			require.EqualValues(t, []int64{0, 1}, []int64{runs, open})
			if commits {
				require.NoError(t, tx.Commit(h.ctx))
			} else {
				require.NoError(t, tx.Rollback(h.ctx))
			}
			runs, open = h.reap()
			require.Zero(t, open)
			if commits {
				require.Zero(t, runs)
				require.Equal(t, "completed", h.state(h.id(got, 1)))
			} else {
				require.EqualValues(t, 1, runs)
				require.Equal(t, "available", h.state(h.id(got, 1)))
			}
			require.Zero(t, h.exec(runCompleteTx, h.id(got, 1), l.id, h.owner, nil), "the lease is lost for good")
		})
	}
}

// Trap 2, the other order: what the reaper has taken, CompleteTx waits for and does not get.
func TestCompleteTxAfterReaper(t *testing.T) {
	t.Parallel()
	h := secondOf(t, 1)
	got, l := h.claim()
	h.expire()
	tx, err := h.other.Begin(h.ctx)
	require.NoError(t, err)
	require.EqualValues(t, 1, h.execOn(tx, leaseReap, 10, nil))
	stored := make(chan int64, 1)
	go func() {
		tag, err := h.conn.Exec(h.ctx, h.schema.SQL(runCompleteTx), h.id(got, 1), l.id, h.owner, nil)
		if err != nil {
			stored <- -1
			return
		}
		stored <- tag.RowsAffected()
	}()
	require.Eventually(t, func() bool {
		var waits bool
		err := tx.QueryRow(h.ctx, "select exists (select from pg_locks l where not l.granted and l.pid = $1)", h.conn.PgConn().PID()).Scan(&waits)
		return err == nil && waits
	}, 2*time.Minute, 5*time.Millisecond)
	require.NoError(t, tx.Commit(h.ctx))
	require.Zero(t, <-stored)
	require.Equal(t, "available", h.state(got.ids[0]))
}

// Trap 3: of 500 jobs of a lease one is slow: the others are completed at once
// for everybody, the slow one is still extended, and when its worker dies, it alone is lost.
func TestOneSlowJobOfALease(t *testing.T) {
	t.Parallel()
	h := secondOf(t, 500)
	got, l := h.claim()
	for slot := 2; slot <= 500; slot++ {
		l.succeed(slot)
	}
	require.True(t, h.end(l))
	require.EqualValues(t, 499, ask[int64](h, "select count(*) from jobq.run_job where state = 'completed' and finished_at >= started_at"))
	require.Equal(t, "running", h.state(h.id(got, 1)))
	require.Equal(t, "ok", h.extend(l))
	h.expire()
	runs, open := h.reap()
	require.EqualValues(t, []int64{1, 0}, []int64{runs, open})
	require.Equal(t, "available", h.state(h.id(got, 1)))
	require.EqualValues(t, 1, ask[int64](h, "select count(*) from jobq.attempt where outcome = 'lost'"))
	require.EqualValues(t, 499, ask[int64](h, "select count(*) from jobq.run_job where state = 'completed'"))
}

// Trap 4: a lease id that comes again after a failover does not make one
// owner's writes count for another's jobs.
func TestRepeatedTokenOfAnotherOwner(t *testing.T) {
	t.Parallel()
	h := secondOf(t, 2)
	got, l := h.claim()
	h.exec("update jobq.lease set owner = 'another'") // it has claimed the same jobs under the same number
	l.succeed(1, 2)
	require.False(t, h.end(l))
	require.Zero(t, h.endOwn(got, "failed", 1))
	require.Zero(t, h.exec(runCompleteTx, got.ids[0], l.id, h.owner, nil))
	require.Zero(t, h.exec(runCheckpoint, got.ids[0], l.id, h.owner, json.RawMessage(`{}`)))
	require.Empty(t, h.extend(l))
	require.EqualValues(t, 2, ask[int64](h, "select count(*) from jobq.run_job where state = 'running'"))
}

// Trap 5: what had succeeded, and was not yet sent when the worker died, runs
// again; what was sent does not.
func TestUnsentSuccessRunsAgain(t *testing.T) {
	t.Parallel()
	h := secondOf(t, 3)
	got, l := h.claim()
	l.succeed(1)
	require.True(t, h.end(l))
	l.succeed(2) // and the worker dies
	h.expire()
	runs, _ := h.reap()
	require.EqualValues(t, 2, runs)
	again, l2 := h.claim()
	require.Len(t, again.ids, 2)
	require.NotContains(t, again.ids, h.id(got, 1))
	require.Greater(t, l2.id, l.id, "tokens grow with every claim")
}
