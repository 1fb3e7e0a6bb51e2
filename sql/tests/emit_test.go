package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/jobq-dev/jobq/internal/db"
)

// An event that comes before the wait, after it, or while the job runs for another
// reason is seen, once for all runs.
func TestEventIsSeen(t *testing.T) {
	t.Parallel()
	t.Run("before", func(t *testing.T) {
		t.Parallel()
		s := newStepper(t)
		require.True(t, s.emit("paid", `{"by": "ann"}`))
		require.Equal(t, db.StepWaitRow{Done: true, Result: json.RawMessage(`{"by": "ann"}`)}, s.wait("paid", nil))
		s.reap()
		s.exec("delete from jobq.emitted")
		s.next()
		require.Equal(t, db.StepWaitRow{Done: true, Result: json.RawMessage(`{"by": "ann"}`)}, s.wait("paid", nil))
	})
	t.Run("after", func(t *testing.T) {
		t.Parallel()
		s := newStepper(t)
		require.False(t, s.wait("paid", "1 day").Done)
		require.Equal(t, "scheduled", s.state())
		require.True(t, s.emit("paid", "7"))
		require.Equal(t, "available", s.state())
		require.Equal(t, 1, s.number("select count(*) from jobq.job where run_at <= clock_timestamp()"))
		s.next()
		require.Equal(t, db.StepWaitRow{Done: true, Result: json.RawMessage("7")}, s.wait("paid", "1 day"))
	})
	t.Run("while it runs", func(t *testing.T) {
		t.Parallel()
		s := newStepper(t)
		require.False(t, s.wait("paid", nil).Done)
		s.next()
		require.True(t, s.emit("paid", "null"))
		require.Equal(t, "running", s.state())
		require.Equal(t, db.StepWaitRow{Done: true, Result: json.RawMessage("null")}, s.wait("paid", nil))
	})
}

// An emitter waits for one who begins to wait at the same moment, and then wakes its
// job; whether that commits or not, nothing is missed.
func TestEmitMeetsWait(t *testing.T) {
	t.Parallel()
	for _, commits := range []bool{true, false} {
		t.Run(fmt.Sprint("commit ", commits), func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			s := newStepper(t)
			tx, err := s.pool.Begin(ctx)
			require.NoError(t, err)
			defer func() { _ = tx.Rollback(ctx) }()
			row, err := stepWait(tx, s.job, "paid", nil)
			require.NoError(t, err)
			require.False(t, row.Done)
			var group errgroup.Group
			group.Go(func() error {
				_, err := s.queries.EventEmit(ctx, "paid", json.RawMessage("7"))
				return err
			})
			s.awaitLock()
			if !commits {
				require.NoError(t, tx.Rollback(ctx))
				require.NoError(t, group.Wait())
				require.Equal(t, db.StepWaitRow{Done: true, Result: json.RawMessage("7")}, s.wait("paid", nil))
				return
			}
			require.NoError(t, tx.Commit(ctx))
			require.NoError(t, group.Wait())
			require.Equal(t, "available", s.state())
			s.next()
			require.Equal(t, db.StepWaitRow{Done: true, Result: json.RawMessage("7")}, s.wait("paid", nil))
		})
	}
}

// One who begins to wait while an emitter's transaction is open does not wait for that:
// its job is put back for a moment, and looks again. Until then it holds no slot.
func TestWaitMeetsEmit(t *testing.T) {
	t.Parallel()
	for _, commits := range []bool{true, false} {
		t.Run(fmt.Sprint("commit ", commits), func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			s := newStepper(t)
			tx, err := s.pool.Begin(ctx)
			require.NoError(t, err)
			defer func() { _ = tx.Rollback(ctx) }()
			first, err := s.schema.Queries(tx).EventEmit(ctx, "paid", json.RawMessage("7"))
			require.NoError(t, err)
			require.True(t, first)
			require.False(t, s.wait("paid", nil).Done)
			require.Equal(t, 1, s.number("select count(*) from jobq.pending where position is null and run_at < now() + interval '1 minute'"), "it looks again soon")
			if !commits {
				require.NoError(t, tx.Rollback(ctx))
				s.next()
				require.False(t, s.wait("paid", nil).Done)
				require.Equal(t, 1, s.number("select count(*) from jobq.pending where run_at > now() + interval '9 years'"))
				return
			}
			require.NoError(t, tx.Commit(ctx))
			s.next()
			require.Equal(t, db.StepWaitRow{Done: true, Result: json.RawMessage("7")}, s.wait("paid", nil))
		})
	}
}

