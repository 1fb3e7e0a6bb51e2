package db_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/jobq-dev/jobq/internal/db"
)

// keyed is a claim of up to so many jobs of a queue that has partition keys, and of those alone.
func keyed(owner string, count int) db.Exchange {
	exchange := limited(owner, count)
	exchange.HasLimits, exchange.HasKeys, exchange.OnlyKeyed = false, true, true
	return exchange
}

// mixed is a claim of jobs with and without keys.
func mixed(owner string, count int) db.Exchange {
	exchange := keyed(owner, count)
	exchange.OnlyKeyed = false
	return exchange
}

// ended adds to an exchange that these jobs have plainly succeeded.
func ended(exchange db.Exchange, jobs ...db.KeyedJob) db.Exchange {
	seen := make(map[string]bool)
	for _, job := range jobs {
		exchange.Completions = append(exchange.Completions, db.Completion{Slot: at(job.JobClaimRow), Kind: "k"})
		if !seen[job.PartitionKey] {
			seen[job.PartitionKey] = true
			exchange.EndedKeys = append(exchange.EndedKeys, job.PartitionKey)
		}
	}
	return exchange
}

// perKey counts jobs by their keys.
func perKey(jobs []db.KeyedJob) map[string]int {
	counts := make(map[string]int)
	for _, job := range jobs {
		counts[job.PartitionKey]++
	}
	return counts
}

// enqueueKeyed adds jobs with a partition key.
func (q *queue) enqueueKeyed(key string, count int) {
	q.Helper()
	q.exec("select jobq.enqueue('k', partition_key => $1) from generate_series(1, $2::integer)", key, count)
}

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

// A key with many jobs does not delay one with three: keys take turns.
func TestKeysTakeTurns(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.enqueueKeyed("big", 100)
	require.Len(t, q.exchange(keyed("w", 10)).Keyed, 10, "there is no other key")
	q.enqueueKeyed("small", 3)
	first := q.exchange(keyed("w", 4))
	require.Equal(t, map[string]int{"big": 2, "small": 2}, perKey(first.Keyed))
	require.True(t, first.KeysMore)
	require.Equal(t, 1, perKey(q.exchange(keyed("w", 2)).Keyed)["small"])
	for _, key := range []string{"c", "d", "e"} {
		q.enqueueKeyed(key, 10)
	}
	served := make(map[string]int)
	for range 12 {
		for key, count := range perKey(q.exchange(keyed("w", 1)).Keyed) {
			served[key] += count
		}
	}
	require.Equal(t, map[string]int{"big": 3, "c": 3, "d": 3, "e": 3}, served)
}

// Jobs without a key count as one key more, and get what the keys leave.
func TestPlainJobsCountAsAKey(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("select jobq.enqueue('k') from generate_series(1, 100)")
	q.enqueueKeyed("a", 20)
	both := q.exchange(mixed("w", 4))
	require.Len(t, both.Claimed, 2)
	require.Len(t, both.Keyed, 2)
	answer := q.exchange(keyed("w", 4))
	require.Empty(t, answer.Claimed)
	require.Len(t, answer.Keyed, 4)
	plain, withKey := 0, 0
	for range 200 { // by lot, where the share is not whole
		answer := q.exchange(mixed("w", 1))
		plain, withKey = plain+len(answer.Claimed), withKey+len(answer.Keyed)
		if withKey == 14 {
			break
		}
	}
	require.Equal(t, 14, withKey, "none is starved")
	require.NotZero(t, plain)
	rest := q.exchange(mixed("w", 200))
	require.Empty(t, rest.Keyed)
	require.Len(t, rest.Claimed, 98-plain)
}

