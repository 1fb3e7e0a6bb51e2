package tests

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// What was written while the clock was two hours ahead stops nothing when it is set back: rates, rates of keys, dependencies,
// leases, and heartbeats of dead workers.
func TestClockThatWasAhead(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	const ahead = " + interval '2 hours'"
	t.Run("rate of a queue", func(t *testing.T) {
		t.Parallel()
		q := setUp(t)
		q.exec("select jobq.enqueue('k') from generate_series(1, 9)")
		q.set(`{"rate_jobs": 1, "rate_period": "10 s", "rate_burst": 2}`)
		require.Len(t, q.exchange(limited("a", 9)).Claimed, 2)
		q.exec("update jobq.throttle set ready_at = ready_at" + ahead)
		require.Len(t, q.exchange(limited("a", 9)).Claimed, 2, "the burst, and no more")
		require.Empty(t, q.exchange(limited("a", 9)).Claimed)
	})
	t.Run("rate of a key", func(t *testing.T) {
		t.Parallel()
		q := setUp(t)
		q.set(`{"key_rate_jobs": 1, "key_rate_period": "10 s", "key_rate_burst": 2}`)
		q.enqueueKeyed("a", 9)
		require.Len(t, q.exchange(keyed("w", 9)).Keyed, 2)
		q.exec("update jobq.lane set rate_ready_at = rate_ready_at" + ahead + ", throttled_until = throttled_until" + ahead)
		require.Len(t, q.exchange(keyed("w", 9)).Keyed, 2, "the burst, and no more")
		require.Empty(t, q.exchange(keyed("w", 9)).Keyed)
	})
	t.Run("dependency", func(t *testing.T) {
		t.Parallel()
		q := setUp(t)
		q.exec("select jobq.enqueue('child', after => array[jobq.enqueue('parent')])")
		q.exec("select jobq.cancel(id) from jobq.job where kind = 'parent'")
		q.exec("update jobq.dependency_look set look_at = clock_timestamp()" + ahead)
		due, err := q.nextDue(10_000, 10_000, true)
		require.NoError(t, err)
		require.True(t, due.LookDue)
		for range 3 {
			_, err = q.queries.DependencyStep(ctx, db.DueFrom(time.Time{}), 500)
			require.NoError(t, err)
		}
		require.Zero(t, q.number("select count(*) from jobq.pending where waits"))
	})
	t.Run("leases", func(t *testing.T) {
		t.Parallel()
		q := setUp(t)
		q.exec("select jobq.enqueue('k') from generate_series(1, 3)")
		job := q.claim("a", 1)[0]
		q.claim("b", 1)
		q.claim("c", 1)
		remaining := func(owner string) int {
			return q.number("select extract(epoch from expires_at - clock_timestamp())::integer from jobq.lease where owner = $1", owner)
		}
		q.exec("update jobq.lease set expires_at = expires_at" + ahead)
		minute := db.Interval(time.Minute)
		answers, err := q.schema.ExtendLeases(ctx, q.pool, "a", []db.Extension{{ID: job.LeaseToken, ClaimedAt: job.StartedAt.Time, Lease: minute, Longest: db.Interval(time.Hour)}})
		require.NoError(t, err)
		require.Equal(t, db.LeaseOK, answers[job.LeaseToken])
		require.InDelta(t, 3600, remaining("a"), 30, "the longest lease that the owner has had")
		shorten := func() int64 {
			rows, err := q.queries.LeaseShorten(ctx)
			require.NoError(t, err)
			return rows
		}
		require.Zero(t, shorten(), "a long lease alone shows no wrong clock")
		q.exec("update jobq.lease set claimed_at = claimed_at" + ahead + " where owner = 'b'")
		q.exec("insert into jobq.worker (id, pid, hostname, version, queues, kinds, heartbeat_at) values ('c', 1, 'h', 'v', '{}', '{}', clock_timestamp()" + ahead + ")")
		require.EqualValues(t, 2, shorten())
		require.Zero(t, shorten())
		require.LessOrEqual(t, remaining("b"), 3600)
		require.LessOrEqual(t, remaining("c"), 3600)
		q.exec("update jobq.lease set expires_at = 'infinity' where owner = 'a'")
		require.EqualValues(t, 1, shorten(), "no lease is longer than 30 days")
	})
	t.Run("heartbeat of a dead worker", func(t *testing.T) {
		t.Parallel()
		q := setUp(t)
		q.exec("insert into jobq.worker (id, pid, hostname, version, queues, kinds, heartbeat_at) values ('c', 1, 'h', 'v', '{}', '{}', clock_timestamp()" + ahead + ")")
		removed, err := q.queries.WorkerPrune(ctx, db.Interval(5*time.Minute))
		require.NoError(t, err)
		require.EqualValues(t, 1, removed)
	})
	t.Run("full keys", func(t *testing.T) {
		t.Parallel()
		q := setUp(t)
		q.set(`{"key_limit": 1}`)
		q.enqueueKeyed("a", 2)
		require.Len(t, q.exchange(keyed("w", 9)).Keyed, 1)
		require.Empty(t, q.exchange(keyed("w", 9)).Keyed)
		q.exec("delete from jobq.lane_hint")
		q.exec("update jobq.lane set looked_at = clock_timestamp()" + ahead)
		q.exec("select jobq.lane_look_again('default', 1)")
		require.Equal(t, 1, q.number("select count(*) from jobq.lane where key = 'a' and turn is not null"))
	})
}

// Each column of a time has a row in the table of docs/decisions/0043: what becomes of a value that a clock has written which was ahead.
func TestEachTimeHasAMaximum(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	page, err := os.ReadFile("../../docs/decisions/0043-tokens-and-clocks.md")
	require.NoError(t, err)
	rows, err := q.pool.Query(context.Background(), `select c.relname || '.' || a.attname
		from pg_attribute a join pg_class c on c.oid = a.attrelid
		where c.relnamespace = 'jobq'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition and a.attnum > 0 and not a.attisdropped
			and a.atttypid = 'timestamptz'::regtype and c.relname <> 'jobq_migration' order by 1`)
	require.NoError(t, err)
	columns, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.NotEmpty(t, columns)
	for _, column := range columns {
		require.Contains(t, string(page), "`"+column+"`")
	}
}
