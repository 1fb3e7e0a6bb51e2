package tests

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/jobq-dev/jobq/internal/db"
)

// weigh gives a partition key a weight, and returns the id in the audit.
func (q *queue) weigh(key string, weight int) (audit int) {
	q.Helper()
	return q.number("select coalesce((select a.audit from jobq.act_key_weight('me', 'default', $1, $2, null) a), 0)", key, weight)
}

// fairShares checks that of the turns of any two keys, a turn being as many jobs as the weight says, none has begun while
// another key has yet to begin the one before. It holds at every moment while all of them have jobs waiting.
func fairShares(t *testing.T, started, weights map[string]int) {
	t.Helper()
	for a, weight := range weights {
		for b, other := range weights {
			begun, over := (started[a]+weight-1)/weight, started[b]/other
			require.LessOrEqual(t, begun, over+1, "turns of %s that have begun, and of %s that are over: %v started", a, b, started)
		}
	}
}

// A key of weight 3 starts three jobs where another one starts one, also where each claim is of one job.
func TestWeightOfKeys(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]string{"no limit": `{}`, "limit": `{"key_limit": 100}`, "order": `{"key_order": "hold"}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			if name != "no limit" {
				q.set(settings)
			}
			require.Positive(t, q.weigh("a", 3))
			require.Zero(t, q.weigh("a", 3), "already")
			for _, key := range []string{"a", "b", "c"} {
				q.enqueueKeyed(key, 40)
			}
			var order strings.Builder
			var last []db.KeyedJob
			next := func() {
				last = q.exchange(ended(keyed("w", 1), last...)).Keyed
				require.Len(t, last, 1)
				order.WriteString(last[0].PartitionKey)
			}
			for range 10 {
				next()
			}
			require.Contains(t, []string{"aaabcaaabc", "aaacbaaacb"}, order.String()[:10], "in the order in which their hints were read")
			q.weigh("a", 1)
			q.weigh("b", 2)
			for range 9 {
				next()
			}
			got := order.String()[10:]
			require.Equal(t, []int{2, 4, 2}, []int{strings.Count(got[:8], "a"), strings.Count(got[:8], "b"), strings.Count(got[:8], "c")}, got)
			require.Contains(t, got, "bb")
		})
	}
}

// However large the claims are, and whether leases are for each job, the shares of keys follow their weights to within one turn.
func TestSharesFollowWeights(t *testing.T) {
	t.Parallel()
	weights := map[string]int{"a": 7, "b": 3, "c": 1, "d": 1}
	for name, settings := range map[string]string{"no limit": `{}`, "limit": `{"key_limit": 10000}`} {
		for _, each := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, each %t", name, each), func(t *testing.T) {
				t.Parallel()
				q := setUp(t)
				if name != "no limit" {
					q.set(settings)
				}
				for key, weight := range weights {
					q.enqueueKeyed(key, 60*weight)
					if weight > 1 {
						q.weigh(key, weight)
					}
				}
				seed := rand.Uint64()
				t.Logf("seed %d", seed)
				random := rand.New(rand.NewPCG(seed, 1)) // #nosec G404 -- sizes of claims
				started := make(map[string]int)
				sizes := []int{17, 8, 20, 26, 39} // with which shares that are counted again from lane to lane were wrong
				for total := 0; total < 500; {
					size := 1 + random.IntN(40)
					if len(sizes) > 0 {
						size, sizes = sizes[0], sizes[1:]
					}
					exchange := keyed("w", size)
					exchange.Claim.LeasePerJob = each
					answer := q.exchange(exchange)
					require.NotEmpty(t, answer.Keyed)
					require.True(t, answer.KeysMore)
					for key, count := range perKey(answer.Keyed) {
						started[key] += count
						total += count
					}
					fairShares(t, started, weights)
				}
			})
		}
	}
}

// A key that has begun a turn, and gives the rest of it and whole turns besides to a claim, has a whole turn next.
func TestWholeTurnsAfterABegunOne(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]string{"no limit": `{}`, "limit": `{"key_limit": 100}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			if name != "no limit" {
				q.set(settings)
			}
			q.weigh("a", 3)
			q.enqueueKeyed("a", 20)
			q.enqueueKeyed("b", 20)
			claim := func(count int) map[string]int { return perKey(q.exchange(keyed("w", count)).Keyed) }
			for claim(1)["a"] == 0 { //nolint:revive // until a turn of a has begun
			}
			require.Equal(t, map[string]int{"a": 5, "b": 2}, claim(7))
			for range 3 {
				require.Equal(t, map[string]int{"a": 1}, claim(1))
			}
			require.Equal(t, map[string]int{"b": 1}, claim(1))
		})
	}
}

