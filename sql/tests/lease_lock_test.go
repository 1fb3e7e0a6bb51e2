package tests

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// heldUp is a connection on which the statements that have a text wait for an
// advisory lock when they have their snapshot, and before they lock any row that they look up there.
type heldUp struct {
	db.Batcher
	text string
}

func (h heldUp) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	for _, query := range batch.QueuedQueries { // meanwhile fails if none has it
		query.SQL = strings.Replace(query.SQL, h.text, strings.Replace(h.text, "where ", "where (select pg_advisory_xact_lock_shared(1)) is not null and ", 1), 1)
	}
	return h.Batcher.SendBatch(ctx, batch)
}

// Where statements look up the rows that they lock. LeaseReap has another condition first.
const (
	runEndLooks    = "where x.id = f.id and x.lease_id = f.token and x.state is null\n          and"
	leaseEndLooks  = "where x.id = f.id and x.claimed_at = "
	leaseReapLooks = "where case -- before"
)

// meanwhile calls a function on a connection that is held up there, and another
// one between its snapshot and its locks.
func (q *queue) meanwhile(text string, call func(conn db.Batcher), between func()) {
	q.Helper()
	ctx := context.Background()
	holder, err := q.pool.Begin(ctx)
	require.NoError(q, err)
	_, err = holder.Exec(ctx, "select pg_advisory_xact_lock(1)")
	require.NoError(q, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		call(heldUp{q.pool, text})
	}()
	require.Eventually(q, func() bool {
		return q.number("select count(*) from pg_locks where locktype = 'advisory' and not granted and database = (select oid from pg_database where datname = current_database())") == 1
	}, eventually, tick)
	between()
	require.NoError(q, holder.Commit(ctx))
	<-done
}

// reapMeanwhile reaps, and does something between the snapshot and the locks. It
// returns how many runs were taken.
func (q *queue) reapMeanwhile(between func()) (taken int) {
	q.Helper()
	q.meanwhile(leaseReapLooks, func(conn db.Batcher) {
		reaped, err := q.schema.Reap(context.Background(), conn, nil, 100, "test")
		if err != nil {
			q.Error(err)
		}
		taken = len(reaped)
	}, between)
	return taken
}

// A lease that changes between a reaper's snapshot and its lock is left for the
// next pass as a whole. Were its runs taken and the lease not marked, what its
// owner sends afterwards would be accepted.
func TestReapMeetsAnEnd(t *testing.T) {
	t.Parallel()
	l := leaseOf(setUp(t), 3)
	l.expire()
	require.Zero(t, l.reapMeanwhile(func() { require.Equal(t, l.ids(1), l.succeed(1)) }))
	require.Equal(t, l.ids(2), l.succeed(2), "it is still the owner's")
	require.Equal(t, 1, l.lose(100))
	require.Zero(t, l.leases())
	require.Equal(t, []string{"completed", "completed", "available"}, l.states())
	require.Equal(t, 2, l.number("select sum(completed) from jobq.stats"))
}

// A lease that is extended between a reaper's snapshot and its lock is not taken.
func TestReapMeetsAnExtension(t *testing.T) {
	t.Parallel()
	l := leaseOf(setUp(t), 2)
	l.expire()
	require.Zero(t, l.reapMeanwhile(func() { require.Equal(t, db.LeaseOK, l.extend("a", at(l.jobs[1]), time.Hour)) }))
	require.Zero(t, l.number("select count(*) from jobq.lease where lost_at is not null"))
	require.Len(t, l.succeed(1, 2), 2)
}

// A run that somebody asks to cancel between a reaper's snapshot and its lock
// stays open, and so does its lease, which is lost.
func TestReapMeetsACancel(t *testing.T) {
	t.Parallel()
	l := leaseOf(setUp(t), 2)
	l.expire()
	require.Equal(t, 1, l.reapMeanwhile(func() { l.exec("select jobq.cancel($1)", l.jobs[1].ID) }))
	require.Equal(t, 1, l.number("select count(*) from jobq.lease where lost_at is not null and ended_slots = '{2}'"))
	require.Equal(t, 1, l.number("select count(*) from jobq.attempt"), "of the one that was taken")
	require.Equal(t, 1, l.lose(100))
	require.Zero(t, l.leases())
	require.Equal(t, []string{"cancelled", "available"}, l.states())
}

