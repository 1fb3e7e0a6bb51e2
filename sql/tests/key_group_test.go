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

// perGroup counts jobs by what their partition keys have before the slash.
func perGroup(jobs []db.KeyedJob) map[string]int {
	counts := make(map[string]int)
	for _, job := range jobs {
		group, _, _ := strings.Cut(job.PartitionKey, "/")
		counts[group]++
	}
	return counts
}

// enqueueGroup adds so many jobs of each of the keys NAME/1, NAME/2 and so on.
func (q *queue) enqueueGroup(name string, keys, jobs int) {
	q.Helper()
	q.exec("select jobq.enqueue('k', partition_key => $1 || '/' || i % $2::integer + 1) from generate_series(1, $2 * $3::integer) i", name, keys, jobs)
}

// started adds the jobs of an answer, by their groups.
func started(counts map[string]int, answer db.Exchanged) (jobs int) {
	for group, count := range perGroup(answer.Keyed) {
		counts[group] += count
		jobs += count
	}
	return jobs
}

// turnsAreClose checks that no group is ahead of another by more than this, in jobs of a group without a weight.
func turnsAreClose(t *testing.T, counts, weights map[string]int, jobs float64) {
	t.Helper()
	var turns []float64
	for group, weight := range weights {
		turns = append(turns, float64(counts[group])/float64(weight))
	}
	require.LessOrEqual(t, slices.Max(turns)-slices.Min(turns), jobs, "%v", counts)
}

// shareOut claims jobs, size at a time, until total have started, and checks that none of the groups is ever ahead of another one by more jobs.
func (q *queue) shareOut(size, total int, jobs float64, groups ...string) {
	q.Helper()
	weights, counts := make(map[string]int), make(map[string]int)
	for _, group := range groups {
		weights[group] = 1
	}
	for sum := 0; sum < total; {
		sum += started(counts, q.exchange(keyed("w", size)))
		turnsAreClose(q.T, counts, weights, jobs)
	}
}

// A tenant that spreads its jobs over many keys gains nothing by it where the queue has groups of keys: each group starts as many jobs, or
// as many times more as its weight says, whatever the sizes of claims, with a limit, an order or weights of the keys, and also where each end makes its key ready.
func TestGroupsOfKeysHaveEqualShares(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settings string
		weights  map[string]int // of groups, but for 1
		keys     map[string]int // weights of keys
		each     bool           // a lease for each job
	}{
		"no limit":          {settings: `{}`},
		"leases for each":   {settings: `{}`, each: true},
		"limit":             {settings: `{"key_limit": 2000}`},
		"small limit":       {settings: `{"key_limit": 40}`},
		"fast rate":         {settings: `{"key_rate_jobs": 100000, "key_rate_period": "1 s", "key_rate_burst": 100000}`},
		"weights of groups": {settings: `{}`, weights: map[string]int{"one": 3, "many": 2}},
		"weights of keys":   {settings: `{}`, keys: map[string]int{"many/1": 3, "many/200": 7, "some/2": 2}},
		"both weights":      {settings: `{"key_limit": 2000}`, weights: map[string]int{"some": 2}, keys: map[string]int{"many/3": 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			q.set(`{"key_separator": "/"}`)
			q.set(c.settings)
			weights := map[string]int{"many": 1, "some": 1, "one": 1}
			maps.Copy(weights, c.weights)
			for key, weight := range c.weights {
				q.weigh(key, weight)
			}
			for key, weight := range c.keys {
				q.weigh(key, weight)
			}
			q.enqueueGroup("many", 300, 10)
			q.enqueueGroup("some", 5, 400)
			q.enqueueKeyed("one", 3000)
			q.takeHints() // else claims learn of the last groups after some time
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 1)) // #nosec G404 -- sizes of claims
			counts := make(map[string]int)
			var last []db.KeyedJob
			for total := 0; total < 1500; {
				exchange := ended(keyed("w", 1+random.IntN(60)), last...)
				exchange.Claim.LeasePerJob = c.each
				answer := q.exchange(exchange)
				last = answer.Keyed
				require.NotEmpty(t, last)
				require.True(t, answer.KeysMore)
				total += started(counts, answer)
				turnsAreClose(t, counts, weights, 4+float64(slices.Max(append(slices.Collect(maps.Values(c.keys)), 0))))
			}
		})
	}
}