// The places of a worker that is dead are free when its leases are reaped, also where the
// lease had not been told yet of what had ended.
func TestReapFreesKeys(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.set(`{"key_limit": 1}`)
	q.exec("select jobq.enqueue('k', partition_key => 'a', max_attempts => 1) from generate_series(1, 3)")
	q.exec("select jobq.enqueue('k', partition_key => 'b') from generate_series(1, 3)")
	q.exec("select jobq.enqueue('k', partition_key => 'c') from generate_series(1, 3)")
	dead := q.exchange(keyed("dead", 10)).Keyed
	require.Equal(t, map[string]int{"a": 1, "b": 1, "c": 1}, perKey(dead))
	for _, job := range dead {
		if job.PartitionKey == "c" { // it has ended on its row, and its lease does not know
			release := q.lockLeases(job.LeaseToken)
			answer, err := q.schema.Exchange(ctx, q.pool, db.Exchange{Owner: "dead", Queue: "default", Completions: []db.Completion{{Slot: at(job.JobClaimRow), Kind: "k", OnRow: true}}})
			require.NoError(t, err)
			require.Len(t, answer.Untold, 1)
			release()
		}
	}
	require.Empty(t, q.exchange(keyed("w", 10)).Keyed)
	q.exec("update jobq.lease set expires_at = now() - interval '1 s'")
	q.reap()
	require.Equal(t, map[string]int{"a": 1, "b": 1, "c": 1}, perKey(q.exchange(keyed("w", 10)).Keyed))
}

// Whatever way a job with a key comes into the line, a claim finds it, and whatever it goes
// through, it keeps its key.
func TestKeysComeInAllWays(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	take := func(way string) db.KeyedJob {
		t.Helper()
		jobs := q.exchange(keyed("w", 10)).Keyed
		require.Len(t, jobs, 1, way)
		require.Equal(t, "a", jobs[0].PartitionKey, way)
		require.Zero(t, q.number("select count(*) from jobq.lane_hint where queue = 'default'"), way)
		return jobs[0]
	}
	// end ends it for good, or until it is promoted, and has the claim that follows forget the key.
	end := func(job db.KeyedJob, outcome string) {
		t.Helper()
		exchange := keyed("w", 10)
		exchange.EndedKeys = []string{"a"}
		if outcome == "completed" {
			exchange = ended(keyed("w", 10), job)
		} else {
			ending := endingOf(job.JobClaimRow, outcome)
			ending.Delay = db.DelayOf(time.Hour)
			exchange.Endings = []db.Ending{ending}
		}
		require.Empty(t, q.exchange(exchange).Keyed)
		require.Zero(t, q.number("select count(*) from jobq.lane where key = 'a' and turn is not null"))
	}
	promote := func() {
		t.Helper()
		q.exec("update jobq.pending set run_at = now() - interval '1 s' where position is null")
		_, err := q.schema.Promote(context.Background(), q.pool, db.DuePlace{}, 100)
		require.NoError(t, err)
	}
	q.exec("insert into jobq.pending (kind, partition_key) values ('k', 'a')")
	job := take("an insert")
	end(job, "failed")
	promote()
	job = take("a retry")
	release := db.Exchange{Owner: "w", Queue: "default", Endings: []db.Ending{endingOf(job.JobClaimRow, "released")}}
	require.Len(t, q.exchange(release).Ended, 1)
	job = take("a release")
	q.exec("select jobq.fail($1, $2, 'e', '0')", job.ID, runToken(job.JobClaimRow))
	job = take("its own failure")
	end(job, "snoozed")
	promote()
	job = take("a snooze")
	q.exec("update jobq.lease set expires_at = now() - interval '1 s'")
	q.reap()
	job = take("a reap")
	end(job, "completed")
	q.exec("select jobq.requeue($1)", job.ID)
	job = take("a requeue")
	end(job, "completed")
	q.exec("select jobq.act_clone('me', $1, '{}')", job.ID)
	job = take("a clone")
	end(job, "completed")
	q.exec("select jobq.enqueue('k', run_at => now() + interval '1 hour', partition_key => 'a')")
	q.exec("select jobq.requeue(id) from jobq.pending")
	job = take("a requeue of what was scheduled")
	end(job, "completed")
	q.exec("select jobq.enqueue('k', queue => 'other', partition_key => 'a')")
	q.exec(`select jobq.job_edit(id, '{"queue": "default"}', '{}') from jobq.pending`)
	job = take("an edit of its queue")
	end(job, "completed")
	q.enqueueKeyed("a", 1)
	id := q.number("select id from jobq.pending")
	q.exec("select jobq.cancel($1)", id)
	require.Empty(t, q.exchange(keyed("w", 10)).Keyed)
	q.exec("select jobq.requeue($1)", id)
	take("a requeue of what was cancelled")
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

// A full key of which nobody has said that it has room again is looked at after a minute.
func TestForgottenKeyIsFound(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.set(`{"key_limit": 1}`)
	q.enqueueKeyed("a", 2)
	first := q.exchange(keyed("w", 10)).Keyed
	require.Len(t, first, 1)
	exchange := ended(keyed("w", 10), first...)
	exchange.EndedKeys = nil
	require.Empty(t, q.exchange(exchange).Keyed)
	q.exec("update jobq.lane set looked_at = looked_at - interval '61 s'")
	require.Len(t, q.exchange(keyed("w", 10)).Keyed, 1)
}

// Transactions that have inserted jobs of a key, or ended them, and go on, keep nobody
// waiting: neither inserts nor claims nor ends of the same key.
func TestKeysNeverWaitForTransactions(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.set(`{"key_limit": 2}`)
	inserts, err := q.pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = inserts.Rollback(ctx) }()
	_, err = inserts.Exec(ctx, "select jobq.enqueue('k', partition_key => 'a')")
	require.NoError(t, err)
	q.enqueueKeyed("a", 3)
	first := q.exchange(keyed("w", 10)).Keyed
	require.Len(t, first, 2)

	ends, err := q.pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = ends.Rollback(ctx) }()
	_, err = q.schema.Exchange(ctx, ends, db.Exchange{Owner: "w", Queue: "default", EndedKeys: []string{"a"}, Endings: []db.Ending{endingOf(first[0].JobClaimRow, "failed")}})
	require.NoError(t, err)
	require.Empty(t, q.exchange(keyed("w", 10)).Keyed, "it has not ended before the commit")
	require.NoError(t, ends.Commit(ctx))
	require.Len(t, q.exchange(keyed("w", 10)).Keyed, 1)
	require.NoError(t, inserts.Commit(ctx))
}