// An end of a run that somebody asks to cancel between the snapshot and the lock
// is not stored, and the lease not told that it was. It is sent a second time.
func TestEndMeetsACancel(t *testing.T) {
	t.Parallel()
	l := leaseOf(setUp(t), 2)
	exchange := db.Exchange{Owner: "a", Endings: []db.Ending{{Slot: at(l.jobs[1]), Outcome: "failed", Error: "e", Started: true}}}
	var answer db.Exchanged
	l.meanwhile(runEndLooks, func(conn db.Batcher) {
		var err error
		if answer, err = l.schema.Exchange(context.Background(), conn, exchange); err != nil {
			t.Error(err)
		}
	}, func() { l.exec("select jobq.cancel($1)", l.jobs[1].ID) })
	require.Equal(t, []db.RunEndRow{{ID: l.jobs[1].ID, State: "cancelled"}}, answer.Ended)
	require.Empty(t, answer.Unrecorded)
	require.Equal(t, 1, l.number("select count(*) from jobq.attempt"))
	require.Equal(t, 1, l.number("select sum(cancelled) from jobq.stats"))
	require.Equal(t, 1, l.number("select count(*) from jobq.lease where ended_slots = array[$1::smallint]", l.jobs[1].Slot))
}

// A lease that is extended between the snapshot and the lock of an end takes
// that end all the same, once.
func TestEndMeetsAnExtension(t *testing.T) {
	t.Parallel()
	l := leaseOf(setUp(t), 2)
	var answer db.Exchanged
	l.meanwhile(leaseEndLooks, func(conn db.Batcher) {
		var err error
		if answer, err = l.schema.Exchange(context.Background(), conn, db.Exchange{Owner: "a", Completions: l.completions(1)}); err != nil {
			t.Error(err)
		}
	}, func() { require.Equal(t, db.LeaseOK, l.extend("a", at(l.jobs[1]), 2*time.Hour)) })
	require.Equal(t, l.ids(1), answer.Completed)
	require.Empty(t, answer.Unrecorded)
	require.Equal(t, 1, l.number("select sum(completed) from jobq.stats"))
	require.Equal(t, 1, l.number("select count(*) from jobq.lease where cardinality(ended_slots) = 1 and expires_at > now() + interval '90 minutes'"))
}

// Trap 2: a reaper passes by the row that CompleteTx has; whether that commits
// or not, the job ends once, and the lease is closed only after it. NextDue has the
// janitor come back for as long; it waits longer each time that it finds nothing free.
func TestReaperPassesCompleteTxBy(t *testing.T) {
	t.Parallel()
	for _, commits := range []bool{true, false} {
		t.Run(fmt.Sprint("commit ", commits), func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			l := leaseOf(setUp(t), 2)
			tx, err := l.pool.Begin(ctx)
			require.NoError(t, err)
			params := db.RunCompleteTxParams{ID: l.jobs[1].ID, Token: l.id, Owner: "a", ClaimedAt: l.jobs[1].StartedAt, Result: []byte("1")}
			done, err := l.schema.Queries(tx).RunCompleteTx(ctx, params)
			require.NoError(t, err)
			require.Len(t, done, 1)
			require.Equal(t, db.LeaseOK, l.extend("a", at(l.jobs[1]), time.Hour), "meanwhile")
			require.Equal(t, 1, l.lose(100), "the other job is taken, the lease waits")
			require.Equal(t, 1, l.leases())
			require.Zero(t, l.lose(100))
			require.Equal(t, 1, l.leases())
			due, err := l.nextDue(10_000, 10_000, true)
			require.NoError(t, err)
			require.True(t, due.LeaseEnds)
			require.LessOrEqual(t, due.Ms, int64(0))
			if commits {
				require.NoError(t, tx.Commit(ctx))
				require.Zero(t, l.lose(100))
				require.Equal(t, "completed", l.state(1))
			} else {
				require.NoError(t, tx.Rollback(ctx))
				require.Equal(t, 1, l.lose(100))
				require.Equal(t, "available", l.state(1))
			}
			require.Zero(t, l.leases())
			fate, err := l.queries.RunFate(ctx, fateOf(l.jobs[1]))
			require.NoError(t, err)
			require.Equal(t, db.RunFateRow{Completed: commits}, fate)
			again, err := l.queries.RunCompleteTx(ctx, params)
			require.NoError(t, err)
			require.Empty(t, again, "the lease is lost for good")
		})
	}
}

