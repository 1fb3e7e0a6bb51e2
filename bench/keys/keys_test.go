//go:build prototype

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jobq-dev/jobq/internal/sleep"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/jobq-dev/jobq/bench/stage"
)

var shared *bed

func TestMain(m *testing.M) {
	ctx := context.Background()
	server, err := stage.Start(ctx, stage.Config{Fleeting: true})
	if err == nil {
		shared, err = newBed(ctx, server.Admin)
	}
	if err != nil {
		panic(err)
	}
	code := m.Run()
	server.Stop(ctx)
	os.Exit(code)
}

// setUp empties the queue and gives it settings, as a row of proto.queue without its name.
func setUp(t *testing.T, settings string) *bed {
	t.Helper()
	require.NoError(t, shared.empty(context.Background(), keyCase{queue: settings}))
	return shared
}

func (b *bed) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	_, err := b.pool.Exec(context.Background(), sql, args...)
	require.NoError(t, err)
}

func (b *bed) add(t *testing.T, key string, count int) {
	t.Helper()
	b.exec(t, "insert into proto.pending (kind, partition_key) select 'bench', $1 from generate_series(1, $2::integer)", key, count)
}

func (b *bed) proto(owner string, kinds ...string) *proto {
	if kinds == nil {
		kinds = []string{"bench"}
	}
	return &proto{conn: b.pool, owner: owner, kinds: kinds}
}

// claim is an exchange that must succeed.
func claim(t *testing.T, p *proto, ended []job, count int) map[string]int {
	t.Helper()
	claimed, _, err := p.exchange(context.Background(), ended, count)
	require.NoError(t, err)
	return perKey(claimed)
}

// No more jobs of a key run than its limit, whoever claims, while jobs come, end with and without another claim, and claims are rolled back.
// At the end none is left, although no lane wakes by its time within the test: no lane sleeps for ever.
func TestLimitOverManyClaimers(t *testing.T) {
	ctx := context.Background()
	for _, limit := range []int{1, 3} {
		b := setUp(t, fmt.Sprintf("%d, null, null, null, null", limit))
		const keys, first, more = 12, 300, 300
		for i := range first {
			b.add(t, fmt.Sprint("key ", i%keys), 1)
		}
		var left atomic.Int64
		left.Store(first + more)
		var group errgroup.Group
		group.Go(func() error {
			for i := range more {
				if _, err := b.pool.Exec(ctx, "insert into proto.pending (kind, partition_key) values ('bench', $1)", fmt.Sprint("key ", rand.IntN(keys))); err != nil {
					return fmt.Errorf("insert %d: %w", i, err)
				}
			}
			return nil
		})
		for i := range 5 {
			group.Go(func() error { return b.wander(ctx, fmt.Sprint("w", i), limit, &left) })
		}
		require.NoError(t, group.Wait())
		var open int
		require.NoError(t, b.pool.QueryRow(ctx, "select count(*) from (select from proto.pending union all select from proto.lease) x").Scan(&open))
		require.Zero(t, open)
	}
}

// wander claims, sometimes rolls back, and ends jobs at random, until none is left.
func (b *bed) wander(ctx context.Context, owner string, limit int, left *atomic.Int64) error {
	p := b.proto(owner)
	var running []job
	began := time.Now()
	for left.Load() > 0 {
		if time.Since(began) > 90*time.Second {
			return fmt.Errorf("%d jobs are left", left.Load())
		}
		if rand.IntN(10) == 0 {
			tx, err := b.pool.Begin(ctx)
			if err != nil {
				return err
			}
			_, _, err = (&proto{conn: tx, owner: owner, kinds: p.kinds}).exchange(ctx, nil, 5)
			if err := tx.Rollback(ctx); err != nil {
				return err
			}
			if err != nil {
				return err
			}
		}
		rand.Shuffle(len(running), func(i, j int) { running[i], running[j] = running[j], running[i] })
		n := rand.IntN(len(running) + 1)
		count := rand.IntN(8)
		claimed, _, err := p.exchange(ctx, running[:n], count)
		if err != nil {
			return err
		}
		left.Add(-int64(n))
		running = append(slices.Clone(running[n:]), claimed...)
		var over int
		if err := b.pool.QueryRow(ctx, `select count(*) from (select from proto.lease group by key
			having sum(cardinality(job_ids) - cardinality(ended_slots)) > $1) x`, limit).Scan(&over); err != nil {
			return err
		}
		if over > 0 {
			return fmt.Errorf("%d keys have more than %d running jobs", over, limit)
		}
	}
	return nil
}

