package tests

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// A session that has every advisory lock that jobq has ever used keeps no claim from its turn.
func TestAdvisoryLocksOfStrangersKeepNoTurn(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	stranger, err := q.pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = stranger.Rollback(ctx) }()
	for _, name := range []string{"default", "hints.default", "announce ", "event paid"} {
		_, err = stranger.Exec(ctx, q.schema.SQL("select pg_advisory_xact_lock(hashtextextended('jobq.' || $1, 0))"), name)
		require.NoError(t, err)
	}
	q.set(`{"max_running": 100, "key_limit": 1}`)
	q.exec("select jobq.enqueue('k', partition_key => 'key ' || i % 2) from generate_series(1, 4) i")
	answer := q.exchange(func() db.Exchange { e := keyed("w", 10); e.HasLimits = true; return e }())
	require.Len(t, answer.Keyed, 2)
	require.Equal(t, "true", q.text("select jobq.wait_announce('default', 5)::text"))
	require.Equal(t, "true", q.text("select jobq.emit('paid', '1')::text"))
}

// Claims that share a turn go on beside each other, and one that does not waits for all of them. Who waits comes before
// those that would share the turn next.
func TestTurns(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	begin := func() pgx.Tx {
		tx, err := q.pool.Begin(ctx)
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback(ctx) })
		return tx
	}
	try := func(tx pgx.Tx, call string) (got bool) {
		require.NoError(t, tx.QueryRow(ctx, q.schema.SQL("select jobq."+call)).Scan(&got))
		return got
	}
	tryOnce := func(call string) bool {
		tx := begin()
		defer func() { _ = tx.Rollback(ctx) }()
		return try(tx, call)
	}
	first := begin()
	require.True(t, try(first, "turn_share('a', 1)"), "it adds the parts")
	require.False(t, tryOnce("turn_share('a', 1)"))
	require.False(t, tryOnce("turn_take('a', 1)"))
	require.False(t, tryOnce("turn_take('a', 0)"))
	require.NotEqual(t, "<nil>", fmt.Sprint(q.text("select coalesce(jobq.turn_holder('a'), '{}')::text")))
	require.True(t, tryOnce("turn_take('b', 1)"), "another turn")
	require.NoError(t, first.Commit(ctx))

	second, third := begin(), begin()
	require.True(t, try(second, "turn_share('a', 1)"))
	require.True(t, try(third, "turn_share('a', 1)"))
	alone := begin()
	taken := make(chan error, 1)
	go func() {
		var got bool
		err := alone.QueryRow(ctx, q.schema.SQL("select jobq.turn_take('a', 60000)")).Scan(&got)
		if err == nil && !got {
			err = fmt.Errorf("not taken")
		}
		taken <- err
	}()
	require.Eventually(t, func() bool { return q.number(sessionsThatWait) == 1 }, eventually, tick)
	require.NoError(t, third.Commit(ctx))
	require.NoError(t, second.Commit(ctx))
	require.NoError(t, <-taken)
	require.False(t, tryOnce("turn_share('a', 1)"))
	require.Equal(t, "true", q.text("select (jobq.turn_holder('a') ->> 'pid' is not null)::text"))
	require.NoError(t, alone.Rollback(ctx))
	require.Equal(t, "true", q.text("select (jobq.turn_holder('a') is null)::text"))

	forgets := begin()
	require.True(t, try(forgets, "turn_take('a', 1)"))
	_, err := forgets.Exec(ctx, q.schema.SQL("select jobq.turn_forget('a')"))
	require.NoError(t, err)
	require.False(t, tryOnce("turn_take('a', 1)"))
	require.False(t, tryOnce("turn_share('a', 1)"))
	require.NoError(t, forgets.Commit(ctx))
	require.True(t, tryOnce("turn_take('a', 1)"))
}