// Trap 2, the other order: what the reaper has taken, CompleteTx waits for and does not get.
func TestCompleteTxAfterReaper(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := leaseOf(setUp(t), 1)
	l.expire()
	tx, err := l.pool.Begin(ctx)
	require.NoError(t, err)
	reaped, err := l.schema.Reap(ctx, tx, nil, 10, "test")
	require.NoError(t, err)
	require.Len(t, reaped, 1)
	stored := make(chan int, 1)
	go func() {
		ids, err := l.queries.RunCompleteTx(ctx, db.RunCompleteTxParams{ID: l.jobs[1].ID, Token: l.id, Owner: "a", ClaimedAt: l.jobs[1].StartedAt})
		if err != nil {
			t.Error(err)
		}
		stored <- len(ids)
	}()
	l.awaitLock()
	require.NoError(t, tx.Commit(ctx))
	require.Zero(t, <-stored)
	require.Equal(t, "available", l.state(1))
}

// Who asks for a job to be cancelled touches neither its lease nor the other
// jobs of it: the owner ends those beside an open transaction that cancels, and is told
// which one when that has committed.
func TestCancelLeavesTheLeaseAlone(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := leaseOf(setUp(t), 3)
	tx, err := l.pool.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "select jobq.cancel($1)", l.jobs[1].ID)
	require.NoError(t, err)
	require.Equal(t, l.ids(2), l.succeed(2))
	require.Empty(t, l.cancelled(l.id), "not yet")
	require.NoError(t, tx.Commit(ctx))
	require.Equal(t, l.ids(1), l.cancelled(l.id))
	require.Equal(t, "cancelled", l.end(l.jobs[1], db.Ending{Outcome: "failed", Error: "e"}), "it does not go back")
	require.Empty(t, l.cancelled(l.id))
	require.Equal(t, l.ids(3), l.succeed(3))
	require.Equal(t, db.LeaseLost, l.extend("a", at(l.jobs[1]), time.Hour), "nothing is left to extend")
	require.Zero(t, l.leases())
}

// A lease that somebody else has locked is busy, and neither lost nor waited for.
func TestExtendSaysBusy(t *testing.T) {
	t.Parallel()
	l := leaseOf(setUp(t), 1)
	release := l.lockLeases(l.id)
	require.Equal(t, db.LeaseBusy, l.extend("a", at(l.jobs[1]), time.Hour))
	require.Equal(t, db.LeaseOK, l.extend("a", at(l.jobs[1]), 0), "to ask does not need the row")
	require.Equal(t, db.LeaseLost, l.extend("b", at(l.jobs[1]), time.Hour))
	release()
	require.Equal(t, db.LeaseOK, l.extend("a", at(l.jobs[1]), time.Hour))
}

// A checkpoint that was accepted is what the next run begins with: a reaper that
// comes at the same moment waits for the next pass.
func TestCheckpointHoldsTheReaperOff(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := leaseOf(setUp(t), 1)
	l.expire()
	tx, err := l.pool.Begin(ctx)
	require.NoError(t, err)
	stored, err := l.schema.Queries(tx).RunCheckpoint(ctx, db.RunCheckpointParams{ID: l.jobs[1].ID, Token: l.id, Owner: "a", ClaimedAt: l.jobs[1].StartedAt, Checkpoint: []byte(`{"at": 7}`)})
	require.NoError(t, err)
	require.EqualValues(t, 1, stored)
	reaped, err := l.schema.Reap(ctx, l.pool, nil, 100, "test")
	require.NoError(t, err)
	require.Empty(t, reaped)
	require.Equal(t, 1, l.leases())
	require.NoError(t, tx.Commit(ctx))
	require.Equal(t, 1, l.lose(100))
	require.Equal(t, 1, l.number(`select count(*) from jobq.pending where checkpoint = '{"at": 7}'`))
	require.Zero(t, l.number("select count(*) from jobq.progress"))
}

