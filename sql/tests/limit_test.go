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

// limited is a claim of up to so many jobs by a worker that has as many free slots.
func limited(owner string, count int) db.Exchange {
	return db.Exchange{Owner: owner, Queue: "default", HasLimits: true, SlotsFree: count, Claim: &db.JobClaimParams{
		Lease: hour, Owner: owner, Queue: "default", Kinds: []string{"k"}, JobCount: int32(count), // #nosec G115 -- small
	}}
}

// set sets columns of the queue default.
func (q *queue) set(change string) {
	q.Helper()
	q.exec("select jobq.act_queue_set('test', 'default', $1::jsonb)", change)
}

func endingOf(job db.JobClaimRow, outcome string) db.Ending {
	return db.Ending{Slot: at(job), Outcome: outcome, Error: "e", Delay: db.DelayOf(0), Started: outcome != "released"}
}

// A claim that knows of no limits takes nothing from a queue with a limit or a rate,
// and one that does takes what there is once they are gone.
func TestPlainClaimsKeepOffLimits(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("select jobq.enqueue('k') from generate_series(1, 10)")
	for _, change := range []string{`{"max_running": 5}`, `{"max_running": null, "rate_jobs": 5, "rate_period": "1 h"}`} {
		q.set(change)
		require.Empty(t, q.claim("a", 3))
	}
	q.set(`{"rate_jobs": null, "rate_period": null}`)
	answer := q.exchange(limited("a", 3))
	require.Len(t, answer.Claimed, 3)
	require.Equal(t, db.Admission{Jobs: 3}, answer.Admission)
	require.Len(t, q.claim("a", 3), 3)
	q.exec("select jobq.act_queue('test', 'pause', 'default', null)")
	q.set(`{"max_running": 10}`)
	require.Empty(t, q.exchange(limited("a", 3)).Claimed, "a pause holds beside a limit")
}

// Many claim and end in all ways at once. Never do more run than the limit says, and at
// the end all of it is free again. A job counts as running from the answer to its claim
// until before its end is sent, and so for less time than in the database.
func TestLimitOverManyClaimers(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	const limit, claimers, rounds = 3, 8, 150
	q.set(`{"max_running": 3}`)
	q.exec("select jobq.enqueue('k', max_attempts => 32767) from generate_series(1, 200)")
	var running, most atomic.Int64
	var group errgroup.Group
	for i := range claimers {
		owner, seed := fmt.Sprint("worker ", i), rand.Uint64()
		group.Go(func() error {
			random := rand.New(rand.NewPCG(seed, 0)) // #nosec G404 -- a test
			exchange := limited(owner, 2)
			for range rounds {
				answer, err := q.schema.Exchange(ctx, q.pool, exchange)
				if err != nil {
					return fmt.Errorf("seed %d: %w", seed, err)
				}
				now := running.Add(int64(len(answer.Claimed)))
				for before := most.Load(); now > before && !most.CompareAndSwap(before, now); before = most.Load() {
				}
				if _, err := q.pool.Exec(ctx, "select 1"); err != nil { // they run for a round trip
					return err
				}
				exchange = limited(owner, 2)
				running.Add(-int64(len(answer.Claimed)))
				for _, job := range answer.Claimed {
					switch random.IntN(5) {
					case 0:
						exchange.Completions = append(exchange.Completions, db.Completion{Slot: at(job), Kind: "k"})
					case 1:
						exchange.Completions = append(exchange.Completions, db.Completion{Slot: at(job), Kind: "k", OnRow: true})
					case 2:
						exchange.Endings = append(exchange.Endings, endingOf(job, "snoozed"))
					case 3:
						exchange.Endings = append(exchange.Endings, endingOf(job, "released"))
					default:
						exchange.Endings = append(exchange.Endings, endingOf(job, "failed"))
					}
				}
			}
			exchange.Claim = nil
			_, err := q.schema.Exchange(ctx, q.pool, exchange)
			return err
		})
	}
	require.NoError(t, group.Wait())
	require.LessOrEqual(t, most.Load(), int64(limit))
	require.Zero(t, q.number("select count(*) from jobq.lease"))
	q.exec("select jobq.enqueue('k') from generate_series(1, 10)")
	require.Len(t, q.exchange(limited("a", 10)).Claimed, limit, "all slots are free again")
}