// A queue with keys has the limits of all queues, too.
func TestKeysBesideLimits(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.set(`{"max_running": 3, "key_limit": 2}`)
	for i := range 5 {
		q.enqueueKeyed(fmt.Sprint("key ", i), 5)
	}
	exchange := keyed("w", 10)
	exchange.HasLimits = true
	answer := q.exchange(exchange)
	require.Len(t, answer.Keyed, 3)
	require.Equal(t, db.Admission{Jobs: 3, Blocked: db.BlockedByLimit}, answer.Admission)
	q.set(`{"max_running": null, "key_limit": null, "rate_jobs": 4, "rate_period": "1 h", "rate_burst": 4}`)
	require.Len(t, q.exchange(exchange).Keyed, 4)
	require.Empty(t, q.exchange(exchange).Keyed)
	q.set(`{"rate_jobs": null, "rate_period": null, "rate_burst": null}`)
	q.exec("select jobq.act_queue('test', 'pause', 'default', null)")
	require.Empty(t, q.exchange(exchange).Keyed)
	q.exec("select jobq.act_queue('test', 'resume', 'default', null)")
	q.exec("select jobq.act_kind('test', 'kind_pause', 'k', null)")
	paused := q.exchange(exchange)
	require.Empty(t, paused.Keyed)
	require.False(t, paused.KeysMore, "else workers would ask again and again")
	q.exec("select jobq.act_kind('test', 'kind_resume', 'k', null)")
	exchange.Each = true
	each := q.exchange(exchange).Keyed
	require.Len(t, each, 10)
	leases := make(map[int64]bool)
	for _, job := range each {
		leases[job.LeaseToken] = true
		require.EqualValues(t, 1, job.Slot)
	}
	require.Len(t, leases, 10, "a lease for each")
	q.set(`{"key_limit": 100}`)
	limited := q.exchange(exchange).Keyed
	require.Len(t, limited, 8)
	for _, job := range limited {
		leases[job.LeaseToken] = true
	}
	require.Len(t, leases, 18, "a lease for each")
	require.Equal(t, 18, q.number("select count(*) from jobq.lane l cross join lateral unnest(l.held_leases) h where h = any($1::bigint[])", slices.Collect(maps.Keys(leases))))
}

