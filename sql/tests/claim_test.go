package tests

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/jobq-dev/jobq/internal/db"
)

// Many claimers at once get every job exactly once, and never more than they
// asked for.
func TestConcurrentClaims(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	const count, limit = 2000, 13
	q.exec("select jobq.enqueue('k', priority => i % 3) from generate_series(1, $1::integer) i", count)
	var group errgroup.Group
	var mu sync.Mutex
	claimed := make(map[int64]string)
	for i := range 8 {
		owner := fmt.Sprint("worker ", i)
		group.Go(func() error {
			for {
				answer, err := q.schema.Exchange(ctx, q.pool, db.Exchange{Owner: owner, Claim: &db.JobClaimParams{
					Lease: hour, Owner: owner, Queue: "default", Kinds: []string{"k"}, JobCount: limit, PassLocked: i%2 == 0,
				}})
				if err != nil {
					return err
				}
				if len(answer.Claimed) > limit {
					return fmt.Errorf("%d jobs claimed", len(answer.Claimed))
				}
				mu.Lock()
				for _, job := range answer.Claimed {
					if other, twice := claimed[job.ID]; twice {
						err = fmt.Errorf("job %d claimed by %s and %s", job.ID, other, owner)
					}
					claimed[job.ID] = owner
				}
				done := len(claimed) == count
				mu.Unlock()
				if err != nil || done {
					return err
				}
			}
		})
	}
	require.NoError(t, group.Wait())
	require.Equal(t, count, q.number("select count(*) from jobq.job where state = 'running'"))
	for id, owner := range claimed {
		if id%500 == 0 {
			require.Equal(t, 1, q.number("select count(*) from jobq.job where state = 'running' and id = $1 and lease_owner = $2", id, owner))
		}
	}
}

// Lower priority first, and within one priority by the place in the line;
// several kinds, and only those asked for.
func TestClaimOrder(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("select jobq.enqueue('k', priority => p) from unnest(array[5, -32768, 0, 32767, 0, -1]) with ordinality as x(p, i) order by i")
	var order []int64
	for range 6 {
		order = append(order, q.claim("a", 1)[0].ID)
	}
	require.Equal(t, []int64{2, 6, 3, 5, 1, 4}, order)

	q.exec("select jobq.enqueue(kind) from unnest(array['x', 'y', 'z', 'x']) as kind")
	claim := db.JobClaimParams{Lease: hour, Owner: "a", Queue: "default", Kinds: []string{"z", "x"}, JobCount: 10}
	require.Len(t, q.exchange(db.Exchange{Owner: "a", Claim: &claim}).Claimed, 3)
	claim.Kinds = []string{}
	require.Empty(t, q.exchange(db.Exchange{Owner: "a", Claim: &claim}).Claimed)
	require.Equal(t, 1, q.number("select count(*) from jobq.pending where kind = 'y'"))
}

// A claim whose snapshot was taken before a row changed must not act on the
// row as it was: neither when it was edited, nor when it was cancelled, nor
// when another had claimed and released it meanwhile. The claim is held up
// after its snapshot by a view in place of the table queue, which waits.
func TestRowChangesBetweenSnapshotAndLock(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change      func(q *queue)
		now, before []int64 // claimed by the delayed claim, and by the next
	}{
		"nothing":   {func(*queue) {}, []int64{1, 2, 3}, nil},
		"edited":    {func(q *queue) { q.exec("update jobq.pending set priority = 7 where id = 2") }, []int64{1, 3}, []int64{2}},
		"cancelled": {func(q *queue) { q.exec("select jobq.cancel(2)") }, []int64{1, 3}, nil},
		"other queue": {
			func(q *queue) { q.exec("update jobq.pending set queue = 'other' where id = 2") }, []int64{1, 3}, nil,
		},
		"claimed and released": {func(q *queue) {
			// As another worker would, without the view in its way.
			q.exec(`with taken as (delete from jobq.pending where id = 2 returning *)
				insert into jobq.pending (id, position, lease_token, kind) select id, position, lease_token + 1, kind from taken`)
		}, []int64{1, 3}, []int64{2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			q := setUp(t)
			q.exec("select jobq.enqueue('k') from generate_series(1, 3)")
			q.exec("alter table jobq.queue rename to queue_table")
			q.exec(`create function jobq.wait() returns timestamptz language plpgsql as
				$$ begin perform pg_advisory_xact_lock_shared(1); return null; end $$`)
			q.exec("create view jobq.queue as select 'default'::text as name, jobq.wait() as paused_at, null::integer as max_running, null::integer as rate_jobs")
			holder, err := q.pool.Begin(ctx)
			require.NoError(t, err)
			_, err = holder.Exec(ctx, "select pg_advisory_xact_lock(1)")
			require.NoError(t, err)

			claimed := make(chan []int64)
			go func() {
				answer, err := q.schema.Exchange(ctx, q.pool, db.Exchange{Owner: "a", Claim: &db.JobClaimParams{
					Lease: hour, Owner: "a", Queue: "default", Kinds: []string{"k"}, JobCount: 10,
				}})
				if err != nil {
					t.Error(err)
				}
				claimed <- ids(answer.Claimed)
			}()
			require.Eventually(t, func() bool {
				return q.number("select count(*) from pg_locks where locktype = 'advisory' and not granted and database = (select oid from pg_database where datname = current_database())") == 1
			}, eventually, tick)
			test.change(q)
			require.NoError(t, holder.Commit(ctx))
			require.ElementsMatch(t, test.now, <-claimed)
			require.ElementsMatch(t, test.before, ids(q.claim("a", 10)))
			require.Zero(t, q.number("select count(*) from jobq.job where state = 'running' group by id having count(*) > 1 union all select 0 limit 1"))
		})
	}
}

// A claim never waits for a row that another transaction has locked.
func TestClaimDoesNotWait(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.exec("select jobq.enqueue('k') from generate_series(1, 5)")
	tx, err := q.pool.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "select from jobq.pending where id in (1, 2) for update")
	require.NoError(t, err)
	require.ElementsMatch(t, []int64{3, 4}, ids(q.claim("a", 2)), "the limit counts what can be had")
	require.NoError(t, tx.Rollback(ctx))
	require.ElementsMatch(t, []int64{1, 2, 5}, ids(q.claim("a", 10)))
}

// The settings of the hot statements end with the exchange, so that they do
// not leak to others on the connection.
func TestHotSettingsDoNotLeak(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.exec("select jobq.enqueue('k')")
	conn, err := q.pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	settings := func(conn interface {
		QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	},
	) (settings string) {
		require.NoError(t, conn.QueryRow(ctx, `select string_agg(name || '=' || setting, ' ' order by name) from pg_settings
			where name like 'enable_%' or name in ('plan_cache_mode', 'jit', 'search_path')`).Scan(&settings))
		return settings
	}
	before := settings(conn)
	_, err = q.schema.Exchange(ctx, conn, db.Exchange{Owner: "a", Claim: &db.JobClaimParams{
		Lease: hour, Owner: "a", Queue: "default", Kinds: []string{"k"}, JobCount: 1,
	}})
	require.NoError(t, err)
	_, err = q.schema.ExtendLeases(ctx, conn, "a", nil)
	require.NoError(t, err)
	require.Equal(t, before, settings(conn))
}

func ids(jobs []db.JobClaimRow) []int64 {
	ids := make([]int64, len(jobs))
	for i, job := range jobs {
		ids[i] = job.ID
	}
	return ids
}