// The count comes after the lock: a claim that has waited for another one counts what
// that has taken. One that comes with ends waits for a moment only, and stores them.
func TestClaimsOfALimitedQueueTakeTurns(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.set(`{"max_running": 4}`)
	q.exec("select jobq.enqueue('k') from generate_series(1, 10)")
	held := q.exchange(limited("b", 1)).Claimed
	tx, err := q.pool.Begin(ctx)
	require.NoError(t, err)
	first, err := q.schema.Exchange(ctx, tx, limited("a", 2))
	require.NoError(t, err)
	require.Len(t, first.Claimed, 2)

	exchange := limited("b", 1)
	exchange.Completions = []db.Completion{{Slot: at(held[0]), Kind: "k"}}
	answer := q.exchange(exchange)
	require.Equal(t, db.Admission{Blocked: db.BlockedByOthers}, answer.Admission)
	require.Equal(t, []int64{held[0].ID}, answer.Completed)

	waited := make(chan db.Exchanged, 1)
	go func() {
		answer, err := q.schema.Exchange(ctx, q.pool, limited("c", 4))
		if err != nil {
			t.Error(err)
		}
		waited <- answer
	}()
	require.Eventually(t, func() bool {
		return q.number(sessionsThatWait) == 1
	}, eventually, tick)
	require.NoError(t, tx.Commit(ctx))
	answer = <-waited
	require.Len(t, answer.Claimed, 2)
	require.Equal(t, db.Admission{Jobs: 2, Blocked: db.BlockedByLimit}, answer.Admission)
}

// sessionsThatWait counts the sessions of this database that wait for a lock.
const sessionsThatWait = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"

// A claim that comes with ends waits for one that is about to commit, as another one of its own
// worker: it counts what that has taken, and need not ask again.
func TestClaimWithEndsWaitsForOneBeforeIt(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.set(`{"max_running": 100000}`)
	waits := func() bool {
		return q.number(sessionsThatWait) == 1
	}
	q.exec("select jobq.enqueue('k') from generate_series(1, 10000)")
	// It may have waited for too long before the other one commits, on a busy machine: so it has many tries.
	require.Eventually(t, func() bool {
		held := q.exchange(limited("b", 1)).Claimed
		first, err := q.pool.Begin(ctx)
		require.NoError(t, err)
		_, err = q.schema.Exchange(ctx, first, limited("a", 1))
		require.NoError(t, err)
		exchange := limited("b", 1)
		exchange.Completions = []db.Completion{{Slot: at(held[0]), Kind: "k"}}
		answered := make(chan db.Exchanged, 1)
		go func() {
			answer, err := q.schema.Exchange(ctx, q.pool, exchange)
			if err != nil {
				t.Error(err)
			}
			answered <- answer
		}()
		for {
			select {
			case <-answered: // it did not wait, or for too long
				require.NoError(t, first.Rollback(ctx))
				return false
			default:
			}
			if waits() {
				require.NoError(t, first.Commit(ctx))
				return len((<-answered).Claimed) == 1
			}
		}
	}, eventually, tick)
}

// What runs above a limit that was lowered goes on, and nothing starts until it is below.
func TestLoweredLimit(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("select jobq.enqueue('k') from generate_series(1, 10)")
	held := q.claim("a", 4)
	q.set(`{"max_running": 3}`)
	for i, job := range held {
		require.Len(t, q.exchange(limited("b", 1)).Claimed, max(0, i-1), "with %d ended", i)
		if i == 2 {
			break
		}
		q.exchange(db.Exchange{Owner: "a", Endings: []db.Ending{endingOf(job, "failed")}})
	}
	q.set(`{"max_running": 5}`)
	require.Len(t, q.exchange(limited("b", 10)).Claimed, 2)
}

// The slots of a worker that has died are free when its leases are reaped.
func TestReapedSlotsAreFree(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.set(`{"max_running": 3}`)
	q.exec("select jobq.enqueue('k') from generate_series(1, 10)")
	require.Len(t, q.exchange(limited("dead", 3)).Claimed, 3)
	require.Empty(t, q.exchange(limited("a", 3)).Claimed)
	_, err := q.schema.Reap(ctx, q.pool, []string{"dead"}, 100, "test")
	require.NoError(t, err)
	require.Len(t, q.exchange(limited("a", 3)).Claimed, 3)
}

// Jobs are claimed ahead up to an eighth of what the limit leaves, and for the slots in any case.
func TestClaimsAhead(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.set(`{"max_running": 100}`)
	q.exec("select jobq.enqueue('k') from generate_series(1, 100)")
	exchange := limited("a", 12)
	exchange.SlotsFree = 2
	require.Len(t, q.exchange(exchange).Claimed, 12)
	answer := q.exchange(exchange)
	require.Len(t, answer.Claimed, 11)
	require.Equal(t, db.Admission{Jobs: 11, Blocked: db.BlockedByLimit}, answer.Admission)
	exchange.SlotsFree = 76
	exchange.Claim.JobCount = 76
	require.Len(t, q.exchange(exchange).Claimed, 76)
	exchange.SlotsFree = 2
	require.Equal(t, db.Admission{Jobs: 1, Blocked: db.BlockedByLimit}, q.exchange(exchange).Admission)
}

