package tests

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/jobq-dev/jobq/internal/db"
)

// later lets so much time pass for the rates of all keys.
func (q *queue) later(passed time.Duration) {
	q.Helper()
	q.exec("update jobq.lane set rate_ready_at = rate_ready_at - $1::interval, throttled_until = throttled_until - $1::interval", passed)
}

// idsOf are the ids of jobs.
func idsOf(jobs []db.KeyedJob) (ids []int64) {
	for _, job := range jobs {
		ids = append(ids, job.ID)
	}
	return ids
}

// A key starts its burst at once, then a job whenever one more may, in the order of its line and
// without an attempt more; others do not wait for it, nor do jobs without a key.
func TestKeyRate(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.set(`{"key_rate_jobs": 1, "key_rate_period": "1 h", "key_rate_burst": 2}`)
	q.enqueueKeyed("a", 5) // 1 to 5
	first := q.exchange(keyed("w", 10))
	require.ElementsMatch(t, []int64{1, 2}, idsOf(first.Keyed))
	require.False(t, first.KeysMore)
	require.True(t, first.HasKeyLimit, "nothing is claimed ahead")
	require.InDelta(t, time.Hour, first.KeysWait, float64(10*time.Minute))
	q.enqueueKeyed("b", 1)
	q.exec("select jobq.enqueue('k') from generate_series(1, 4)")
	next := q.exchange(mixed("w", 10))
	require.Equal(t, map[string]int{"b": 1}, perKey(next.Keyed))
	require.Len(t, next.Claimed, 4)
	require.InDelta(t, time.Hour, next.KeysWait, float64(10*time.Minute))

	const lane = "select count(*) from jobq.lane where key = 'a' and throttled_until is not null and ctid::text = $1"
	var place string
	require.NoError(t, q.pool.QueryRow(context.Background(), q.schema.SQL("select ctid::text from jobq.lane where key = 'a'")).Scan(&place))
	require.Equal(t, 1, q.number(lane, place))
	q.enqueueKeyed("a", 1) // 11
	require.Empty(t, q.exchange(keyed("w", 10)).Keyed)
	require.Zero(t, q.number("select count(*) from jobq.lane_hint"))
	require.Equal(t, 1, q.number(lane, place), "a hint has no claim look at a throttled key")
	q.later(time.Hour)
	third := q.exchange(keyed("w", 10)).Keyed
	require.Equal(t, []int64{3}, idsOf(third))
	require.Zero(t, third[0].Attempts)
	require.Empty(t, q.exchange(ended(keyed("w", 10), append(first.Keyed, third...)...)).Keyed, "an end leaves no more of a rate")
	q.later(10 * time.Hour)
	require.ElementsMatch(t, []int64{4, 5}, idsOf(q.exchange(keyed("w", 10)).Keyed), "no more than the burst, however long nothing started")
	q.later(time.Hour)
	require.Equal(t, []int64{11}, idsOf(q.exchange(keyed("w", 10)).Keyed))
	require.Zero(t, q.exchange(keyed("w", 10)).KeysWait, "nothing waits any more")
	require.Zero(t, q.number("select count(*) from jobq.attempt"))
}

