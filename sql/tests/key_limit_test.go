package tests

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/jobq-dev/jobq/internal/db"
)

// Of each key no more run than the limit says, and an end makes room in its key alone.
func TestKeyLimit(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.set(`{"key_limit": 2}`)
	q.enqueueKeyed("a", 5)
	q.enqueueKeyed("b", 5)
	require.Empty(t, q.claim("plain", 10), "a claim that knows of no keys")
	first := q.exchange(keyed("w", 10)).Keyed
	require.Equal(t, map[string]int{"a": 2, "b": 2}, perKey(first))
	none := q.exchange(keyed("w", 10))
	require.Empty(t, none.Keyed)
	require.False(t, none.KeysMore)
	var over db.KeyedJob
	for _, job := range first {
		if job.PartitionKey == "a" {
			over = job
		}
	}
	require.Equal(t, map[string]int{"a": 1}, perKey(q.exchange(ended(keyed("w", 10), over)).Keyed))
	require.Equal(t, 2, q.number("select count(*) from jobq.run r join jobq.job j on j.id = r.id where r.partition_key = 'a' and j.state = 'running'"))
}

// Many claim and end in all ways at once. Never do more of a key run than the limit says,
// and at the end all of it is free again, and no lane is left.
func TestKeyLimitOverManyClaimers(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	const limit, claimers, rounds = 2, 6, 100
	q.set(`{"key_limit": 2}`)
	q.exec("select jobq.enqueue('k', partition_key => 'key ' || i % 3, max_attempts => 32767) from generate_series(1, 120) i")
	q.exec("select jobq.enqueue('k', max_attempts => 32767) from generate_series(1, 40) i")
	var mu sync.Mutex
	running := make(map[string]int)
	var group errgroup.Group
	for i := range claimers {
		owner, seed := fmt.Sprint("worker ", i), rand.Uint64()
		group.Go(func() error {
			random := rand.New(rand.NewPCG(seed, 0)) // #nosec G404 -- a test
			exchange := keyed(owner, 3)
			for range rounds {
				answer, err := q.schema.Exchange(ctx, q.pool, exchange)
				if err != nil {
					return fmt.Errorf("seed %d: %w", seed, err)
				}
				mu.Lock()
				for _, job := range answer.Keyed {
					running[job.PartitionKey]++
					if running[job.PartitionKey] > limit {
						err = fmt.Errorf("seed %d: %d of %s run", seed, running[job.PartitionKey], job.PartitionKey)
					}
				}
				mu.Unlock()
				if err != nil {
					return err
				}
				if _, err := q.pool.Exec(ctx, "select 1"); err != nil { // they run for a round trip
					return err
				}
				exchange = keyed(owner, 3)
				exchange.OnlyKeyed = random.IntN(3) == 0
				jobs := answer.Keyed
				for _, job := range answer.Claimed {
					jobs = append(jobs, db.KeyedJob{JobClaimRow: job})
				}
				mu.Lock()
				for _, job := range jobs {
					if job.PartitionKey != "" {
						running[job.PartitionKey]--
						exchange.EndedKeys = append(exchange.EndedKeys, job.PartitionKey)
					}
					switch random.IntN(5) {
					case 0:
						exchange.Completions = append(exchange.Completions, db.Completion{Slot: at(job.JobClaimRow), Kind: "k"})
					case 1:
						exchange.Completions = append(exchange.Completions, db.Completion{Slot: at(job.JobClaimRow), Kind: "k", OnRow: true})
					case 2:
						exchange.Endings = append(exchange.Endings, endingOf(job.JobClaimRow, "snoozed"))
					case 3:
						exchange.Endings = append(exchange.Endings, endingOf(job.JobClaimRow, "released"))
					default:
						exchange.Endings = append(exchange.Endings, endingOf(job.JobClaimRow, "failed"))
					}
				}
				mu.Unlock()
			}
			exchange.Claim = nil
			_, err := q.schema.Exchange(ctx, q.pool, exchange)
			return err
		})
	}
	require.NoError(t, group.Wait())
	require.Zero(t, q.number("select count(*) from jobq.lease"))
	q.exec("delete from jobq.pending")
	q.exchange(keyed("a", 10))
	require.Zero(t, q.number("select count(*) from jobq.lane where key <> ''"), "empty lanes go")
	for _, key := range []string{"key 0", "key 1", "key 2"} {
		q.enqueueKeyed(key, 5)
	}
	require.Equal(t, map[string]int{"key 0": 2, "key 1": 2, "key 2": 2}, perKey(q.exchange(keyed("a", 20)).Keyed), "all places are free again")
}

// A limit that is raised or taken away makes full keys ready, and one that is lowered holds
// for what starts from then on.
func TestKeyLimitChanges(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.set(`{"key_limit": 2}`)
	q.enqueueKeyed("a", 20)
	first := q.exchange(keyed("w", 10)).Keyed
	require.Len(t, first, 2)
	q.set(`{"key_limit": 5}`)
	first = append(first, q.exchange(keyed("w", 10)).Keyed...)
	require.Len(t, first, 5)
	q.set(`{"key_limit": 1}`)
	require.Empty(t, q.exchange(ended(keyed("w", 10), first[:4]...)).Keyed)
	require.Len(t, q.exchange(ended(keyed("w", 10), first[4])).Keyed, 1)
	q.set(`{"key_limit": null}`)
	require.Len(t, q.exchange(keyed("w", 10)).Keyed, 10)
}

// A queue that gets a limit of its keys, or gets it back, counts what was claimed meanwhile, and
// takes nothing before that is done, however much it is.
func TestKeyLimitCountsWhatRanBefore(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("insert into jobq.pending (kind, partition_key) select 'k', 'key ' || i % 3 from generate_series(1, 3000) i")
	q.exec("insert into jobq.pending (kind) select 'k' from generate_series(1, 10)")
	require.Len(t, q.claim("plain", 10), 10)
	var before []db.KeyedJob
	for range 5 { // leases
		before = append(before, q.exchange(keyed("w", 501)).Keyed...)
	}
	require.Equal(t, map[string]int{"key 0": 835, "key 1": 835, "key 2": 835}, perKey(before))
	q.exchange(ended(db.Exchange{Owner: "w", Queue: "default"}, before[0], before[1], before[2]))
	q.set(`{"key_limit": 840}`)
	claims := 1
	answer := q.exchange(keyed("w", 100))
	for ; len(answer.Keyed) == 0; claims++ {
		require.True(t, answer.KeysMore)
		require.True(t, answer.HasKeyLimit)
		require.Less(t, claims, 10)
		answer = q.exchange(pass(keyed("w", 100), answer))
	}
	require.Equal(t, 3, claims, "a thousand with each, and a lease at least")
	now := perKey(answer.Keyed)
	gone := perKey(before[:3])
	for key, count := range now {
		require.Equal(t, 5+gone[key], count, key)
	}
	none := q.exchange(keyed("w", 100))
	require.Empty(t, none.Keyed)
	require.False(t, none.KeysMore)

	q.set(`{"key_limit": null}`)
	free := q.exchange(keyed("w", 30))
	require.Len(t, free.Keyed, 30)
	require.False(t, free.HasKeyLimit)
	q.set(`{"key_limit": 900}`)
	taken, _ := q.passOf(keyed("w", 600))
	running := make(map[string]int)
	for key := range taken {
		running[key] = q.number("select count(*) from jobq.run r join jobq.job j on j.id = r.id where r.partition_key = $1 and j.state = 'running'", key)
	}
	require.Equal(t, map[string]int{"key 0": 900, "key 1": 900, "key 2": 900}, running)
}
