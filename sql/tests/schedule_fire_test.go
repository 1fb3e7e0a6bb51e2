package tests

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// scheduleSeen makes a schedule and returns how a janitor fires one tick of it, now.
func (q *queue) scheduleSeen(name string) db.Fire {
	q.Helper()
	fire := db.Fire{Name: name, Statement: time.Minute, Lock: time.Minute}
	err := q.pool.QueryRow(context.Background(), `
		with s as (select jobq.schedule_set($1, $1, every => '1 h'))
		select clock_timestamp(), clock_timestamp() + interval '1 hour' from s`, name).Scan(&fire.LookedAt, &fire.DueAt)
	require.NoError(q, err)
	require.NoError(q, q.pool.QueryRow(context.Background(), "select revision, cursor_at from jobq.schedule where name = $1", name).Scan(&fire.Revision, &fire.CursorAt))
	fire.Ticks = []time.Time{fire.LookedAt.Truncate(time.Second)}
	return fire
}

// A schedule fires only if it is as the janitor has seen it, and nobody has it
// locked: else nothing happens, and nothing is waited for.
func TestFireComparesAndSets(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	fires := func(fire db.Fire, want bool) {
		t.Helper()
		_, fired, err := q.schema.FireSchedule(ctx, q.pool, fire)
		require.NoError(t, err)
		require.Equal(t, want, fired)
	}
	twice := q.scheduleSeen("twice")
	fires(twice, true)
	twice.Ticks = []time.Time{twice.Ticks[0].Add(time.Second)}
	fires(twice, false) // the cursor has moved: whatever the ticks are
	require.Equal(t, 1, q.number("select count(*) from jobq.pending where kind = 'twice'"))

	for name, change := range map[string]string{
		"paused":  "select jobq.schedule_pause('paused')",
		"changed": "select jobq.schedule_set('changed', 'other', every => '1 h')",
		"removed": "select jobq.schedule_remove('removed')",
	} {
		seen := q.scheduleSeen(name)
		q.exec(change)
		fires(seen, false)
	}
	locked := q.scheduleSeen("locked")
	require.NoError(t, pgx.BeginFunc(ctx, q.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "select from jobq.schedule for update")
		fires(locked, false)
		return err
	}))
	fires(locked, true)
	require.Zero(t, q.number("select count(*) from jobq.pending where kind not in ('twice', 'locked')"))
}

// A tick is made once, also by a schedule of the same name that was removed and made
// again; and a fire that fails leaves nothing behind.
func TestTickIsMadeOnce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	first := q.scheduleSeen("s")
	jobs, _, err := q.schema.FireSchedule(ctx, q.pool, first)
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	q.exec("select jobq.schedule_remove('s')")
	again := q.scheduleSeen("s")
	again.Ticks = []time.Time{first.Ticks[0], first.Ticks[0].Add(time.Second)}
	jobs, fired, err := q.schema.FireSchedule(ctx, q.pool, again)
	require.NoError(t, err)
	require.True(t, fired)
	require.Len(t, jobs, 1, "the second tick alone")

	refused := q.scheduleSeen("refused")
	q.exec("update jobq.schedule set kind = '' where name = 'refused'")
	_, fired, err = q.schema.FireSchedule(ctx, q.pool, refused)
	require.ErrorContains(t, err, "kind must be 1 to 128 characters")
	require.False(t, fired)
	require.Equal(t, 1, q.number("select count(*) from jobq.schedule s where s.name = 'refused' and s.last_tick_at is null and s.cursor_at = $1", refused.CursorAt))
	require.Zero(t, q.number("select count(*) from jobq.schedule_tick where schedule = 'refused'"))
}

// While a transaction is open, earlier ticks stay in the index of what is due. A look
// that begins where nothing can be due before does not walk through them.
func TestLooksGoOnWhereTheyStopped(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.withoutAutovacuum()
	q.exec("select jobq.schedule_set('s', 'k', every => '1 s')")
	held, err := q.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	defer func() { require.NoError(t, held.Rollback(ctx)) }()
	_, err = held.Exec(ctx, "select from jobq.schedule")
	require.NoError(t, err)
	q.exec("do $$ begin for i in 1..3000 loop update jobq.schedule set due_at = due_at + interval '1 s'; end loop; end $$")
	conn, err := q.pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	look := q.schema.SQL(db.ScheduleLook)
	var due time.Time
	require.NoError(t, q.pool.QueryRow(ctx, "select due_at from jobq.schedule").Scan(&due))
	require.Less(t, buffers(t, conn, look, due.Add(-2*time.Second), ""), 30)
	require.Greater(t, buffers(t, conn, look, due.Add(-time.Hour), ""), 30, "so this test sees what it is about")
}

// With overlap skip, only the job of the tick before counts: not one that a person
// has wanted meanwhile, whether that one is finished or not.
func TestOverlapIgnoresRunsByHand(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.exec("select jobq.schedule_set('s', 'k', every => '1 h', overlap => 'skip')")
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	fired := func() (jobs []int64) {
		at = at.Add(time.Hour)
		require.NoError(t, q.pool.QueryRow(ctx,
			"select jobq.schedule_fire(s.name, s.revision, s.cursor_at, array[$1::timestamptz], clock_timestamp(), s.due_at) from jobq.schedule s", at).Scan(&jobs))
		return jobs
	}
	first := fired()
	require.Len(t, first, 1)
	require.Equal(t, 1, q.number("select count(*) from jobq.cancel(jobq.schedule_run('s'))"))
	require.Empty(t, fired(), "the job of the first tick is unfinished")
	q.exec("select jobq.schedule_run('s')")
	q.exec("select jobq.cancel($1)", first[0])
	require.Len(t, fired(), 1, "a job that a person has wanted keeps no tick from firing")
}