// Nor is one lost that is accepted between a reaper's snapshot and its lock,
// whether it extends the lease or not: that lease is left for the next pass.
func TestReapMeetsACheckpoint(t *testing.T) {
	t.Parallel()
	for name, by := range map[string]pgtype.Interval{"heartbeat of the ticker": {}, "extends too little": db.Interval(time.Microsecond)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := leaseOf(setUp(t), 2)
			params := db.RunCheckpointParams{ID: l.jobs[1].ID, Token: l.id, Owner: "a", ClaimedAt: l.jobs[1].StartedAt, Checkpoint: []byte(`{"at": 7}`), ExtendBy: by}
			l.expire()
			require.Zero(t, l.reapMeanwhile(func() {
				stored, err := l.queries.RunCheckpoint(context.Background(), params)
				require.NoError(t, err)
				require.EqualValues(t, 1, stored)
			}))
			require.Equal(t, 2, l.lose(100))
			require.Equal(t, 1, l.number(`select count(*) from jobq.pending where id = $1 and checkpoint = '{"at": 7}'`, l.jobs[1].ID))
			require.Zero(t, l.number("select count(*) from jobq.progress"))
		})
	}
}

// A checkpoint that comes when a reaper has marked the lease, and not committed
// yet, waits for it and is refused.
func TestCheckpointAfterReaper(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := leaseOf(setUp(t), 1)
	l.expire()
	releaseRun := l.lockRuns(l.jobs[1].ID) // which keeps the lease from being closed
	tx, err := l.pool.Begin(ctx)
	require.NoError(t, err)
	reaped, err := l.schema.Reap(ctx, tx, nil, 10, "test")
	require.NoError(t, err)
	require.Empty(t, reaped)
	releaseRun()
	answer := make(chan int64, 1)
	go func() {
		stored, err := l.queries.RunCheckpoint(ctx, db.RunCheckpointParams{ID: l.jobs[1].ID, Token: l.id, Owner: "a", ClaimedAt: l.jobs[1].StartedAt, Checkpoint: []byte(`{"at": 7}`)})
		if err != nil {
			t.Error(err)
		}
		answer <- stored
	}()
	l.awaitLock()
	require.NoError(t, tx.Commit(ctx))
	require.Zero(t, <-answer)
	require.Equal(t, 1, l.lose(100))
	require.Equal(t, 1, l.number("select count(*) from jobq.pending where checkpoint is null"))
	require.Zero(t, l.number("select count(*) from jobq.progress"))
}

// A reap takes exactly as many runs as it was asked for. What is left of a lease
// in the middle of which it has stopped is lost from then on: its owner can
// neither extend nor end anything of it, and the next passes take the rest.
func TestReapInTheMiddleOfALease(t *testing.T) {
	t.Parallel()
	l := leaseOf(setUp(t), 10)
	require.Equal(t, l.ids(4), l.succeed(4))
	require.Equal(t, 3, l.lose(3))
	require.Equal(t, 1, l.number("select count(*) from jobq.lease where lost_at is not null and cardinality(ended_slots) = 4"))
	require.Equal(t, 6, l.number("select count(*) from jobq.job where state = 'running'"))
	l.exec("update jobq.lease set expires_at = now() + interval '1 hour'") // lost is lost
	before := l.everything()
	for name, write := range writes {
		for slot := range l.jobs {
			if slot != 4 {
				require.False(t, write(l.queue, at(l.jobs[slot]), "a"), name)
			}
		}
	}
	require.Equal(t, l.ids(4), l.exchange(db.Exchange{Owner: "a", Completions: l.completions(4, 5, 6)}).Completed)
	require.Equal(t, before, l.everything())
	for _, want := range []int{3, 3, 0} {
		reaped, err := l.schema.Reap(context.Background(), l.pool, nil, 3, "test")
		require.NoError(t, err)
		require.Len(t, reaped, want)
	}
	require.Zero(t, l.leases())
	require.Equal(t, 9, l.number("select count(*) from jobq.attempt where outcome = 'lost'"))
	require.Equal(t, 9, l.number("select count(*) from jobq.job where state = 'available' and attempts = 1"))
}