// Shares follow the weights, whatever the size of the claims.
func TestSharesFollowWeights(t *testing.T) {
	for _, count := range []int{1, 3, 10, 100} {
		b := setUp(t, "null, null, null, null, null")
		b.exec(t, "insert into proto.key_weight values ('default', 'a', 3)")
		for _, key := range []string{"a", "b", "c"} {
			b.add(t, key, 1500)
		}
		p, shares, total := b.proto("w"), make(map[string]int), 0
		for total < 500 || total < 5*count {
			for key, n := range claim(t, p, nil, count) {
				shares[key] += n
				total += n
			}
		}
		require.InDelta(t, 0.6, float64(shares["a"])/float64(total), 0.03, "%d: %v", count, shares)
		require.InDelta(t, 0.2, float64(shares["b"])/float64(total), 0.03, "%d: %v", count, shares)
		b.add(t, "late", 200) // does not catch up, and does not wait
		shares, total = make(map[string]int), 0
		for total < 8*count+40 {
			for key, n := range claim(t, p, nil, count) {
				shares[key] += n
				total += n
			}
			if shares["late"] >= 180 {
				break
			}
		}
		require.InDelta(t, 1.0/6, float64(shares["late"])/float64(total), 0.06, "%d: %v", count, shares)
	}
}

// Groups have equal shares, however many keys they have; a weight of a group counts; so do a limit and an empty key of one.
func TestGroupsHaveEqualShares(t *testing.T) {
	for _, count := range []int{1, 10, 100} {
		b := setUp(t, "null, null, null, null, '/'")
		for i := range 40 {
			b.add(t, fmt.Sprint("big/", i), 100)
		}
		b.add(t, "small/1", 2000)
		b.add(t, "alone", 2000)
		p, shares, total := b.proto("w"), make(map[string]int), 0
		for total < 600 {
			for key, n := range claim(t, p, nil, count) {
				name, _, _ := strings.Cut(key, "/")
				shares[name] += n
				total += n
			}
		}
		for name, n := range shares {
			require.InDelta(t, 1.0/3, float64(n)/float64(total), 0.04, "%d: %s of %v", count, name, shares)
		}
		b.exec(t, "insert into proto.key_weight values ('default', 'small', 2)")
		b.add(t, "late/1", 1000)
		shares, total = make(map[string]int), 0
		for total < 600 {
			for key, n := range claim(t, p, nil, count) {
				name, _, _ := strings.Cut(key, "/")
				shares[name] += n
				total += n
			}
		}
		require.InDelta(t, 0.4, float64(shares["small"])/float64(total), 0.05, "%d: %v", count, shares)
		require.InDelta(t, 0.2, float64(shares["late"])/float64(total), 0.05, "%d: %v", count, shares)
	}
}

