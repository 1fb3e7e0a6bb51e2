package tests

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// bell is a waiter beside another insert, the ringer, which has the queue's bell.
type bell struct {
	*waiter
	ringer pgx.Tx
	looked bool // after the ringer's notification
}

func newBell(t *testing.T, level pgx.TxIsoLevel) *bell {
	t.Helper()
	b := &bell{waiter: newWaiter(t, level)}
	_, err := b.queries.WaitAnnounce(b.ctx, "default", 3600)
	require.NoError(t, err)
	return b
}

// step adds the steps of the ringer, and of the worker that it wakes, to those of the waiter: the ringer gets the bell as at
// its commit (R), and becomes visible (V); the worker looks which transactions are open (O), and claims (C).
func (b *bell) step(step rune) {
	b.Helper()
	switch step {
	case 'R':
		b.ringer = b.begin()
		b.in(b.ringer, "select jobq.enqueue('k')")
		b.in(b.ringer, "set constraints all immediate")
	case 'V':
		require.NoError(b, b.ringer.Commit(b.ctx))
	case 'O':
		b.looked = b.isNotified()
		b.waiter.step('O')
	default:
		b.waiter.step(step)
	}
}

func (b *bell) begin() pgx.Tx {
	b.Helper()
	tx, err := b.pool.Begin(b.ctx)
	require.NoError(b, err)
	b.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func (b *bell) in(tx pgx.Tx, sql string, args ...any) {
	b.Helper()
	_, err := tx.Exec(b.ctx, b.schema.SQL(sql), args...)
	require.NoError(b, err)
}

// found is how many jobs the worker has claimed, after it has claimed once more if something told it to.
func (b *bell) found() int {
	b.Helper()
	still, err := b.queries.StillOpen(b.ctx, b.open)
	require.NoError(b, err)
	require.NotContains(b, still, b.xid, "it has ended")
	if slices.Contains(b.open, b.xid) || b.isNotified() {
		b.claimed += len(b.claim("a", 10))
	}
	return b.claimed
}

// An insert that finds its queue's bell locked does not notify. In whatever order its steps come and those of the insert
// that notifies, and of the worker that this one wakes, and at whatever isolation level: both jobs are found.
func TestNoInterleavingLosesWhatTheBellRefuses(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		for _, order := range interleavings("bic", "rvoc") {
			t.Run(fmt.Sprintf("%s %s", level, order), func(t *testing.T) {
				t.Parallel()
				b := newBell(t, level)
				for _, step := range order {
					b.step(step)
				}
				require.True(t, b.looked, "the ringer notifies")
				require.Equal(t, 2, b.found(), "a job is there and the worker sleeps")
			})
		}
	}
}

// byAdvisoryLock makes the bell an advisory lock, which is released after its transaction has become visible.
func (b *bell) byAdvisoryLock() {
	b.Helper()
	source := strings.ReplaceAll(b.text("select pg_get_functiondef('jobq.pending_wake'::regproc)"), `"jobq"`, "jobq")
	row := "perform from jobq.turn t where t.name = bell and t.part = 0 for no key update skip locked;"
	require.Contains(b, source, row)
	source = strings.Replace(source, row, "perform where pg_try_advisory_xact_lock(hashtextextended(bell, 0));", 1)
	source = strings.Replace(source, "if found or not exists (", "if found or false and not exists (", 1)
	b.exec(source)
}

// The test can fail: with an advisory lock, the insert after the ringer has become visible may still find the lock taken. Its
// transaction began after the worker looked which are open, so nothing tells the worker.
func TestBellByAdvisoryLockWouldLose(t *testing.T) {
	t.Parallel()
	b := newBell(t, pgx.ReadCommitted)
	b.byAdvisoryLock()
	b.step('R')
	holder := b.begin() // has the lock for as long as the ringer would between its being visible and its end
	require.NoError(t, b.ringer.Commit(b.ctx))
	b.in(holder, "select pg_advisory_xact_lock(hashtextextended('bell default', 0))")
	for _, step := range "OCbic" {
		b.step(step)
	}
	require.NoError(t, holder.Commit(b.ctx))
	require.Equal(t, 1, b.found(), "the second job is lost")
}

// While one transaction notifies, others do not; and they do if it keeps the bell while a hundred others begin.
func TestBellIsRefused(t *testing.T) {
	t.Parallel()
	b := newBell(t, pgx.ReadCommitted)
	hear := b.queue.listener(db.TopicWork)
	b.step('R')
	enqueue := func() { b.exec("select jobq.enqueue('k')") }
	require.Empty(t, hear(enqueue))
	_, err := b.queries.WaitAnnounce(b.ctx, b.otherGroup(), 3600)
	require.NoError(t, err)
	require.Equal(t, []string{"work " + b.otherGroup()}, hear(func() { b.exec("select jobq.enqueue('k', queue => $1)", b.otherGroup()) }), "another queue has its own")
	for range 100 {
		b.exec("select pg_current_xact_id()")
	}
	require.Equal(t, []string{"work default"}, hear(enqueue))
	b.step('V')
	require.Equal(t, []string{"work default"}, hear(func() {}), "of the ringer")
	require.Equal(t, []string{"work default"}, hear(enqueue))
	b.exec("delete from jobq.turn")
	b.step('R')
	require.Equal(t, []string{"work default"}, hear(enqueue), "there is no bell, as after a crash of the server")
	require.NoError(t, b.ringer.Rollback(b.ctx))
}

// A transaction asks once for the rows of a queue, and a savepoint that is rolled back takes its question back.
func TestBellIsOncePerTransaction(t *testing.T) {
	t.Parallel()
	b := newBell(t, pgx.ReadCommitted)
	hear := b.queue.listener(db.TopicWork)
	b.exec(`create function jobq.count_wake() returns trigger language plpgsql as $$ begin
		perform nextval('jobq.wakes'); return null; end $$`)
	b.exec("create sequence jobq.wakes")
	definition := b.text("select pg_get_triggerdef(oid) from pg_trigger where tgname = 'pending_wake'")
	b.exec(strings.NewReplacer("pending_wake AFTER", "count_wake AFTER", "jobq.pending_wake()", "jobq.count_wake()", "jobq_pending.asked", "jobq_pending.counted").Replace(definition))
	calls := func() int { return b.number("select case when is_called then last_value else 0 end from jobq.wakes") }
	b.exec("insert into jobq.pending (kind) select 'k' from generate_series(1, 1000)")
	require.Equal(t, 1, calls())
	require.Equal(t, []string{"work default"}, hear(func() {}))
	b.exec("insert into jobq.pending (kind, run_at) select 'k', now() + interval '1 h' from generate_series(1, 10)")
	require.Equal(t, 1, calls(), "none is available")
	require.Equal(t, []string{"work default"}, hear(func() {
		tx := b.begin()
		for _, sql := range []string{"savepoint s", "select jobq.enqueue('k')", "rollback to s", "select jobq.enqueue('k')"} {
			b.in(tx, sql)
		}
		require.NoError(t, tx.Commit(b.ctx))
	}))
	require.Equal(t, 2, calls())
	require.Empty(t, hear(func() {
		tx := b.begin()
		for _, sql := range []string{"savepoint s", "select jobq.enqueue('k')", "rollback to s"} {
			b.in(tx, sql)
		}
		require.NoError(t, tx.Commit(b.ctx))
	}))
}
