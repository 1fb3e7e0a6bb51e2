package tests

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/jobq-dev/jobq/internal/db"
)

// admitBeside begins a claim of a hundred jobs that shares its turn.
func (q *queue) admitBeside() pgx.Tx {
	q.Helper()
	ctx := context.Background()
	tx, err := q.pool.Begin(ctx)
	require.NoError(q, err)
	q.Cleanup(func() { _ = tx.Rollback(ctx) })
	_, err = tx.Exec(ctx, "select jobq.queue_admit('default', 100, 100, true, true)")
	require.NoError(q, err)
	return tx
}

// lanesBeside goes on with such a claim, and returns the keys of which it has locked jobs.
func (q *queue) lanesBeside(tx pgx.Tx, kind string) []string {
	q.Helper()
	ctx := context.Background()
	_, err := tx.Exec(ctx, "select jobq.lane_claim('default', array[$1], 'beside', '1 min', false, false, 0, 0, false)", kind)
	require.NoError(q, err)
	rows, err := tx.Query(ctx, `select distinct p.partition_key from jobq.pending p
		where p.ctid = any(coalesce(nullif(current_setting('jobq_claim.places', true), ''), '{}')::tid[])`)
	require.NoError(q, err)
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(q, err)
	return keys
}

// sharing is a claim of many jobs that may go on beside others.
func sharing(owner string, count int) db.Exchange {
	exchange := keyed(owner, count)
	exchange.Sharing = true
	return exchange
}

// ready gives a queue so many keys of three jobs each, whose lanes are all ready.
func (q *queue) ready(keys int) {
	q.Helper()
	q.exec("select jobq.enqueue('k', partition_key => 'key ' || i % $1::integer) from generate_series(1, 3 * $1) i", keys)
	q.takeHints()
	q.exec("select jobq.turn_share('queue default', 1)") // the first to share a turn has it alone
}

// takeHints has all hints taken away by claims that find no job.
func (q *queue) takeHints() {
	q.Helper()
	exchange := keyed("w", 1)
	exchange.Claim.Kinds = []string{"none"}
	for q.number("select count(*) from jobq.lane_hint") > 0 {
		q.exchange(exchange)
	}
}

// Where many keys are ready, a claim takes from others than those of a claim under way, and waits for none; the
// hint of a job that comes to one of these stays until that has ended.
func TestClaimsBesideOneAnother(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.ready(400)
	hints, err := q.pool.Begin(ctx)
	require.NoError(t, err)
	_, err = hints.Exec(ctx, q.schema.SQL("select jobq.turn_take('hints default', 0)")) // so that the next claim does not take hints away
	require.NoError(t, err)
	tx := q.admitBeside()
	keys := q.lanesBeside(tx, "k")
	require.Len(t, keys, 50)
	require.NoError(t, hints.Commit(ctx))
	q.enqueueKeyed(keys[0], 1)
	q.enqueueKeyed("new", 1)
	answer := q.exchange(sharing("w", 100))
	require.Equal(t, 100, len(answer.Keyed))
	require.NotContains(t, perKey(answer.Keyed), keys[0])
	require.True(t, answer.KeysMore)
	require.Equal(t, keys[0], q.text("select string_agg(h.key, ', ') from jobq.lane_hint h"), "but for that of the new key")
	require.NoError(t, tx.Rollback(ctx))
	taken, _ := q.passOf(keyed("w", 100))
	require.Equal(t, 4, taken[keys[0]])
	require.Equal(t, 1, taken["new"])
	require.Zero(t, q.number("select count(*) from jobq.pending"))
	require.Zero(t, q.number("select count(*) from jobq.lane_hint"))
}