// Over many claimers and any time, by the moments of the claims, no more jobs of a key start than
// the rate and its burst allow, beside a limit of the key, with ends of all ways; and what a claim that is rolled back
// has taken is free.
func TestKeyRateOverManyClaimers(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	const perSecond, burst, keys, each = 100, 5, 3, 80
	q.set(`{"key_rate_jobs": 100, "key_rate_period": "1 s", "key_rate_burst": 5, "key_limit": 4}`)
	q.exec("select jobq.enqueue('k', partition_key => 'key ' || i % $1::integer, max_attempts => 32767) from generate_series(1, $1 * $2::integer) i", keys, each)
	tx, err := q.pool.Begin(ctx)
	require.NoError(t, err)
	answer, err := q.schema.Exchange(ctx, tx, keyed("a", 100))
	require.NoError(t, err)
	require.Len(t, answer.Keyed, 4*keys)
	require.NoError(t, tx.Rollback(ctx))

	var left atomic.Int64
	left.Store(keys * each)
	var group errgroup.Group
	for i := range 4 {
		owner, random := fmt.Sprint("worker ", i), rand.New(rand.NewPCG(rand.Uint64(), 0)) // #nosec G404 -- a test
		group.Go(func() error {
			exchange := keyed(owner, 5)
			for left.Load() > 0 || exchange.Completions != nil {
				answer, err := q.schema.Exchange(ctx, q.pool, exchange)
				if err != nil {
					return err
				}
				exchange = keyed(owner, 5)
				for _, job := range answer.Keyed {
					exchange.EndedKeys = append(exchange.EndedKeys, job.PartitionKey)
					if random.IntN(4) == 0 {
						exchange.Endings = append(exchange.Endings, endingOf(job.JobClaimRow, []string{"released", "failed", "snoozed"}[random.IntN(3)]))
						continue
					}
					left.Add(-1)
					exchange.Completions = append(exchange.Completions, db.Completion{Slot: at(job.JobClaimRow), Kind: "k", OnRow: random.IntN(2) == 0})
				}
				if len(answer.Keyed) == 0 { // sooner than it is worth while
					if _, err := q.pool.Exec(ctx, "select pg_sleep($1)", min(answer.KeysWait, 40*time.Millisecond).Seconds()/4); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	require.Equal(t, keys*each, q.number("select count(*) from jobq.job where state = 'completed'"))
	q.withinKeyRate(perSecond, burst)
}

// withinKeyRate fails when more jobs of a key started between any two of its claims, both included, than the
// rate and its burst allow.
func (q *queue) withinKeyRate(perSecond, burst int) {
	q.Helper()
	require.Zero(q, q.number(`
		with start as (
			select x.key, l.claimed_at from (
					select j.id, j.partition_key as key, unnest(array(select a.lease_token from jobq.attempt a where a.job_id = j.id) || j.lease_token) as token from jobq.job j
				) x
				join (select id, claimed_at from jobq.lease union all select id, claimed_at from jobq.past_lease) l on l.id = x.token
		), c as (select key, claimed_at, count(*) as jobs from start group by key, claimed_at),
			s as (select key, claimed_at, jobs, sum(jobs) over (partition by key order by claimed_at) as total from c)
		select count(*) from s a join s b on b.key = a.key and b.claimed_at >= a.claimed_at
			where b.total - a.total + a.jobs > $1::integer * extract(epoch from b.claimed_at - a.claimed_at) + $2::integer`, perSecond, burst))
}

// A rate that is changed carries over how much of it each key has used, in jobs: neither is there
// a new burst, nor does a slow rate of before hold up a faster one. Without a rate, all throttled keys go on.
func TestChangedKeyRate(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.enqueueKeyed("a", 100)
	q.set(`{"key_rate_jobs": 1, "key_rate_period": "1 day", "key_rate_burst": 5}`)
	require.Len(t, q.exchange(keyed("w", 10)).Keyed, 5)
	q.set(`{"key_rate_jobs": 1, "key_rate_period": "1 hour", "key_rate_burst": 10}`)
	require.Len(t, q.exchange(keyed("w", 10)).Keyed, 5, "what the larger burst has more")
	q.set(`{"key_rate_burst": 7}`)
	answer := q.exchange(keyed("w", 10))
	require.Empty(t, answer.Keyed)
	require.InDelta(t, time.Hour, answer.KeysWait, float64(10*time.Minute), "it used as much as a burst has, and not more")
	q.set(`{"key_rate_jobs": 10, "key_rate_period": "1 hour", "key_rate_burst": 7}`)
	require.InDelta(t, 6*time.Minute, q.exchange(keyed("w", 10)).KeysWait, float64(time.Minute))
	q.set(`{"key_rate_jobs": null, "key_rate_period": null, "key_rate_burst": null}`)
	free := q.exchange(keyed("w", 10))
	require.Len(t, free.Keyed, 10)
	require.False(t, free.HasKeyLimit)
	require.Zero(t, q.number("select count(*) from jobq.lane where throttled_until is not null"))
}

// Very many keys are throttled when the rate is changed, or taken away: each claim lets a bounded number go on, and says
// that there are more.
func TestChangedRateOfManyKeys(t *testing.T) {
	t.Parallel()
	for change, later := range map[string]int{
		`{"key_rate_burst": 2}`: 1, `{"key_rate_period": "2 h"}`: 0, `{"key_rate_jobs": 1000000, "key_rate_period": "1 s"}`: 1,
		`{"key_rate_jobs": null, "key_rate_period": null, "key_rate_burst": null}`: 1,
	} {
		t.Run(change, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			q.set(`{"key_rate_jobs": 1, "key_rate_period": "1 h", "key_rate_burst": 1}`)
			q.exec("insert into jobq.pending (kind, partition_key) select 'k', 'key ' || i % 250 from generate_series(1, 500) i")
			require.Equal(t, 250, total(q.passOf(keyed("w", 90))))
			require.Equal(t, 250, q.number("select count(*) from jobq.lane where throttled_until is not null"))
			q.set(change)
			claim := q.exchange(keyed("w", 1))
			require.True(t, claim.KeysMore)
			require.GreaterOrEqual(t, q.number("select count(*) from jobq.lane where throttled_until is not null"), 150)
			require.Equal(t, 250*later, len(claim.Keyed)+total(q.passOf(keyed("w", 90))))
			require.Equal(t, later == 0, q.number("select count(*) from jobq.lane where throttled_until is not null") == 250)
		})
	}
}

func total(counts map[string]int, _ int) (jobs int) {
	for _, count := range counts {
		jobs += count
	}
	return jobs
}

// A key of which nothing waits keeps what it has used: it has not its whole burst again when jobs come. Its lane goes when its rate has
// nothing used any more, by a claim, or where nobody claims by the janitor.
func TestEmptyKeyKeepsItsRate(t *testing.T) {
	t.Parallel()
	for _, limit := range []string{"null", "3"} {
		for name, look := range map[string]func(q *queue){
			"claims": func(q *queue) { require.Empty(q, q.exchange(keyed("w", 10)).Keyed) },
			"prunes": func(q *queue) { q.prune(100) },
		} {
			t.Run(name+" with limit "+limit, func(t *testing.T) {
				t.Parallel()
				q := setUp(t)
				q.set(`{"key_rate_jobs": 1, "key_rate_period": "1 h", "key_rate_burst": 2, "key_limit": ` + limit + `}`)
				q.enqueueKeyed("a", 2)
				first := q.exchange(keyed("w", 10))
				require.Len(t, first.Keyed, 2)
				require.Zero(t, first.KeysWait, "no job waits for the rate")
				require.Empty(t, q.exchange(ended(keyed("w", 10), first.Keyed...)).Keyed)
				look(q)
				require.Equal(t, 1, q.lanes())
				q.later(90 * time.Minute)
				look(q)
				require.Equal(t, 1, q.lanes(), "a job of it would not start with the whole burst")
				q.enqueueKeyed("b", 1)
				require.Empty(t, q.exchange(ended(keyed("w", 10), q.exchange(keyed("w", 10)).Keyed...)).Keyed)
				look(q)
				require.Equal(t, 2, q.lanes())
				q.exec("update jobq.lane set rate_ready_at = rate_ready_at - interval '1 h' where key = 'b'")
				look(q)
				require.Equal(t, 1, q.lanes(), "nothing of it is used")
				q.enqueueKeyed("a", 3)
				answer := q.exchange(keyed("w", 10))
				require.Len(t, answer.Keyed, 1)
				require.InDelta(t, 30*time.Minute, answer.KeysWait, float64(10*time.Minute))
				q.exec("select jobq.delete_job(id) from jobq.pending")
				q.exchange(ended(keyed("w", 10), answer.Keyed...))
				q.later(10 * time.Hour)
				q.exchange(keyed("w", 10)) // which finds that no job waits
				look(q)
				require.Zero(t, q.lanes())
				q.enqueueKeyed("a", 3)
				require.Len(t, q.exchange(keyed("w", 10)).Keyed, 2)
			})
		}
	}
}

// Where the rate was taken away, what a key had used of it keeps no lane.
func TestLanesOfAnEarlierRateGo(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.set(`{"key_rate_jobs": 1, "key_rate_period": "30 days", "key_rate_burst": 1000}`)
	q.enqueueKeyed("a", 100)
	q.enqueueKeyed("b", 1)
	require.Len(t, q.exchange(keyed("w", 200)).Keyed, 101)
	q.prune(100)
	require.Equal(t, 2, q.lanes())
	q.set(`{"key_rate_jobs": null, "key_rate_period": null, "key_rate_burst": null}`)
	q.prune(100)
	require.Zero(t, q.lanes())
}

// A limit, an order and a rate of the keys hold beside one another, whichever of them was the last to keep a key waiting.
func TestKeyRateBesideLimitAndOrder(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"null", `"hold"`} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			q.set(`{"key_rate_jobs": 1, "key_rate_period": "1 h", "key_rate_burst": 2, "key_limit": 1, "key_order": ` + order + `}`)
			q.enqueueKeyed("a", 5)
			first := q.exchange(keyed("w", 10)).Keyed
			require.Equal(t, []int64{1}, idsOf(first), "one runs")
			second := q.exchange(ended(keyed("w", 10), first...)).Keyed
			require.Equal(t, []int64{2}, idsOf(second))
			answer := q.exchange(ended(keyed("w", 10), second...))
			require.Empty(t, answer.Keyed, "two have started")
			require.InDelta(t, time.Hour, answer.KeysWait, float64(10*time.Minute))
			q.later(10 * time.Hour)
			third := q.exchange(keyed("w", 10)).Keyed
			require.Equal(t, []int64{3}, idsOf(third))
			require.Empty(t, q.exchange(keyed("w", 10)).Keyed, "one runs")
			failed := keyed("w", 10)
			failed.Endings, failed.EndedKeys = []db.Ending{{Slot: at(third[0].JobClaimRow), Outcome: "failed", Error: "e", Delay: db.DelayOf(time.Hour), Started: true}}, []string{"a"}
			next := q.exchange(failed).Keyed
			if order != "null" {
				require.Empty(t, next, "it waits for the retry of its head")
				q.later(10 * time.Hour)
				require.Empty(t, q.exchange(keyed("w", 10)).Keyed)
				q.exec("update jobq.pending set run_at = now(), position = nextval('jobq.position_seq') where id = 3")
				require.Equal(t, []int64{3}, idsOf(q.exchange(keyed("w", 10)).Keyed))
				return
			}
			require.Equal(t, []int64{4}, idsOf(next))
			require.Empty(t, q.exchange(ended(keyed("w", 10), next...)).Keyed, "the rate")
		})
	}
}