// A stranger keeps the lock of an event for ever. What has been emitted is seen all the same, a wait comes to its end, and
// nobody waits for the lock for longer than its lock_timeout says.
func TestEventWhoseLockIsTaken(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newStepper(t)
	stranger, err := pgx.Connect(ctx, s.pool.Config().ConnString())
	require.NoError(t, err)
	defer func() { _ = stranger.Close(ctx) }()
	_, err = stranger.Exec(ctx, "select pg_advisory_lock(jobq.event_place(n)) from unnest('{paid, never}'::text[]) n")
	require.NoError(t, err)

	require.False(t, s.wait("paid", nil).Done)
	s.next()
	require.True(t, s.emit("paid", "7"))
	require.Equal(t, db.StepWaitRow{Done: true, Result: json.RawMessage("7")}, s.wait("paid", nil))
	require.False(t, s.wait("never", "1 hour").Done)
	require.Equal(t, 1, s.number("select count(*) from jobq.pending where run_at < now() + interval '1 minute'"), "it looks again soon")
	s.exec("update jobq.step set wake_at = now()")
	s.next()
	require.Equal(t, db.StepWaitRow{Done: true, TimedOut: true}, s.wait("never", "1 hour"))

	var took time.Duration
	require.NoError(t, pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "set local lock_timeout = '1ms'")
		require.NoError(t, err)
		return tx.QueryRow(ctx, `select max(b.at) - min(b.at) from generate_series(1, 41) i,
			lateral (select jobq.event_lock('paid', i > 0) as taken) l, lateral (select l.taken, clock_timestamp() as at) b`).Scan(&took)
	}))
	require.Less(t, took, 20*time.Second, "40 waits, none of them for 500 ms")
}

// The first event of a name counts, however many emit it at once.
func TestFirstEventCounts(t *testing.T) {
	t.Parallel()
	s := newStepper(t)
	firsts := make(chan int, 8)
	var group errgroup.Group
	for i := range 8 {
		group.Go(func() error {
			first, err := s.queries.EventEmit(context.Background(), "paid", json.RawMessage(fmt.Sprint(i)))
			if first {
				firsts <- i
			}
			return err
		})
	}
	require.NoError(t, group.Wait())
	require.Len(t, firsts, 1)
	require.Equal(t, fmt.Sprint(<-firsts), string(s.wait("paid", nil).Result))
	require.False(t, s.emit("paid", "99"))
}

// Where a snapshot is older than the lock, an event could be missed: such transactions
// are refused.
func TestEventsNeedReadCommitted(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newStepper(t)
	for _, call := range []string{"select jobq.step_wait($1, $2, 'e')", "select jobq.emit('e', to_jsonb($1::bigint || $2::text))"} {
		for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
			err := pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, call, s.job.ID, runToken(s.job))
				return err
			})
			require.ErrorContains(t, err, "the transaction must be READ COMMITTED, not", call)
		}
	}
}

// An event that does not come in time is answered with that, for good, even if it comes
// later.
func TestEventTimesOut(t *testing.T) {
	t.Parallel()
	s := newStepper(t)
	require.False(t, s.wait("paid", "1 hour").Done)
	s.next()
	require.False(t, s.wait("paid", "0").Done, "the first call says how long")
	s.exec("update jobq.step set wake_at = now()")
	s.next()
	late := db.StepWaitRow{Done: true, TimedOut: true}
	require.Equal(t, late, s.wait("paid", "1 hour"))
	require.True(t, s.emit("paid", "7"))
	s.reap()
	s.next()
	require.Equal(t, late, s.wait("paid", "1 hour"))
	require.True(t, s.wait("at once", "0").TimedOut)
}

// A job that has run again since it began to wait, and failed before it came to that, is
// not woken: it has its backoff, and then sees the event.
func TestEventKeepsBackoff(t *testing.T) {
	t.Parallel()
	s := newStepper(t)
	require.False(t, s.wait("paid", nil).Done)
	s.next()
	s.end(s.job, db.Ending{Outcome: "failed", Error: "e", Delay: db.DelayOf(time.Hour)})
	require.True(t, s.emit("paid", "7"))
	require.Equal(t, "scheduled", s.state())
	s.next()
	require.True(t, s.wait("paid", nil).Done)
}