// Several leases in one reap: as many runs as asked for, those that ended
// first, and no lease is lost of which nothing was to be taken.
func TestReapStopsBetweenLeases(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	var leases []lease
	for i := range 4 {
		leases = append(leases, leaseOf(q, 5))
		q.exec("update jobq.lease set expires_at = now() - interval '1 hour' + $2 * interval '1 minute' where id = $1", leases[i].id, i)
	}
	reaped, err := q.schema.Reap(context.Background(), q.pool, nil, 10, "test")
	require.NoError(t, err)
	require.Len(t, reaped, 10)
	for _, row := range reaped {
		require.Contains(t, []int64{leases[0].id, leases[1].id}, row.LeaseToken)
	}
	require.Equal(t, 2, q.leases())
	require.Zero(t, q.number("select count(*) from jobq.lease where lost_at is not null"))
	require.Len(t, leases[3].succeed(1, 2, 3, 4, 5), 5)
}

// Runs that somebody keeps locked, however many, keep no other lease from being
// reaped, neither one that has expired since nor the rest of one that is lost.
func TestLockedRunsDelayNoOthers(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	stuck := leaseOf(q, 10)
	rest := leaseOf(q, 4)
	var all []int64
	for _, job := range stuck.jobs {
		all = append(all, job.ID)
	}
	releaseStuck, releaseRest := q.lockRuns(all...), q.lockRuns(rest.jobs[1].ID)
	require.Equal(t, 0, stuck.lose(5), "of the one that ended first, all are locked")
	require.Equal(t, 3, stuck.lose(5))
	last := leaseOf(q, 5)
	require.Equal(t, 2, last.lose(2), "before two that are lost")
	releaseRest()
	require.Equal(t, 4, last.lose(5), "what is left of two, behind the one of which all are locked")
	releaseStuck()
	for _, want := range []int{5, 5, 0} {
		require.Equal(t, want, last.lose(5))
	}
	require.Zero(t, q.leases())
}

// More lost leases than a reap looks at, of which all runs are locked, keep
// nothing from the lost leases behind them: each pass looks first at those that
// the passes before have not seen for longest.
func TestLockedLostLeasesDelayNoOtherLostOnes(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	var all []int64
	for range 5 {
		locked := leaseOf(q, 2)
		all = append(all, locked.ids(1, 2)...)
		q.exec("update jobq.lease set expires_at = now() - interval '1 hour' where id = $1", locked.id)
	}
	free := leaseOf(q, 5)
	release := q.lockRuns(all...)
	var ended []int64
	reap := func() int {
		reaped, err := q.schema.Reap(context.Background(), q.pool, nil, 2, "test")
		require.NoError(t, err)
		require.LessOrEqual(t, len(reaped), 2)
		for _, row := range reaped {
			ended = append(ended, row.ID)
		}
		return len(reaped)
	}
	for q.number("select count(*) from jobq.lease where lost_at is null and id <> $1", free.id) > 0 {
		require.Zero(t, reap())
	}
	q.exec("update jobq.lease set expires_at = now() - interval '1 minute' where id = $1", free.id)
	require.Equal(t, 2, reap(), "before all that are lost")
	q.exec("update jobq.lease set lost_at = lost_at - interval '1 day'")
	for range 3 * 2 { // each three passes see all
		reap()
	}
	require.ElementsMatch(t, free.ids(1, 2, 3, 4, 5), ended)
	require.Equal(t, 5, q.leases())
	due, err := q.nextDue(10_000, 10_000, true)
	require.NoError(t, err)
	require.True(t, due.LeaseEnds)
	require.LessOrEqual(t, due.Ms, int64(0), "they are due until they are taken")
	require.Greater(t, due.Ms, -time.Hour.Milliseconds(), "and no later than since a reap has looked: nobody can do more")
	release()
	for reap() > 0 {
	}
	require.ElementsMatch(t, append(all, free.ids(1, 2, 3, 4, 5)...), ended)
	require.Zero(t, q.leases())
}