// So it is with an order: the head of a key that comes when its rate is used up waits, and then starts.
func TestHeadOfAThrottledKeyWaits(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.set(`{"key_rate_jobs": 1, "key_rate_period": "1 h", "key_rate_burst": 1, "key_order": "stop"}`)
	q.enqueueKeyed("a", 1)
	require.Empty(t, q.exchange(ended(keyed("w", 10), q.exchange(keyed("w", 10)).Keyed...)).Keyed)
	q.enqueueKeyed("a", 2)
	answer := q.exchange(keyed("w", 10))
	require.Empty(t, answer.Keyed)
	require.InDelta(t, time.Hour, answer.KeysWait, float64(10*time.Minute))
	q.later(time.Hour)
	require.Equal(t, []int64{2}, idsOf(q.exchange(keyed("w", 10)).Keyed))
}

// A paused key is not throttled, and starts no job when it would be no more; when it goes on, its rate holds.
func TestPauseOfAThrottledKey(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.set(`{"key_rate_jobs": 1, "key_rate_period": "1 h", "key_rate_burst": 1}`)
	q.enqueueKeyed("a", 3)
	require.Len(t, q.exchange(keyed("w", 10)).Keyed, 1)
	q.exec("select jobq.act_key('test', 'key_pause', 'default', 'a', null)")
	paused := q.exchange(keyed("w", 10))
	require.Empty(t, paused.Keyed)
	require.Zero(t, paused.KeysWait)
	q.exec("select jobq.act_key('test', 'key_resume', 'default', 'a', null)")
	require.NotZero(t, q.exchange(keyed("w", 10)).KeysWait)
	q.exec("select jobq.act_key('test', 'key_pause', 'default', 'a', null)")
	q.exchange(keyed("w", 10))
	q.later(2 * time.Hour)
	require.Empty(t, q.exchange(keyed("w", 10)).Keyed)
	require.Empty(t, q.exchange(keyed("w", 10)).Keyed)
	q.exec("select jobq.act_key('test', 'key_resume', 'default', 'a', null)")
	require.Len(t, q.exchange(keyed("w", 10)).Keyed, 1)
}