// emit waits neither for a stranger who has the event's lock, nor for long for another one who emits the same event. Jobs
// that begin to wait at the same time are woken all the same.
func TestEmitBesideALockOfAStranger(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newStepper(t)
	stranger, err := s.pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = stranger.Rollback(ctx) }()
	_, err = stranger.Exec(ctx, s.schema.SQL("select pg_advisory_xact_lock_shared(hashtextextended('jobq.event paid', 0))"))
	require.NoError(t, err)
	waiter, err := s.pool.Begin(ctx) // it looks before the event is there, and commits after it
	require.NoError(t, err)
	defer func() { _ = waiter.Rollback(ctx) }()
	row, err := stepWait(waiter, s.job, "paid", nil)
	require.NoError(t, err)
	require.False(t, row.Done)

	emitter, err := s.pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = emitter.Rollback(ctx) }()
	first, err := s.schema.Queries(emitter).EventEmit(ctx, "paid", []byte("7"))
	require.NoError(t, err)
	require.True(t, first)
	other, err := s.pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = other.Rollback(ctx) }()
	_, err = other.Exec(ctx, "set local lock_timeout = '20ms'")
	require.NoError(t, err)
	_, err = s.schema.Queries(other).EventEmit(ctx, "paid", []byte("8"))
	require.ErrorContains(t, err, "another transaction emits it")
	require.NoError(t, emitter.Commit(ctx))

	rest := func() {
		s.exec("update jobq.emitted set again_at = now() where again_at is not null")
		for s.text("select jobq.event_wake_rest(10)::text") == "true" {
		}
	}
	rest()
	rest()
	require.Equal(t, 1, s.number("select count(*) from jobq.emitted where again_at is not null"), "the waiter is not committed")
	require.NoError(t, waiter.Commit(ctx))
	rest()
	require.Equal(t, "available", s.state())
	require.Eventually(t, func() bool { // transactions of other databases count, too
		rest()
		return s.number("select count(*) from jobq.emitted where again_at is not null or woken_to is not null or again_before is not null") == 0
	}, patience, tick)
}

// An enqueue, and the end of a run, wait for another transaction only as long as a limit says.
func TestWaitsInTransactionsOfApplicationsEnd(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newStepper(t)
	s.exec("alter function jobq.unique_key_wait set lock_timeout = '20ms'")
	s.exec("alter function jobq.run_held set lock_timeout = '20ms'")
	other, err := s.pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = other.Rollback(ctx) }()
	for _, sql := range []string{"select jobq.enqueue('k', unique_key => 'u')", "select from jobq.run for update"} {
		_, err = other.Exec(ctx, s.schema.SQL(sql))
		require.NoError(t, err)
	}
	_, err = s.pool.Exec(ctx, s.schema.SQL("select jobq.enqueue('k', unique_key => 'u')"))
	require.True(t, db.IsLockTimeout(err), "%v", err)
	_, err = s.pool.Exec(ctx, s.schema.SQL("insert into jobq.pending (kind, unique_key) values ('k', 'u')"))
	require.True(t, db.IsLockTimeout(err), "%v", err)
	require.True(t, db.IsLockTimeout(s.put("s", "1")))
	require.NoError(t, other.Rollback(ctx))
	require.NoError(t, s.put("s", "1"))
}

// A row that several sessions wait for is locked in two steps. If the time is over between them, PostgreSQL says that
// somebody has cancelled the statement, although nobody has: then the turn is just not to be had. Here somebody cancels at
// that time: after the wait for the first row, which has ended, and during that for the parts.
func TestWaitForATurnEndsLikeACancel(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	const waits = "from pg_stat_activity where datname = current_database() and query like '%turn_wait%' and wait_event_type = 'Lock'"
	waited := func(times float64) func() bool {
		return func() bool {
			return q.number("select count(*) "+waits+" and clock_timestamp() > query_start + $1 * interval '2 s'", times) == 1
		}
	}
	q.exec("insert into jobq.turn (name, part, parts) values ('a', 0, 1), ('a', 1, 0)")
	first := q.begin(pgx.ReadCommitted, "select from jobq.turn where name = 'a' and part = 0 for update")
	q.begin(pgx.ReadCommitted, "select from jobq.turn where name = 'a' and part = 1 for update")
	got := make(chan error, 1)
	go func() {
		var taken bool
		err := q.pool.QueryRow(ctx, q.schema.SQL("select jobq.turn_wait('a', 0, 2000)")).Scan(&taken)
		if err == nil && taken {
			err = errors.New("it is locked")
		}
		got <- err
	}()
	require.Eventually(t, waited(0.5), eventually, tick)
	require.NoError(t, first.Rollback(ctx))
	require.Eventually(t, waited(1.2), eventually, tick)
	q.exec("select pg_cancel_backend(pid) " + waits)
	require.NoError(t, <-got)
}

// A cancel ends the wait for a turn.
func TestWaitForATurnIsCancelled(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.begin(pgx.ReadCommitted, "select jobq.turn_take('a', 1)")
	waited := make(chan error, 1)
	go func() {
		_, err := q.pool.Exec(context.Background(), q.schema.SQL("select jobq.turn_take('a', 600000)"))
		waited <- err
	}()
	require.Eventually(t, func() bool { return q.number(sessionsThatWait) == 1 }, eventually, tick)
	q.exec("select pg_cancel_backend(pid) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'")
	require.ErrorContains(t, <-waited, "57014")
}