// Over several claimers and any time no more jobs of a key start than the rate and its burst allow, and the rate is reached.
func TestRateOverManyClaimers(t *testing.T) {
	ctx := context.Background()
	b := setUp(t, "null, '20 ms', 3, null, null")
	const keys, each = 3, 60
	for i := range keys {
		b.add(t, fmt.Sprint("key ", i), each)
	}
	var mutex sync.Mutex
	starts := make(map[string][]time.Time)
	var left atomic.Int64
	left.Store(keys * each)
	began := time.Now()
	var group errgroup.Group
	for i := range 4 {
		group.Go(func() error {
			p := b.proto(fmt.Sprint("w", i))
			var running []job
			for left.Load() > 0 && time.Since(began) < time.Minute {
				claimed, _, err := p.exchange(ctx, running, 5)
				if err != nil {
					return err
				}
				mutex.Lock()
				for _, j := range claimed {
					starts[j.key] = append(starts[j.key], j.StartedAt.Time)
				}
				mutex.Unlock()
				left.Add(-int64(len(claimed)))
				running = claimed
				if len(claimed) == 0 {
					_ = sleep.For(ctx, min(max(p.wait, time.Millisecond), 5*time.Millisecond)) // a poll, as a worker's
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	require.Zero(t, left.Load())
	for key, at := range starts {
		slices.SortFunc(at, time.Time.Compare)
		for i := range at {
			for j := i; j < len(at); j++ {
				allowed := 3 + at[j].Sub(at[i]).Seconds()/0.020
				require.LessOrEqual(t, float64(j-i+1), allowed+0.0001, "%s: jobs %d to %d", key, i, j)
			}
		}
	}
}

// The jobs of a key start in order, and one at a time, while heads fail and wait for their retries.
func TestOrderOverManyClaimers(t *testing.T) {
	ctx := context.Background()
	b := setUp(t, "1, null, null, 'hold', null")
	const keys, each = 4, 25
	for i := range keys {
		b.add(t, fmt.Sprint("key ", i), each)
	}
	var left atomic.Int64
	left.Store(keys * each)
	var mutex sync.Mutex
	done := make(map[string]int64)
	retries := atomic.Int64{}
	var group errgroup.Group
	group.Go(func() error { // the janitor
		for left.Load() > 0 {
			if _, err := b.pool.Exec(ctx, "update proto.pending set position = nextval('jobq.position_seq') where position is null and run_at <= now()"); err != nil {
				return err
			}
			_ = sleep.For(ctx, 5*time.Millisecond) // between its passes
		}
		return nil
	})
	for i := range 4 {
		group.Go(func() error {
			p := b.proto(fmt.Sprint("w", i))
			var running []job
			for began := time.Now(); left.Load() > 0; {
				if time.Since(began) > time.Minute {
					return fmt.Errorf("%d jobs are left", left.Load())
				}
				claimed, _, err := p.exchange(ctx, running, 3)
				if err != nil {
					return err
				}
				running = nil
				for _, j := range claimed {
					mutex.Lock()
					last := done[j.key]
					mutex.Unlock()
					if j.ID <= last {
						return fmt.Errorf("job %d of %s starts after %d", j.ID, j.key, last)
					}
					if rand.IntN(4) == 0 {
						if _, err := b.pool.Exec(ctx, failSQL, j.ID, j.LeaseToken, false); err != nil {
							return err
						}
						retries.Add(1)
						continue
					}
					mutex.Lock()
					done[j.key] = j.ID
					mutex.Unlock()
					left.Add(-1)
					running = append(running, j)
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	require.Positive(t, retries.Load())
}

// A head that waits for its retry lets the next job run with pass; one that failed for good stops its key with stop.
func TestOrderOfAFailedHead(t *testing.T) {
	ctx := context.Background()
	for order, next := range map[string]int{"hold": 0, "pass": 1, "stop": 0} {
		b := setUp(t, fmt.Sprintf("1, null, null, '%s', null", order))
		b.add(t, "a", 3)
		p := b.proto("w")
		claimed, _, err := p.exchange(ctx, nil, 5)
		require.NoError(t, err)
		require.Len(t, claimed, 1)
		b.exec(t, failSQL, claimed[0].ID, claimed[0].LeaseToken, false)
		require.Len(t, claim(t, p, nil, 5), next, order)
	}
	b := setUp(t, "1, null, null, 'stop', null")
	b.add(t, "a", 3)
	p := b.proto("w")
	claimed, _, err := p.exchange(ctx, nil, 5)
	require.NoError(t, err)
	b.exec(t, failSQL, claimed[0].ID, claimed[0].LeaseToken, true)
	require.Empty(t, claim(t, p, nil, 5))
	b.exec(t, "delete from proto.run where state = 'failed'")
	b.exec(t, "insert into proto.lane_hint (queue, key) values ('default', 'a')")
	require.Len(t, claim(t, p, nil, 5), 1)
}

// A paused key gives nothing, whatever comes for it, and goes on when it is resumed.
func TestPausedKey(t *testing.T) {
	b := setUp(t, "null, null, null, null, null")
	b.add(t, "a", 3)
	b.add(t, "b", 3)
	p := b.proto("w")
	require.Equal(t, map[string]int{"a": 1, "b": 1}, claim(t, p, nil, 2))
	b.exec(t, "insert into proto.paused_key values ('default', 'a')")
	require.Equal(t, map[string]int{"b": 2}, claim(t, p, nil, 10))
	b.add(t, "a", 1)
	require.Empty(t, claim(t, p, nil, 10))
	b.exec(t, "delete from proto.paused_key")
	b.exec(t, "insert into proto.lane_hint (queue, key) values ('default', 'a')")
	require.Equal(t, map[string]int{"a": 3}, claim(t, p, nil, 10))
}

// A worker finds its kind behind many keys that have none of it, and these keep their ranks.
func TestKindsBehindOtherKeys(t *testing.T) {
	ctx := context.Background()
	b := setUp(t, "null, null, null, null, null")
	b.exec(t, "insert into proto.pending (kind, partition_key) select 'other', 'key ' || i from generate_series(1, 4000) i")
	b.add(t, "mine", 2)
	p, other := b.proto("w"), b.proto("o", "other")
	found := 0
	for claims := 0; found < 2; claims++ {
		require.Less(t, claims, 600)
		claimed, more, err := p.exchange(ctx, nil, 10)
		require.NoError(t, err)
		found += len(claimed)
		_ = more
	}
	total := 0
	for range 100 {
		total += len(claim(t, other, nil, 40))
	}
	require.Equal(t, 4000, total)
}

func TestEmptyTablesWithGenericPlans(t *testing.T) {
	ctx := context.Background()
	b := setUp(t, "1, null, null, null, null")
	p := b.proto("w")
	conn, err := b.pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	tx, err := conn.Begin(ctx)
	require.NoError(t, err)
	_ = tx.Rollback(ctx)
	p.conn = conn
	for range 3 {
		require.Empty(t, claim(t, p, nil, 1000)) // the plan is made now
	}
	b.exec(t, "insert into proto.pending (kind, partition_key) select 'bench', 'key ' || i % 5000 from generate_series(1, 50000) i")
	var worst time.Duration
	var running []job
	for range 6 {
		began := time.Now()
		running, _, err = p.exchange(ctx, running, 1000)
		require.NoError(t, err)
		require.Len(t, running, 1000)
		worst = max(worst, time.Since(began))
	}
	t.Log("the slowest claim of 1,000 took", worst)
	require.Less(t, worst, 5*time.Second)
}
