package tests

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
			require.Len(t, answer.Unrecorded, 1)
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

// So is one that was full with a higher limit than it has now.
func TestForgottenKeyIsFoundAfterALowerLimit(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.set(`{"key_limit": 2}`)
	q.enqueueKeyed("a", 4)
	first := q.exchange(keyed("w", 10)).Keyed
	require.Len(t, first, 2)
	q.set(`{"key_limit": 1}`)
	require.Empty(t, q.exchange(keyed("w", 10)).Keyed)
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
	exchange.Claim.LeasePerJob = true
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
	// As of now, for 2 s: a look that lies further ahead counts as long ago (lane_look_again).
	const justNow = "update jobq.lane set looked_at = now() + interval '1 s' where key = ''"
	q.exec("update jobq.lane set looked_at = now() - interval '1 hour' where key <> ''")
	q.exec(justNow)
	require.Empty(t, q.exchange(keyed("w", 10)).Keyed)
	require.Zero(t, lookedAt(), "others were, just now")
	q.exec("update jobq.lane set looked_at = now() - interval '2 s' where key = ''")
	q.enqueueKeyed("a", 20)
	require.Len(t, q.exchange(keyed("w", 10)).Keyed, 10, "the share of the only key that is ready")
	require.LessOrEqual(t, lookedAt(), 10)
	q.exec(justNow)
	require.Len(t, q.exchange(keyed("w", 20)).Keyed, 10)
	require.Equal(t, 10, lookedAt())
}