// An event that comes while a job is not where it waited for it is seen when an undo puts
// the job back there.
func TestEventBeforeUndo(t *testing.T) {
	t.Parallel()
	for _, action := range []string{"cancel", "requeue", "requeue from step", "edit", "delete"} {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			s := newStepper(t)
			require.NoError(t, s.put("charge", "1"))
			require.False(t, s.wait("paid", nil).Done)
			audit := s.operate(action)
			require.True(t, s.emit("paid", "7"))
			s.takeBack(audit)
			require.Equal(t, "available", s.state())
			s.next()
			require.Equal(t, db.StepWaitRow{Done: true, Result: json.RawMessage("7")}, s.wait("paid", nil))
		})
	}
}

// An undo leaves a job its delay if that is not for an event: it sleeps, or has failed
// since it has waited.
func TestUndoKeepsDelay(t *testing.T) {
	t.Parallel()
	for _, action := range []string{"cancel", "requeue", "edit", "delete"} {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			s := newStepper(t)
			require.False(t, s.wait("paid", nil).Done)
			s.next()
			s.end(s.job, db.Ending{Outcome: "failed", Error: "e", Delay: db.DelayOf(time.Hour)})
			s.takeBack(s.operate(action))
			require.Equal(t, "scheduled", s.state())
			s.next()
			require.False(t, s.sleep("night", "1 hour"))
			s.takeBack(s.operate(action))
			require.Equal(t, "scheduled", s.state())
		})
	}
}

// operate does an action of an operator on the job, and returns the id by which it is undone.
// The edit is one that makes it run now.
func (s *stepper) operate(action string) (audit int64) {
	s.Helper()
	var change any
	switch action {
	case "edit":
		change = `{"run_at": "2026-01-01 00:00Z"}`
	case "requeue from step":
		row, err := s.queries.JobActFromStep(context.Background(), db.JobActFromStepParams{Step: "charge", Actor: "ann", JobID: s.job.ID})
		require.NoError(s, err)
		require.True(s, row.Changed)
		require.EqualValues(s, 2, row.Forgotten)
		return row.Audit
	}
	require.NoError(s, s.pool.QueryRow(context.Background(), "select a.audit from jobq.act('ann', $1, array[$2::bigint], '{}', '{}', null, 0, $3::jsonb) a where a.changed", action, s.job.ID, change).Scan(&audit))
	return audit
}

func (s *stepper) takeBack(audit int64) {
	s.Helper()
	require.Equal(s, 1, s.number("select count(*) from jobq.undo('ann', $1) u where u.problem is null", audit))
}

// More jobs than one statement should wake are woken in steps, each once; those of
// other events and those that have gone on are left alone.
func TestEventWakesMany(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newStepper(t)
	const many = 1500
	s.exec("insert into jobq.pending (id, position, kind, queue, run_at) select 100 + i, null, 'k', 'q' || i % 3, now() + interval '1 day' from generate_series(1, $1::integer + 2) i", many)
	s.exec(`insert into jobq.step (job_id, started_at, lease_token, claimed_at, number, type, name)
		select 100 + i, now(), 0, now(), 1, 'event', case when i <= $1 then 'paid' else 'other' end from generate_series(1, $1::integer + 2) i`, many)
	woken := func() int { return s.number("select count(*) from jobq.pending where position is not null") }
	require.True(t, s.emit("paid", "1"))
	require.Equal(t, 1000, woken())
	require.False(t, s.emit("paid", "2"))
	for _, want := range []int{1400, 1500} {
		some, err := s.queries.EventWakeRest(ctx, 400)
		require.NoError(t, err)
		require.True(t, some)
		require.Equal(t, want, woken())
	}
	some, err := s.queries.EventWakeRest(ctx, 400)
	require.NoError(t, err)
	require.False(t, some)
}

// Old events go, but for those that a job still waits for.
func TestEmittedPrune(t *testing.T) {
	t.Parallel()
	s := newStepper(t)
	require.False(t, s.wait("waited for", nil).Done)
	for _, name := range []string{"a", "b", "waited for", "young"} {
		s.emit(name, "1")
	}
	s.exec("update jobq.emitted set emitted_at = now() - interval '8 days' where name <> 'young'")
	var looked int64
	at, name := beginning, ""
	for range 3 {
		row, err := s.queries.EmittedPrune(context.Background(), at, name, 2)
		require.NoError(t, err)
		at, name = row.LastAt, row.LastName
		looked += row.Looked
	}
	require.EqualValues(t, 3, looked)
	require.Equal(t, "waited for, young", s.text("select string_agg(name, ', ' order by name) from jobq.emitted"))
}