// Within a key, jobs go by priority and then by their place.
func TestOrderWithinAKey(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.set(`{"key_limit": 1}`)
	for i, priority := range []int{1, 0, -1, 0} {
		q.exec("select jobq.enqueue('k', partition_key => 'a', priority => $1, args => to_jsonb($2::integer))", priority, i)
	}
	var order []string
	exchange := keyed("w", 10)
	for range 4 {
		jobs := q.exchange(exchange).Keyed
		require.Len(t, jobs, 1)
		order = append(order, string(jobs[0].Args))
		exchange = ended(keyed("w", 10), jobs...)
	}
	require.Equal(t, []string{"2", "1", "3", "0"}, order)
}

// pass is a claim that goes on with the pass of another one.
func pass(exchange db.Exchange, before db.Exchanged) db.Exchange {
	exchange.LanePass = before.LanePass
	return exchange
}

// passOf are the claims of a worker until nothing is left for it, and what they took.
func (q *queue) passOf(exchange db.Exchange) (taken map[string]int, claims int) {
	q.Helper()
	taken = make(map[string]int)
	var answer db.Exchanged
	for answer.KeysMore = true; answer.KeysMore; claims++ {
		require.Less(q, claims, 5000, "it never ends")
		answer = q.exchange(pass(exchange, answer))
		for key, count := range perKey(answer.Keyed) {
			taken[key] += count
		}
	}
	return taken, claims
}

// Keys whose jobs only others can run keep nobody from the keys behind them, and keep their
// own turns meanwhile.
func TestKeysOfOtherKinds(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("select jobq.enqueue('k', partition_key => 'first ' || i) from generate_series(1, 150) i")
	q.exec("select jobq.enqueue('k', partition_key => 'last') from generate_series(1, 2)")
	q.exec("select jobq.enqueue('other', partition_key => 'other')")
	a, b := keyed("a", 1), keyed("b", 1)
	a.Claim.Kinds = []string{"other"}
	taken, _ := q.passOf(a)
	require.Equal(t, map[string]int{"other": 1}, taken)
	none, claims := q.passOf(a)
	require.Empty(t, none)
	require.Equal(t, 2, claims, "100 keys in each")
	served := make(map[string]int)
	var ofA db.Exchanged
	for range 151 {
		ofA = q.exchange(pass(a, ofA))
		for key, count := range perKey(q.exchange(b).Keyed) {
			served[key] += count
		}
	}
	require.Len(t, served, 151, "each key has its turn")
}

// However many keys there are, a claim that follows finds what this one has not looked at:
// behind many that are empty, in more than a claim looks at, and when a limit was raised.
func TestMoreThanAClaimOfKeys(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("select jobq.enqueue('k', partition_key => 'key ' || i) from generate_series(1, 250) i")
	q.exec("delete from jobq.pending where partition_key not in ('key 250', 'key 9')")
	taken, _ := q.passOf(keyed("w", 10))
	require.Equal(t, map[string]int{"key 9": 1, "key 250": 1}, taken, "the others are empty")

	q.exec("select jobq.enqueue('k', partition_key => 'key ' || i) from generate_series(1, 250) i")
	taken, _ = q.passOf(keyed("w", 400))
	require.Len(t, taken, 250)

	q.set(`{"key_limit": 1}`)
	q.exec("select jobq.enqueue('k', partition_key => 'full ' || i % 250) from generate_series(1, 500) i")
	taken, _ = q.passOf(keyed("w", 600))
	require.Len(t, taken, 250)
	q.set(`{"key_limit": 2}`)
	taken, _ = q.passOf(keyed("w", 600))
	require.Len(t, taken, 250, "those that were full")
}