// An end makes room in a key, whose next job has then used up its rate: idle workers look, since they are to learn when it goes on. Where the key was
// throttled before, they have.
func TestRoomOfAThrottledKeyIsNotified(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.set(`{"key_rate_jobs": 1, "key_rate_period": "1 h", "key_rate_burst": 3, "key_limit": 2}`)
	q.enqueueKeyed("a", 5)
	_, err := q.queries.WaitAnnounce(context.Background(), "default", 3600)
	require.NoError(t, err)
	hear := q.listener(db.TopicWork)
	var jobs []db.KeyedJob
	require.Empty(t, hear(func() { jobs = q.exchange(keyed("w", 10)).Keyed }))
	require.Len(t, jobs, 2)
	require.Equal(t, []string{"work default"}, hear(func() {
		answer := q.exchange(ended(keyed("w", 1), jobs[0]))
		require.Len(t, answer.Keyed, 1)
		require.NotZero(t, answer.KeysWait)
	}))
	require.Empty(t, hear(func() { require.Empty(t, q.exchange(ended(keyed("w", 10), jobs[1])).Keyed) }))
}

// At a fast rate a key gets a look when half of its burst may start, or what starts in 10 ms.
func TestFastKeyRate(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	for _, c := range []struct {
		step, burst, jobs int
	}{{1_000_000, 1, 1}, {1_000_000, 10, 1}, {20_000, 100, 1}, {10_000, 100, 1}, {1000, 100, 10}, {1000, 4, 2}, {1, 100_000, 10_000}, {1, 1, 1}} {
		require.Equal(t, c.jobs*c.step, q.number(`select extract(epoch from jobq.rate_again_at(t, $1, $2) + ($2::integer * $1::bigint) * interval '1 us' - t) * 1000000
			from (select timestamptz '2026-11-24 12:00:00+00' as t) t`, c.step, c.burst), "%+v", c)
	}
}