// Over many claimers and any time, by the moments of the claims, no more jobs start than
// the rate and its burst allow; and what a claim that is rolled back has taken is free.
func TestRateOverManyClaimers(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	const perSecond, burst, jobs = 200, 20, 300
	q.set(`{"rate_jobs": 200, "rate_period": "1 s", "rate_burst": 20}`)
	q.exec("select jobq.enqueue('k') from generate_series(1, $1::integer)", jobs)
	tx, err := q.pool.Begin(ctx)
	require.NoError(t, err)
	answer, err := q.schema.Exchange(ctx, tx, limited("a", 100))
	require.NoError(t, err)
	require.Len(t, answer.Claimed, burst)
	require.NoError(t, tx.Rollback(ctx))

	var left atomic.Int64
	left.Store(jobs)
	var group errgroup.Group
	for i := range 4 {
		owner := fmt.Sprint("worker ", i)
		group.Go(func() error {
			for left.Load() > 0 {
				answer, err := q.schema.Exchange(ctx, q.pool, limited(owner, 5))
				if err != nil {
					return err
				}
				left.Add(-int64(len(answer.Claimed)))
				// Sooner than it is worth while.
				if _, err := q.pool.Exec(ctx, "select pg_sleep($1)", answer.Admission.Wait.Seconds()/4); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	require.Equal(t, jobs, q.number("select sum(cardinality(job_ids)) from jobq.lease"))
	q.withinRate(perSecond, burst)
	require.Equal(t, 1, q.number("select count(*) from jobq.throttle"))
}

// withinRate fails when more jobs started between any two claims, both included, than the
// rate and its burst allow.
func (q *queue) withinRate(perSecond, burst int) {
	q.Helper()
	require.Zero(q, q.number(`
		with c as (select claimed_at, sum(cardinality(job_ids)) as jobs from jobq.lease group by claimed_at),
			s as (select claimed_at, jobs, sum(jobs) over (order by claimed_at) as total from c)
		select count(*) from s a join s b on b.claimed_at >= a.claimed_at
			where b.total - a.total + a.jobs > $1::integer * extract(epoch from b.claimed_at - a.claimed_at) + $2::integer`, perSecond, burst))
}

// A rate that is changed carries over how much of it was used, in jobs: neither is there
// a new burst, nor does a slow rate of before hold up a faster one.
func TestChangedRate(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("select jobq.enqueue('k') from generate_series(1, 100)")
	q.set(`{"rate_jobs": 1, "rate_period": "1 day", "rate_burst": 5}`)
	require.Len(t, q.exchange(limited("a", 10)).Claimed, 5)
	answer := q.exchange(limited("a", 10))
	require.Empty(t, answer.Claimed)
	require.Equal(t, db.BlockedByRate, answer.Admission.Blocked)
	require.InDelta(t, 48*time.Hour, answer.Admission.Wait, float64(time.Hour), "half of the burst")
	q.set(`{"rate_jobs": 1, "rate_period": "1 hour", "rate_burst": 10}`)
	require.Len(t, q.exchange(limited("a", 10)).Claimed, 5, "what the larger burst has more")
	q.set(`{"rate_jobs": 1, "rate_period": "1 s", "rate_burst": 2}`)
	require.LessOrEqual(t, q.exchange(limited("a", 10)).Admission.Wait, time.Second)
}

// An end in a queue at its limit wakes others if it leaves room, and only then.
func TestRoomIsNotified(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.set(`{"max_running": 2}`)
	q.exec("select jobq.enqueue('k', max_attempts => 5) from generate_series(1, 3)")
	conn, err := q.pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Exec(ctx, "listen "+db.Channel("jobq", db.TopicRoom)+"; listen done")
	require.NoError(t, err)
	defer func() { _, _ = conn.Exec(ctx, "unlisten *") }()
	notified := func(exchange db.Exchange) (rooms int, claimed []db.JobClaimRow) {
		claimed = q.exchange(exchange).Claimed
		q.exec("notify done")
		for {
			notification, err := conn.Conn().WaitForNotification(ctx)
			require.NoError(t, err)
			if notification.Channel == "done" {
				return rooms, claimed
			}
			require.Equal(t, "default", notification.Payload)
			rooms++
		}
	}
	rooms, held := notified(limited("a", 2))
	require.Zero(t, rooms)
	require.Len(t, held, 2)
	again := limited("a", 1)
	again.Endings = []db.Ending{endingOf(held[0], "failed")}
	rooms, claimed := notified(again)
	require.Zero(t, rooms, "it takes the room itself")
	require.Len(t, claimed, 1)
	without := db.Exchange{Owner: "a", Queue: "default", HasLimits: true, Endings: []db.Ending{endingOf(held[1], "failed")}}
	rooms, _ = notified(without)
	require.Equal(t, 1, rooms)
	without.Endings = []db.Ending{endingOf(claimed[0], "failed")}
	rooms, _ = notified(without)
	require.Zero(t, rooms, "there was room before")
}