// Jobs of a key that wait for other kinds of workers are walked past a thousand at a time, and
// those behind them are found.
func TestJobsOfOtherKindsWithinAKey(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	const many = 3500
	q.exec("insert into jobq.pending (kind, partition_key) select 'other', 'a' from generate_series(1, $1::integer)", many)
	q.enqueueKeyed("a", 2)
	answer := q.exchange(keyed("w", 10))
	require.Empty(t, answer.Keyed, "they are behind the first thousand")
	require.True(t, answer.KeysMore)
	others := keyed("w", 3)
	others.Claim.Kinds = []string{"other"}
	head := q.number("select min(id) from jobq.pending")
	for _, job := range q.exchange(others).Keyed {
		require.Less(t, job.ID, int64(head+3), "for these they are at the head")
	}
	require.Equal(t, 3, q.number("select count(*) from jobq.run"))
	taken, claims := q.passOf(keyed("w", 10))
	require.Equal(t, map[string]int{"a": 2}, taken)
	require.LessOrEqual(t, claims, many/1000+2)
	none, claims := q.passOf(keyed("w", 10))
	require.Empty(t, none)
	require.LessOrEqual(t, claims, many/1000+2)
	// While a walk goes on, one comes to where it has been.
	require.True(t, q.exchange(keyed("w", 10)).KeysMore)
	require.True(t, q.exchange(keyed("w", 10)).KeysMore)
	q.exec("select jobq.enqueue('k', priority => -1, partition_key => 'a')")
	taken, _ = q.passOf(keyed("w", 10))
	require.Equal(t, map[string]int{"a": 1}, taken)
	require.Zero(t, q.number("select count(*) from jobq.lane where looks <> '{}'"), "nothing is left of the walks")
}

// A row with null for its key has none.
func TestNullIsNoKey(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("insert into jobq.pending (kind, partition_key) values ('k', null)")
	require.Len(t, q.claim("w", 10), 1)
}