// The shares hold over many claimers at once.
func TestWeightsOverManyClaimers(t *testing.T) {
	t.Parallel()
	weights := map[string]int{"a": 5, "b": 2, "c": 1}
	for name, settings := range map[string]string{"no limit": `{}`, "limit": `{"key_limit": 1000}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			if name != "no limit" {
				q.set(settings)
			}
			for key, weight := range weights {
				// At once, so that the first claim hears of all of them.
				q.exec("insert into jobq.pending (kind, queue, partition_key) select 'k', 'default', $1 from generate_series(1, $2::integer)", key, 150*weight)
				if weight > 1 {
					q.weigh(key, weight)
				}
			}
			var mu sync.Mutex
			started := make(map[string]int) // guarded by mu
			var group errgroup.Group
			for n := range 4 {
				group.Go(func() error {
					var last []db.KeyedJob
					for range 60 {
						exchange := ended(keyed(fmt.Sprintf("w%d", n), 1+rand.IntN(6)), last...)
						answer, err := q.schema.Exchange(context.Background(), q.pool, exchange)
						if err != nil {
							return err
						}
						last = answer.Keyed
						mu.Lock()
						for key, count := range perKey(last) {
							started[key] += count
						}
						mu.Unlock()
					}
					return nil
				})
			}
			require.NoError(t, group.Wait())
			t.Logf("%v", started)
			require.Greater(t, started["c"], 20)
			fairShares(t, started, weights)
		})
	}
}

// A limit of the keys goes on to hold. A key that is full before its turn is over gets the rest of it as soon as it is ready again.
func TestWeightsBesideALimit(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.set(`{"key_limit": 1}`)
	q.weigh("a", 4)
	others := []string{"b", "c", "d", "e", "f", "g", "h"}
	q.enqueueKeyed("a", 30)
	for _, key := range others {
		q.enqueueKeyed(key, 30)
	}
	claim := func(count int, over ...db.KeyedJob) (jobs []db.KeyedJob) {
		jobs = q.exchange(ended(keyed("w", count), over...)).Keyed
		require.Len(t, jobs, count)
		return jobs
	}
	running := claim(2)
	started := perKey(running)
	for range 6 * 11 { // a turn of all keys is 11 jobs; that which has run longest ends, and another one begins
		next := claim(1, running[0])
		require.NotEqual(t, running[1].PartitionKey, next[0].PartitionKey, "one at a time")
		running = []db.KeyedJob{running[1], next[0]}
		started[next[0].PartitionKey]++
	}
	t.Logf("%v", started)
	least := started[others[0]]
	for _, key := range others {
		least = min(least, started[key])
		require.GreaterOrEqual(t, started[key], 5)
		require.LessOrEqual(t, started[key], 7)
	}
	require.InDelta(t, 4*least, started["a"], 4)
}

// A worker that dies, and a claim that is rolled back, in the middle of a key's turn change nothing of it: once the lease is reaped, the
// key gets the rest of its turn, and the next keys theirs.
func TestWeightsAfterALostWorker(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.set(`{"key_limit": 1, "redelivery": "head"}`)
	q.weigh("a", 3)
	for _, key := range []string{"a", "b", "c"} {
		q.enqueueKeyed(key, 20)
	}
	claim := func(over ...db.KeyedJob) db.KeyedJob {
		jobs := q.exchange(ended(keyed("w", 1), over...)).Keyed
		require.Len(t, jobs, 1)
		return jobs[0]
	}
	last := claim()
	for last.PartitionKey == "a" { // until a turn of a is over
		last = claim(last)
	}
	for last.PartitionKey != "a" {
		last = claim(last)
	}
	tx, err := q.pool.Begin(ctx)
	require.NoError(t, err)
	_, err = q.schema.Exchange(ctx, tx, ended(keyed("w", 1), last))
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(ctx))
	last = claim(last)
	require.Equal(t, "a", last.PartitionKey, "the second of its turn")
	q.exec("update jobq.lease set expires_at = now() - interval '1 s' where id = $1", last.LeaseToken)
	q.reap()
	again := claim()
	require.Equal(t, last.ID, again.ID, "the third start of its turn")
	started := []string{claim(again).PartitionKey}
	require.NotEqual(t, "a", started[0], "whose turn is over")
}

// A pause in the middle of a turn ends it, and a key that goes on has one as before.
func TestPauseOfAKeyWithAWeight(t *testing.T) {
	t.Parallel()
	for name, settings := range keyPauseQueues {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			if name != "no limit" {
				q.set(settings)
			}
			q.weigh("a", 3)
			q.enqueueKeyed("a", 20)
			q.enqueueKeyed("b", 20)
			var last []db.KeyedJob
			next := func() string {
				last = q.exchange(ended(keyed("w", 1), last...)).Keyed
				require.Len(t, last, 1)
				return last[0].PartitionKey
			}
			for next() != "b" { //nolint:revive // until a turn of a begins
			}
			require.Equal(t, "a", next())
			q.keyAct("key_pause", "a")
			for range 3 {
				require.Equal(t, "b", next())
			}
			q.keyAct("key_resume", "a")
			var got strings.Builder
			for range 8 {
				got.WriteString(next())
			}
			require.Equal(t, 6, strings.Count(got.String(), "a"), got.String())
		})
	}
}

// Jobs without a key have the share of a key of weight 1.
func TestPlainJobsBesideWeights(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.weigh("a", 9)
	q.exec("select jobq.enqueue('k') from generate_series(1, 200)")
	q.enqueueKeyed("a", 200)
	answer := q.exchange(mixed("w", 100))
	require.Len(t, answer.Keyed, 90)
	require.Len(t, answer.Claimed, 10)
}

// A worker that has not the kinds of some keys, and so goes on in passes, shares by weights among the others.
func TestWeightsBesideOtherKinds(t *testing.T) {
	t.Parallel()
	weights := map[string]int{"a": 3, "b": 1}
	for name, settings := range map[string]string{"no limit": `{}`, "limit": `{"key_limit": 1000}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			if name != "no limit" {
				q.set(settings)
			}
			q.weigh("a", 3)
			q.weigh("other", 5)
			q.exec("select jobq.enqueue('other', partition_key => 'other') from generate_series(1, 5)")
			require.Empty(t, q.exchange(keyed("w", 1)).Keyed, "it is found to have nothing, and is first in the turn from then on")
			q.enqueueKeyed("a", 200)
			q.enqueueKeyed("b", 200)
			started := make(map[string]int)
			var before db.Exchanged
			for range 60 {
				before = q.exchange(pass(keyed("w", 1+rand.IntN(4)), before))
				for key, count := range perKey(before.Keyed) {
					started[key] += count
				}
				fairShares(t, started, weights)
			}
			require.Equal(t, []string{"a", "b"}, slices.Sorted(maps.Keys(started)))
			require.Greater(t, started["b"], 10)
		})
	}
}

// Where more keys wait than a claim looks at, each has a turn before any has its second one, and a heavy one's is its weight.
func TestWeightsOfManyKeys(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]string{"no limit": `{}`, "limit": `{"key_limit": 1000}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			if name != "no limit" {
				q.set(settings)
			}
			const keys = 250
			q.weigh("key 7", 5)
			q.weigh("key 200", 2)
			q.exec("insert into jobq.pending (kind, queue, partition_key) select 'k', 'default', 'key ' || i % $1 from generate_series(1, $1 * 30::integer) i", keys)
			started := make(map[string]int)
			for total := 0; total < 2*(keys+5); {
				for key, count := range perKey(q.exchange(keyed("w", 20)).Keyed) {
					started[key] += count
					total += count
				}
			}
			require.Len(t, started, keys)
			for key, count := range started {
				weight := max(map[string]int{"key 7": 5, "key 200": 2}[key], 1)
				require.GreaterOrEqual(t, count, weight, key)
				require.LessOrEqual(t, count, 3*weight, key)
			}
		})
	}
}