// Within a group, its keys take turns. A key without a separator is a group of its own, and so are jobs without a key.
func TestKeysOfAGroupTakeTurns(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]string{"no limit": `{}`, "limit": `{"key_limit": 100}`, "order": `{"key_order": "hold"}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			q.set(`{"key_separator": "::"}`)
			q.set(settings)
			q.weigh("a::2", 3)
			for _, key := range []string{"a::1", "a::2", "b::1::x", "b::1::y", "c:1"} {
				q.enqueueKeyed(key, 60)
			}
			q.takeHints()
			keys := make(map[string]int)
			var last []db.KeyedJob
			for range 48 {
				last = q.exchange(ended(keyed("w", 1), last...)).Keyed
				require.Len(t, last, 1)
				keys[last[0].PartitionKey]++
			}
			require.Equal(t, map[string]int{"a::1": 4, "a::2": 12, "b::1::x": 8, "b::1::y": 8, "c:1": 16}, keys)
			if name != "no limit" {
				return
			}
			q.exec("select jobq.enqueue('k', partition_key => k) from generate_series(1, 100), unnest('{a::1,a::2,b::1::x,b::1::y,c:1,null}'::text[]) k")
			plain := 0
			for range 240 {
				plain += len(q.exchange(mixed("w", 1)).Claimed)
			}
			require.InDelta(t, 240/4, plain, 40, "by lot, as many as of each group")
		})
	}
}

// Where more groups wait than a claim looks at, a large claim takes no more of those that it sees.
func TestSharesOfHundredsOfGroups(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.set(`{"key_separator": "/"}`)
	const groups = 250
	q.exec("select jobq.enqueue('k', partition_key => 'g' || i % $1::integer || '/1') from generate_series(1, 20 * $1) i", groups)
	q.takeHints()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1)) // #nosec G404 -- sizes of claims
	weights, counts := make(map[string]int), make(map[string]int)
	for i := range groups {
		weights[fmt.Sprint("g", i)] = 1
	}
	for total := 0; total < 10*groups; {
		total += started(counts, q.exchange(keyed("w", 1+random.IntN(800))))
		turnsAreClose(t, counts, weights, 2)
	}
}

// Of more keys than get a turn with one claim, those that wait for that are before nobody.
func TestGroupsOfManyKeysAtOnce(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.enqueueKeyed("b/1", 100)
	q.takeHints()
	q.enqueueGroup("a", 2500, 1)
	q.takeHints()
	q.set(`{"key_separator": "/"}`)
	q.shareOut(10, 100, 2, "a", "b")
}

// What a lane has not is for the next ones of its group, and what the group has not is for the others.
func TestWhatAGroupHasNotIsForOthers(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.set(`{"key_separator": "/"}`)
	q.exec("select jobq.enqueue(case when i <= 20 then 'other' else 'k' end, partition_key => 'late/' || i) from generate_series(1, 30) i")
	q.enqueueGroup("many", 60, 1)
	q.takeHints()
	require.Equal(t, map[string]int{"late": 5, "many": 5}, perGroup(q.exchange(keyed("w", 10)).Keyed), "twenty keys of late have nothing for it")
	require.Equal(t, map[string]int{"late": 5, "many": 25}, perGroup(q.exchange(keyed("w", 30)).Keyed), "late has no more")
}

// A group that had nothing begins where the others are: it neither catches up nor waits for what it had before.
func TestGroupThatComesLater(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.set(`{"key_separator": "/"}`)
	q.enqueueGroup("early", 200, 20)
	q.shareOut(7, 1000, 0, "early")
	q.enqueueGroup("late", 3, 500)
	q.shareOut(7, 600, 12, "early", "late")
	q.exec("delete from jobq.pending where partition_key like 'late%'")
	q.shareOut(7, 700, 0, "early")
	q.enqueueGroup("late", 400, 2)
	q.takeHints()
	q.shareOut(7, 600, 12, "early", "late")
}

// Each end of a job makes its key ready once more where keys have a limit, though nothing of it may be left: that is no turn of its group.
func TestEmptyKeysCostTheirGroupNothing(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.set(`{"key_separator": "/", "key_limit": 1}`)
	q.enqueueGroup("deep", 20, 100)
	q.takeHints()
	counts := make(map[string]int)
	var last []db.KeyedJob
	for keys := 0; counts["single"]+counts["deep"] < 1200; {
		for ; keys < counts["single"]+30; keys++ { // thirty keys of one job each wait at any time
			q.enqueueKeyed(fmt.Sprint("single/", keys), 1)
		}
		answer := q.exchange(ended(keyed("w", 9), last...))
		last = answer.Keyed
		started(counts, answer)
		turnsAreClose(t, counts, map[string]int{"single": 1, "deep": 1}, 12)
	}
}

// What is deleted before it has started is no turn of its group either, once claims have looked at its keys.
func TestDeletedJobsCostTheirGroupNothing(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.set(`{"key_separator": "/"}`)
	q.enqueueGroup("deleted", 600, 1)
	q.takeHints()
	q.exec("delete from jobq.pending")
	q.passOf(keyed("w", 10))
	require.Equal(t, 1, q.number("select count(*) from jobq.lane"))
	q.enqueueGroup("deleted", 200, 1)
	q.enqueueGroup("other", 1, 300)
	q.takeHints()
	q.shareOut(10, 300, 4, "deleted", "other")
}

// When the setting changes, lanes get other turns, a thousand with a claim: no claim does more, and none is lost.
func TestGroupsThatComeAndGo(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	const keys = 2500
	q.enqueueGroup("a", keys, 3)
	q.takeHints()
	ofGroups := func() int {
		return q.number("select count(*) from jobq.lane where turn >= jobq.group_turn_first()")
	}
	require.Zero(t, ofGroups())
	taken := 0
	claim := func() {
		answer := q.exchange(keyed("w", 10))
		require.NotEmpty(t, answer.Keyed)
		require.True(t, answer.KeysMore)
		taken += len(answer.Keyed)
	}
	for _, separator := range []string{`"/"`, `null`, `"/"`, `":"`, `null`} {
		q.set(`{"key_separator": ` + separator + `}`)
		grouped := ofGroups()
		for range 3 {
			claim()
			require.LessOrEqual(t, max(ofGroups()-grouped, grouped-ofGroups()), 1010)
			grouped = ofGroups()
		}
	}
	require.Zero(t, ofGroups())
	require.Zero(t, q.number("select count(*) from jobq.key_group"))
	require.Zero(t, q.number("select count(*) from jobq.lane where group_clock is not null"))
	q.set(`{"key_separator": "/"}`)
	rest, _ := q.passOf(keyed("w", 100))
	for _, count := range rest {
		taken += count
	}
	require.Equal(t, 3*keys, taken)
	require.Zero(t, q.number("select count(*) from jobq.lane where key <> ''"))
}

// Many workers claim from groups at once, while jobs come, the setting comes and goes, and a group gets another weight: each job is claimed once, and none stays.
func TestManyClaimsFromGroups(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.set(`{"key_separator": "/"}`)
	const claimers, adders, rounds = 4, 2, 60
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var claiming, adding errgroup.Group
	for i := range adders {
		random := rand.New(rand.NewPCG(seed, uint64(i))) // #nosec G404 -- a test
		adding.Go(func() error {
			for range rounds {
				_, err := q.pool.Exec(ctx, "select jobq.enqueue($1, partition_key => $2 || '/' || j % 7) from generate_series(1, 9) j",
					[]string{"k", "other"}[random.IntN(2)], fmt.Sprint(random.IntN(30)))
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	adding.Go(func() error {
		for i := range rounds {
			q.set([]string{`{"key_separator": null}`, `{"key_separator": "/"}`, `{"key_limit": 3}`, `{"key_limit": null}`}[i%4])
			q.weigh("7", 1+i%5)
		}
		return nil
	})
	added := make(chan struct{})
	var mu sync.Mutex
	claimed := make(map[int64]int)
	for i := range claimers {
		claiming.Go(func() error {
			kinds := [][]string{{"k"}, {"other"}, {"k", "other"}, {"k", "other"}}[i]
			answer := db.Exchanged{KeysMore: true}
			for {
				last := false
				select {
				case <-added:
					last = !answer.KeysMore
				default:
				}
				if last {
					return nil
				}
				exchange := ended(pass(keyed(fmt.Sprint("worker ", i), 12), answer), answer.Keyed...)
				exchange.Claim.Kinds = kinds
				var err error
				if answer, err = q.schema.Exchange(ctx, q.pool, exchange); err != nil {
					return err
				}
				mu.Lock()
				for _, job := range answer.Keyed {
					claimed[job.ID]++
				}
				mu.Unlock()
			}
		})
	}
	require.NoError(t, adding.Wait())
	close(added)
	require.NoError(t, claiming.Wait())
	q.passOf(keyed("last", 50)) // a claimer of one kind may have ended before the other's hint
	kinds := keyed("last", 50)
	kinds.Claim.Kinds = []string{"other"}
	q.passOf(kinds)
	require.Zero(t, q.number("select count(*) from jobq.pending"))
	for id, times := range claimed {
		require.Equal(t, 1, times, "job %d", id)
	}
}

// Groups that have had nothing for long are forgotten, by claims, and by the janitor where nobody claims.
func TestForgottenGroups(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.set(`{"key_separator": "/"}`)
	q.exec("select jobq.enqueue('k', partition_key => i || '/1') from generate_series(1, 300) i")
	q.passOf(keyed("w", 100))
	groups := func() int { return q.number("select count(*) from jobq.key_group") }
	require.Equal(t, 300, groups())
	q.enqueueKeyed("busy/1", 3000)
	for groups() > 1 {
		require.NotEmpty(t, q.exchange(keyed("w", 100)).Keyed)
	}
	q.exec("delete from jobq.pending")
	q.passOf(keyed("w", 100))
	require.Equal(t, 1, q.number("select count(*) from jobq.lane"))
	require.Equal(t, 1, groups())
	q.exec("select * from jobq.lane_prune('', '', 0, 100)")
	q.exec("update jobq.lane set looked_at = now() - interval '25 hours'")
	for range 2 { // what a call takes away is there until the next
		q.exec("select * from jobq.lane_prune('', '', 0, 100)")
	}
	require.Zero(t, groups())
	require.Zero(t, q.number("select count(*) from jobq.lane"))
}