// Full keys are looked at without a hint seldom, a few at a time, and take nothing from the
// shares of the others.
func TestForgottenKeysCostLittle(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.set(`{"key_limit": 20}`)
	q.exec("select jobq.enqueue('k', partition_key => 'full ' || i % 25) from generate_series(1, 525) i")
	taken, _ := q.passOf(keyed("w", 600))
	require.Len(t, taken, 25)
	lookedAt := func() int {
		return q.number("select count(*) from jobq.lane where key like 'full %' and looked_at > now() - interval '30 minutes'")
	}
	q.exec("update jobq.lane set looked_at = now() - interval '1 hour' where key <> ''")
	q.exec("update jobq.lane set looked_at = now() + interval '1 hour' where key = ''")
	require.Empty(t, q.exchange(keyed("w", 10)).Keyed)
	require.Zero(t, lookedAt(), "others were, just now")
	q.exec("update jobq.lane set looked_at = now() - interval '2 s' where key = ''")
	q.enqueueKeyed("a", 20)
	require.Len(t, q.exchange(keyed("w", 10)).Keyed, 10, "the share of the only key that is ready")
	require.LessOrEqual(t, lookedAt(), 10)
	q.exec("update jobq.lane set looked_at = now() + interval '1 hour' where key = ''")
	require.Len(t, q.exchange(keyed("w", 20)).Keyed, 10)
	require.Equal(t, 10, lookedAt())
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

// Without a limit, keys that have a job or two each cost a claim no lane, and it fills all the same.
func TestManySmallKeys(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("insert into jobq.pending (kind, partition_key) select 'k', 'key ' || i / 2 from generate_series(2, 1601) i")
	first := q.exchange(keyed("w", 600))
	require.Len(t, first.Keyed, 600)
	require.True(t, first.KeysMore)
	require.LessOrEqual(t, q.number("select count(*) from jobq.lane where key <> ''"), 100)
	taken, claims := q.passOf(keyed("w", 600))
	require.Len(t, taken, 500)
	require.LessOrEqual(t, claims, 3)
	require.Zero(t, q.number("select count(*) from jobq.lane where key <> ''"))
	require.Zero(t, q.number("select count(*) from jobq.lane_hint"))
	require.Zero(t, q.number("select count(*) from jobq.pending"))
}

// What a claim leaves of the last key, since it is full, is found by the next one.
func TestRestOfTheLastKey(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	for key, count := range map[string]int{"a": 1, "b": 2, "c": 2} {
		q.enqueueKeyed(key, count)
	}
	first := q.exchange(keyed("w", 4))
	require.Len(t, first.Keyed, 4)
	require.True(t, first.KeysMore)
	taken, _ := q.passOf(keyed("w", 4))
	require.Len(t, taken, 1)
	require.Zero(t, q.number("select count(*) from jobq.pending"))
}

// However many hints a key has, it has one lane, and the keys behind it have theirs.
func TestManyHintsOfAKey(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.enqueueKeyed("a", 350)
	q.enqueueKeyed("b", 250)
	require.Equal(t, map[string]int{"a": 10, "b": 10}, perKey(q.exchange(keyed("w", 20)).Keyed))
	require.Zero(t, q.number("select count(*) from jobq.lane_hint"))
	require.Equal(t, 2, q.number("select count(*) from jobq.lane where turn is not null"))
	taken, _ := q.passOf(keyed("w", 300))
	require.Equal(t, map[string]int{"a": 340, "b": 240}, taken)
	require.Zero(t, q.number("select count(*) from jobq.lane where key <> ''"))
}

// A job that comes while a claim goes on, after that has found its key empty, is not forgotten, although the same
// claim takes its hint away.
func TestJobOfAKeyThatIsEmptyJustThen(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.enqueueKeyed("a", 2)
	require.Len(t, q.exchange(keyed("w", 1)).Keyed, 1)
	require.Equal(t, 1, q.number("select count(*) from jobq.lane where key = 'a' and turn is not null"))
	// Two of each key at first, and then one: so the claim eats hints three times.
	q.exec("insert into jobq.pending (kind, partition_key) select 'k', 'key ' || i % 100 from generate_series(1, 200) i")
	q.exec("insert into jobq.pending (kind, partition_key) select 'k', 'other ' || i from generate_series(1, 650) i")
	q.exec("create sequence eaten")
	q.exec(`create function comes() returns trigger language plpgsql as $$
		begin
			if nextval('eaten') = 2 then
				insert into jobq.pending (kind, partition_key) values ('k', 'a');
			end if;
			return null;
		end $$`)
	q.exec("create trigger comes before delete on jobq.lane_hint for each statement execute function comes()")
	taken, _ := q.passOf(keyed("w", 1000))
	require.Len(t, taken, 751)
	require.Equal(t, 2, taken["a"])
	require.GreaterOrEqual(t, q.number("select last_value from eaten"), 3)
}

// Jobs that somebody has locked are left alone, and so is the place of their key; when they are free they are
// found, also those of a key that no claim had seen before.
func TestLockedJobsOfKeys(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	for _, key := range []string{"a", "b", "c"} {
		q.enqueueKeyed(key, 2)
	}
	tx, err := q.pool.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, q.schema.SQL("select from jobq.pending where partition_key = 'a' or id = (select min(id) from jobq.pending where partition_key = 'b') for update"))
	require.NoError(t, err)
	taken, _ := q.passOf(keyed("w", 10))
	require.Equal(t, map[string]int{"b": 1, "c": 2}, taken)
	require.Equal(t, 2, q.number("select count(*) from jobq.lane where turn is not null"))
	require.NoError(t, tx.Rollback(ctx))
	taken, _ = q.passOf(keyed("w", 10))
	require.Equal(t, map[string]int{"a": 2, "b": 1}, taken)
}