// A claim under way that shares its turn has nobody count what it is about to take: what has to be counted waits for it.
func TestNoLimitBesideClaimsThatShare(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]string{
		"limit of the queue": `{"max_running": 5}`, "rate": `{"rate_jobs": 1, "rate_period": "1 hour", "rate_burst": 5}`, "limit of the keys": `{"key_limit": 1}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			q := setUp(t)
			q.ready(400)
			tx := q.admitBeside()
			q.set(settings)
			answers := make(chan db.Exchanged, 1)
			go func() {
				answer, err := q.schema.Exchange(ctx, q.pool, func() db.Exchange { e := sharing("w", 100); e.HasLimits = true; return e }())
				if err == nil {
					answers <- answer
				}
				close(answers)
			}()
			require.Eventually(t, func() bool {
				return q.number(sessionsThatWait) == 1
			}, patience, time.Millisecond)
			if name == "limit of the keys" {
				q.lanesBeside(tx, "k")
				var taken int
				require.NoError(t, tx.QueryRow(ctx, "select count(*) from jobq.run").Scan(&taken))
				require.Zero(t, taken, "it is for a claim with a turn of its own")
			}
			require.NoError(t, tx.Commit(ctx))
			answer, isOurs := <-answers
			require.True(t, isOurs)
			require.LessOrEqual(t, len(answer.Keyed), 100)
			if name != "limit of the keys" {
				require.Equal(t, 5, len(answer.Keyed))
			}
			for key, count := range perKey(answer.Keyed) {
				require.Equal(t, 1, count, key)
			}
		})
	}
}

// Claims of a queue with groups of keys do not share their turn: not while lanes have turns of groups either, after the setting has gone.
func TestNoGroupsBesideClaimsThatShare(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.ready(400)
	shareable := func() int { return q.number("select jobq.turn_shareable('default')::integer") }
	require.Equal(t, 1, shareable())
	tx := q.admitBeside()
	q.set(`{"key_separator": "/"}`)
	require.Empty(t, q.lanesBeside(tx, "k"), "it is for a claim with a turn of its own")
	var taken int
	require.NoError(t, tx.QueryRow(ctx, "select count(*) from jobq.run").Scan(&taken))
	require.Zero(t, taken)
	require.NoError(t, tx.Commit(ctx))
	require.Zero(t, shareable())
	require.Len(t, q.exchange(sharing("w", 10)).Keyed, 10)
	q.set(`{"key_separator": null}`)
	require.Zero(t, shareable())
	require.Len(t, q.exchange(sharing("w", 10)).Keyed, 10)
	require.Equal(t, 1, shareable(), "its lanes have turns of the queue again")
}

// A key that is paused while claims share their turn gives nothing to those that begin later, and nobody waits for the claim
// that has locked it.
func TestPauseBesideClaimsThatShare(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.ready(400)
	first, second := q.admitBeside(), q.admitBeside()
	key := q.lanesBeside(first, "k")[0]
	q.keyAct("key_pause", key)
	_, err := second.Exec(ctx, "set local lock_timeout = '5s'")
	require.NoError(t, err)
	require.Empty(t, q.lanesBeside(second, "k"), "it is for a claim with a turn of its own")
	require.NoError(t, first.Rollback(ctx))
	require.NoError(t, second.Commit(ctx))
	taken, _ := q.passOf(sharing("w", 100))
	require.Len(t, taken, 399)
	require.NotContains(t, taken, key)
}

// What a claim has passed by, since another one had it locked and then took nothing of it, is found later.
func TestPassedByIsFound(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	ctx := context.Background()
	q.exec("select jobq.enqueue('other', partition_key => 'key ' || i) from generate_series(1, 410) i")
	q.takeHints()
	q.exec("select jobq.turn_share('queue default', 1)") // the first to share a turn has it alone
	q.exec("update jobq.lane set turn = substr(key, 5)::bigint where turn is not null")
	tx := q.admitBeside()
	require.Empty(t, q.lanesBeside(tx, "k"), "it has locked the first hundred, which have no job for it")
	locker, err := q.pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = locker.Rollback(ctx) }()
	_, err = locker.Exec(ctx, "select from jobq.pending where substr(partition_key, 5)::integer between 101 and 110 for update")
	require.NoError(t, err)
	exchange := sharing("w", 100)
	exchange.Claim.Kinds = []string{"other"}
	answer := q.exchange(exchange)
	require.Equal(t, 100, len(answer.Keyed))
	require.Positive(t, answer.LanePass.FromTurn, "it goes on behind those whose jobs are locked")
	require.NoError(t, tx.Commit(ctx))
	require.NoError(t, locker.Rollback(ctx))
	for answer.KeysMore {
		answer = q.exchange(pass(exchange, answer))
	}
	require.Zero(t, q.number("select count(*) from jobq.pending"))
}

// Many claim beside one another while jobs come and transactions commit late, keys are paused, and the queue gets a limit of its
// keys and loses it. Each job is claimed once, none while its key is paused, and when nobody finds more, none is left.
func TestManyClaimsBesideOneAnother(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	const keys, claimers, adders, rounds, paused = 400, 4, 3, 60, 5
	seed := rand.Uint64()
	name := func(key int) string { return fmt.Sprintf("%03d", key) }
	q.exec("select jobq.enqueue('k', partition_key => to_char(i % $1::integer, 'FM000')) from generate_series(1, 3000) i", keys)
	var mu sync.Mutex
	since := make(map[string]int) // which of a key's pauses is in effect
	seen := func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		copied := make(map[string]int, paused)
		for key, pause := range since {
			copied[key] = pause
		}
		return copied
	}
	claim := func(exchange db.Exchange) (db.Exchanged, error) {
		before := seen()
		answer, err := q.schema.Exchange(ctx, q.pool, exchange)
		after := seen()
		for _, job := range answer.Keyed {
			if pause := before[job.PartitionKey]; pause > 0 && after[job.PartitionKey] == pause {
				return answer, fmt.Errorf("job %d of key %s was claimed while that was paused", job.ID, job.PartitionKey)
			}
		}
		return answer, err
	}
	var group, adding errgroup.Group
	for i := range adders {
		random := rand.New(rand.NewPCG(seed, uint64(i))) // #nosec G404 -- a test
		adding.Go(func() error {
			for range rounds {
				err := pgx.BeginFunc(ctx, q.pool, func(tx pgx.Tx) error {
					_, err := tx.Exec(ctx, "select jobq.enqueue($1, partition_key => k) from unnest($2::text[]) k",
						[]string{"k", "other"}[random.IntN(2)], []string{name(random.IntN(keys)), name(random.IntN(keys)), name(random.IntN(keys))})
					if err == nil {
						_, err = tx.Exec(ctx, "select count(*) from jobq.pending") // it commits late
					}
					return err
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	adding.Go(func() error { // who pauses, and who limits
		random := rand.New(rand.NewPCG(seed, adders)) // #nosec G404 -- a test
		set := func(key string, pause int) { mu.Lock(); defer mu.Unlock(); since[key] = pause }
		for i := range rounds {
			key := name(random.IntN(paused))
			if seen()[key] > 0 {
				set(key, 0)
				q.keyAct("key_resume", key)
			} else {
				q.keyAct("key_pause", key)
				set(key, i+1)
			}
			if i%20 == 10 {
				q.set(`{"key_limit": 2}`)
				q.set(`{"key_limit": null}`)
			}
		}
		for key := range paused {
			set(name(key), 0)
			q.keyAct("key_resume", name(key))
		}
		return nil
	})
	added := make(chan struct{})
	shared := make([]int, claimers)
	for i := range claimers {
		group.Go(func() error {
			kinds := [][]string{{"k"}, {"other"}, {"k", "other"}, {"k", "other"}}[i]
			answer := db.Exchanged{KeysMore: true}
			for {
				last := false
				select {
				case <-added:
					// One that comes with ends and has not had its turn has not looked.
					last = !answer.KeysMore && answer.Admission.Blocked != db.BlockedByOthers
				default:
				}
				if last {
					return nil
				}
				exchange := pass(keyed(fmt.Sprint("worker ", i), 120), answer)
				exchange.Claim.Kinds = kinds
				if exchange.Sharing {
					shared[i]++
				}
				claimed, err := claim(ended(exchange, answer.Keyed...))
				if err != nil {
					return err
				}
				answer = claimed
			}
		})
	}
	group.Go(func() error { defer close(added); return adding.Wait() })
	require.NoError(t, group.Wait(), "seed %d", seed)
	require.Positive(t, shared[0]+shared[2]+shared[3], "they never were beside one another")
	require.Zero(t, q.number("select count(*) from jobq.pending"), "seed %d", seed)
	require.Equal(t, 3000+adders*rounds*3, q.number("select count(distinct id) from jobq.run"))
	require.Equal(t, 3000+adders*rounds*3, q.number("select count(*) from jobq.run"), "each once")
}
