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

// ordered is a database whose keys run in the order given.
func ordered(t *testing.T, order string) *queue {
	t.Helper()
	q := setUp(t)
	q.set(fmt.Sprintf(`{"key_order": %q}`, order))
	return q
}

// next are the ids of the jobs that a claim of up to 10 takes.
func (q *queue) next() (ids []int64) {
	q.Helper()
	for _, job := range q.exchange(keyed("w", 10)).Keyed {
		ids = append(ids, job.ID)
	}
	return ids
}

// takeOne is the job that a claim of up to 10 takes, which must be this one and no other.
func (q *queue) takeOne(id int64, why string) db.KeyedJob {
	q.Helper()
	jobs := q.exchange(keyed("w", 10)).Keyed
	require.Len(q, jobs, 1, why)
	require.Equal(q, id, jobs[0].ID, why)
	return jobs[0]
}

// over ends the run of a job in this way, with an hour until its retry, and claims nothing.
func (q *queue) over(job db.KeyedJob, outcome string, final bool) {
	q.Helper()
	exchange := db.Exchange{Owner: "w", Queue: "default", EndedKeys: []string{job.PartitionKey}}
	if outcome == "completed" {
		exchange.Completions = []db.Completion{{Slot: at(job.JobClaimRow), Kind: "k"}}
	} else {
		ending := endingOf(job.JobClaimRow, outcome)
		ending.Final = final
		if outcome != "released" {
			ending.Delay = db.DelayOf(time.Hour)
		}
		exchange.Endings = []db.Ending{ending}
	}
	answer := q.exchange(exchange)
	require.Equal(q, 1, len(answer.Completed)+len(answer.Ended))
}

// promote makes jobs available that wait for a moment.
func (q *queue) promote() {
	q.Helper()
	q.exec("update jobq.pending set run_at = now() - interval '1 s' where position is null")
	_, err := q.schema.Promote(context.Background(), q.pool, db.DuePlace{}, 100)
	require.NoError(q, err)
}

// Of each key one job runs, the first that was added, and the next one when it is over; whoever asks, and
// however many may be claimed.
func TestKeysInOrder(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"hold", "pass", "stop"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			q := ordered(t, order)
			for range 3 {
				for _, key := range []string{"a", "b"} {
					q.enqueueKeyed(key, 1)
				}
			}
			for round := range int64(3) {
				jobs := q.exchange(keyed("w", 100)).Keyed
				require.Equal(t, map[string]int{"a": 1, "b": 1}, perKey(jobs))
				require.Empty(t, q.exchange(keyed("other", 100)).Keyed)
				for _, job := range jobs {
					require.Contains(t, []int64{2*round + 1, 2*round + 2}, job.ID)
				}
				answer := ended(keyed("w", 100), jobs...)
				answer.Claim = nil
				q.exchange(answer)
			}
			require.Empty(t, q.next())
			require.Zero(t, q.number("select count(*) from jobq.lane_head"), "nothing is left of the keys")
		})
	}
}

// A job that waits for its retry, or sleeps, holds its key, whatever comes after it, and although nothing
// of the key is in the line; then it is the next one, although it gets a place behind the others.
func TestKeyOrderHold(t *testing.T) {
	t.Parallel()
	for _, outcome := range []string{"failed", "timed_out", "snoozed"} {
		t.Run(outcome, func(t *testing.T) {
			t.Parallel()
			q := ordered(t, "hold")
			q.enqueueKeyed("a", 1)
			q.over(q.takeOne(1, "the first"), outcome, false)
			require.Empty(t, q.next(), "it waits")
			q.prune(100)
			q.enqueueKeyed("a", 2)
			require.Empty(t, q.next(), "others have come")
			q.enqueueKeyed("b", 1)
			q.over(q.takeOne(4, "another key"), "completed", false)
			q.promote()
			q.over(q.takeOne(1, "its retry"), "failed", true)
			q.over(q.takeOne(2, "the one after it, when it has failed for good"), "completed", false)
			q.takeOne(3, "the last")
		})
	}
}

// With the order pass, the next jobs run while one waits for its retry, which goes to the tail.
func TestKeyOrderPass(t *testing.T) {
	t.Parallel()
	q := ordered(t, "pass")
	q.enqueueKeyed("a", 4)
	q.over(q.takeOne(1, "the first"), "failed", false)
	second := q.takeOne(2, "the second, while the first one waits")
	q.promote()
	require.Empty(t, q.next(), "one runs")
	q.over(second, "completed", false)
	q.over(q.takeOne(3, "the third"), "completed", false)
	q.over(q.takeOne(4, "the fourth"), "completed", false)
	q.takeOne(1, "the first, again")
}

// With the order stop, a job that has failed for good stops its key, until it has run again or is deleted.
func TestKeyOrderStop(t *testing.T) {
	t.Parallel()
	q := ordered(t, "stop")
	q.enqueueKeyed("a", 2)
	q.over(q.takeOne(1, "the first"), "failed", true)
	require.Empty(t, q.next(), "it has failed")
	q.enqueueKeyed("a", 1)
	require.Empty(t, q.next(), "another one has come")
	q.prune(100)
	require.Empty(t, q.next(), "the janitor has looked")
	require.Equal(t, 1, q.number("select count(*) from jobq.lane_head"))

	audit, _ := q.act("requeue", nil, 1)
	require.Equal(t, 1, q.number("select count(*) from jobq.undo('ann', $1) u where u.problem is null", audit))
	require.Empty(t, q.next(), "the requeue was taken back")
	q.act("requeue", nil, 1)
	q.over(q.takeOne(1, "again"), "completed", false)
	q.over(q.takeOne(2, "the second"), "failed", true)
	require.Empty(t, q.next(), "it has failed, too")
	q.act("delete", nil, 2)
	q.takeOne(3, "the third")
}

// A key goes on when the job that holds it is cancelled, deleted or moved to another queue, without a look of
// the janitor and without waiting for the minute after which full keys are looked at.
func TestKeyOrderLetsGo(t *testing.T) {
	t.Parallel()
	for action, sql := range map[string]string{
		"cancel": "select jobq.cancel(1)",
		"delete": "select jobq.delete_job(1)",
		"edit":   `select jobq.job_edit(1, '{"queue": "other"}', '{}')`,
	} {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			q := ordered(t, "hold")
			q.enqueueKeyed("a", 2)
			q.over(q.takeOne(1, "the first"), "failed", false)
			require.Empty(t, q.next())
			require.Zero(t, q.number("select count(*) from jobq.lane_hint"))
			q.exec(sql)
			q.takeOne(2, "after "+action)
		})
	}
}

// A run that is lost comes first when its job is back, wherever the queue's redelivery puts it; and
// when it was the job's last attempt, the next one runs, or with the order stop none.
func TestKeyOrderAfterLostRuns(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"hold", "pass", "stop"} {
		for _, redelivery := range []string{"head", "tail"} {
			t.Run(order+" "+redelivery, func(t *testing.T) {
				t.Parallel()
				q := ordered(t, order)
				q.set(fmt.Sprintf(`{"redelivery": %q}`, redelivery))
				q.exec("select jobq.enqueue('k', partition_key => 'a', max_attempts => 3) from generate_series(1, 3)")
				q.takeOne(1, "the first")
				require.Empty(t, q.next())
				q.reap()
				q.over(q.takeOne(1, "again"), "released", false)
				q.takeOne(1, "and once more, since its worker has given it back")
				q.reap()
				q.due()
				suspects := q.alone("k")
				require.Len(t, suspects, 1, "lost twice in a row, it has left the line")
				require.Equal(t, int64(1), suspects[0].ID)
				require.Empty(t, q.next(), "it holds its key")
				q.reap()
				require.Equal(t, 1, q.number("select count(*) from jobq.job where id = 1 and state = 'failed'"))
				if order == "stop" {
					require.Empty(t, q.next())
				} else {
					q.takeOne(2, "it has no attempts left")
				}
			})
		}
	}
}

// With a delay after a lost run, its job holds its key as any that waits.
func TestKeyOrderWithRedeliveryDelay(t *testing.T) {
	t.Parallel()
	q := ordered(t, "hold")
	q.set(`{"redelivery_delay": "1 h"}`)
	q.enqueueKeyed("a", 2)
	q.takeOne(1, "the first")
	q.reap()
	require.Empty(t, q.next())
	q.promote()
	q.takeOne(1, "again")
}

// A head that this worker cannot run, or that somebody has locked, keeps the others of its key back, and no
// other key.
func TestKeyOrderWaitsForItsHead(t *testing.T) {
	t.Parallel()
	q := ordered(t, "hold")
	q.exec("select jobq.enqueue('other', partition_key => 'a')")
	q.enqueueKeyed("a", 2)
	q.enqueueKeyed("b", 1)
	taken, _ := q.passOf(keyed("w", 10))
	require.Equal(t, map[string]int{"b": 1}, taken)
	others := keyed("other", 10)
	others.Claim.Kinds = []string{"k", "other"}
	jobs := q.exchange(others).Keyed
	require.Len(t, jobs, 1)
	require.Equal(t, int64(1), jobs[0].ID)
	q.exchange(ended(db.Exchange{Owner: "other", Queue: "default"}, jobs...))

	release := q.locked(func(tx pgx.Tx) error {
		_, err := tx.Exec(context.Background(), "select from jobq.pending where id = 2 for update")
		return err
	})
	taken, _ = q.passOf(keyed("w", 10))
	require.Empty(t, taken, "its head is locked")
	release()
	q.over(q.takeOne(2, "it is free"), "completed", false)
	q.exec("insert into jobq.kind (name, paused_at, paused_by) values ('k', now(), 'me')")
	require.Empty(t, q.next(), "its kind is paused")
}

// Within a key, what is more urgent goes first, but for a job that has begun; and a job that is scheduled
// takes its place in the line when it is due.
func TestKeyOrderOfTheLine(t *testing.T) {
	t.Parallel()
	q := ordered(t, "hold")
	q.exec("select jobq.enqueue('k', partition_key => 'a', run_at => now() + interval '1 hour')")
	q.enqueueKeyed("a", 2)
	first := q.takeOne(2, "the first that is due")
	q.exec("select jobq.enqueue('k', partition_key => 'a', priority => -1)")
	q.over(first, "failed", false)
	require.Empty(t, q.next(), "the more urgent one has to wait for the retry")
	q.promote()
	q.over(q.takeOne(2, "the retry"), "completed", false)
	q.over(q.takeOne(4, "the urgent one"), "completed", false)
	q.over(q.takeOne(3, "the one that was not scheduled"), "completed", false)
	q.takeOne(1, "the scheduled one")
}

// An order needs a limit of 1 for each key, which it gets where there is none; what makes no sense is refused.
func TestKeyOrderSettings(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	stored := func() (limit, order string) {
		require.NoError(t, q.pool.QueryRow(context.Background(),
			"select coalesce(max(key_limit)::text, ''), coalesce(max(key_order), '') from jobq.queue").Scan(&limit, &order))
		return limit, order
	}
	refused := func(change, want string) {
		t.Helper()
		require.ErrorContains(t, q.refusal("select jobq.act_queue_set('test', 'default', $1::jsonb)", change), want)
	}
	q.set(`{"key_order": "hold"}`)
	limit, order := stored()
	require.Equal(t, []string{"1", "hold"}, []string{limit, order})
	refused(`{"key_limit": 2}`, "key_order needs key_limit 1")
	refused(`{"key_limit": null}`, "key_order needs key_limit 1")
	refused(`{"key_order": "strict"}`, "key_order must be hold, pass or stop")
	require.Equal(t, 1, q.number("select count(*) from jobq.undo('test', 1) u where u.problem is null"))
	limit, order = stored()
	require.Equal(t, []string{"", ""}, []string{limit, order})
	q.set(`{"key_limit": 3}`)
	refused(`{"key_order": "hold"}`, "key_order needs key_limit 1")
}

// Many claim and end in all ways at once, and some are lost. Of each key, the starts are in the order of the ids, and never do two run.
func TestKeyOrderOverManyClaimers(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := ordered(t, "hold")
	const claimers, rounds, keys = 6, 60, 3
	q.exec("select jobq.enqueue('k', partition_key => 'key ' || i % $1, max_attempts => 4) from generate_series(1, 90) i", keys)
	q.exec("update jobq.pending set backoff_max = '1 ms', backoff_base = '1 ms'")
	var mu sync.Mutex
	running, last := make(map[string]int64), make(map[string]int64)
	began := func(job db.KeyedJob) error {
		if other := running[job.PartitionKey]; other != 0 {
			return fmt.Errorf("job %d of %s starts while %d runs", job.ID, job.PartitionKey, other)
		}
		if job.ID < last[job.PartitionKey] {
			return fmt.Errorf("job %d of %s starts after %d", job.ID, job.PartitionKey, last[job.PartitionKey])
		}
		running[job.PartitionKey], last[job.PartitionKey] = job.ID, job.ID
		return nil
	}
	var group errgroup.Group
	for i := range claimers {
		owner, seed := fmt.Sprint("worker ", i), rand.Uint64()
		group.Go(func() error {
			random := rand.New(rand.NewPCG(seed, 0)) // #nosec G404 -- a test
			exchange := keyed(owner, 10)
			for range rounds {
				answer, err := q.schema.Exchange(ctx, q.pool, exchange)
				if err != nil {
					return fmt.Errorf("seed %d: %w", seed, err)
				}
				mu.Lock()
				for _, job := range answer.Keyed {
					if err == nil {
						err = began(job)
					}
				}
				mu.Unlock()
				if err != nil {
					return fmt.Errorf("seed %d: %w", seed, err)
				}
				if _, err := q.schema.Promote(ctx, q.pool, db.DuePlace{}, 100); err != nil { // they run for a while
					return err
				}
				exchange = keyed(owner, 10)
				mu.Lock()
				var lost []string
				for _, job := range answer.Keyed {
					delete(running, job.PartitionKey)
					exchange.EndedKeys = append(exchange.EndedKeys, job.PartitionKey)
					switch random.IntN(6) {
					case 0:
						exchange.Completions = append(exchange.Completions, db.Completion{Slot: at(job.JobClaimRow), Kind: "k"})
					case 1:
						exchange.Completions = append(exchange.Completions, db.Completion{Slot: at(job.JobClaimRow), Kind: "k", OnRow: true})
					case 2:
						exchange.Endings = append(exchange.Endings, endingOf(job.JobClaimRow, "snoozed"))
					case 3:
						exchange.Endings = append(exchange.Endings, endingOf(job.JobClaimRow, "released"))
					case 4:
						exchange.Endings = append(exchange.Endings, endingOf(job.JobClaimRow, "failed"))
					default:
						lost = []string{owner} // with all others that the worker has
					}
				}
				mu.Unlock()
				if lost != nil {
					exchange = keyed(owner, 10)
					mu.Lock()
					_, err := q.schema.Reap(ctx, q.pool, lost, 100, "test")
					if err == nil { // this is about the line, which suspects leave
						_, err = q.pool.Exec(ctx, "update jobq.pending set crashes = 0 where crashes > 0")
					}
					mu.Unlock()
					if err != nil {
						return err
					}
				}
			}
			exchange.Claim = nil
			_, err := q.schema.Exchange(ctx, q.pool, exchange)
			return err
		})
	}
	require.NoError(t, group.Wait())
	require.Len(t, last, keys)
	for key, id := range last {
		require.Greater(t, id, int64(2*keys), key)
	}
}

// The janitor forgets which job of a key was last, where nobody has to know any more: in steps, and
// not while the job runs, waits, or stops its key.
func TestLaneHeadPrune(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := ordered(t, "stop")
	prune := func(rowCount int32) (steps int) {
		t.Helper()
		for place := (db.LaneHeadPruneRow{}); ; steps++ {
			row, err := q.schema.Queries(q.pool).LaneHeadPrune(ctx, place.LastQueue, place.LastKey, rowCount)
			require.NoError(t, err)
			if place = row; row.LastQueue == "" {
				return steps
			}
			require.Less(t, steps, 100)
		}
	}
	kept := func() int { return q.number("select count(*) from jobq.lane_head") }
	q.exec("select jobq.enqueue('k', partition_key => 'key ' || i) from generate_series(1, 10) i")
	jobs := q.exchange(keyed("w", 10)).Keyed
	require.Len(t, jobs, 10)
	require.Equal(t, 3, prune(3))
	require.Equal(t, 10, kept(), "all of them run")
	for i, job := range jobs {
		q.over(job, map[bool]string{true: "failed", false: "completed"}[i < 2], i == 0)
	}
	q.prune(100)
	require.Equal(t, 3, prune(3))
	require.Equal(t, 2, kept(), "one waits, and one stops its key")
	q.set(`{"key_order": "hold"}`)
	prune(100)
	require.Equal(t, 1, kept(), "one waits")
	q.set(`{"key_order": null}`)
	prune(100)
	require.Zero(t, kept(), "without an order nobody has to know; one that the queue gets later is not held by jobs of before")
	q.set(`{"key_order": "hold"}`)
	q.exec("insert into jobq.lane_head (queue, key, job_id, lease_id) select p.queue, p.partition_key, p.id, 1 from jobq.pending p")
	require.Equal(t, 1, kept())
	prune(100)
	require.Equal(t, 1, kept())
	q.exec("delete from jobq.pending")
	prune(100)
	require.Zero(t, kept())
}

// Jobs that wait for the retry of their key's head, or that a failed one stops, are no work to wait for; those that
// come after a job which runs are, and so are jobs without a key.
func TestWorkOfKeysInOrder(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"hold", "pass", "stop"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			q := ordered(t, order)
			waits := func(kinds ...string) bool {
				waits, err := q.queries.WorkWaits(context.Background(), true, kinds, []string{"default"})
				require.NoError(t, err)
				return waits
			}
			require.False(t, waits("k"), "nothing")
			q.enqueueKeyed("a", 3)
			require.True(t, waits("k"))
			require.False(t, waits("other"))
			first := q.takeOne(1, "the first")
			require.True(t, waits("k"), "the first one runs")
			q.over(first, "failed", false)
			require.Equal(t, order == "pass", waits("k"), "the first one waits for its retry")
			q.enqueueKeyed("b", 1)
			require.True(t, waits("k"), "another key")
			q.exec("delete from jobq.pending where partition_key = 'b'")
			q.exec("insert into jobq.pending (kind) values ('k')")
			require.True(t, waits("k"), "a job without a key")
			q.exec("delete from jobq.pending where partition_key = ''")
			if order != "pass" {
				q.promote()
				q.over(q.takeOne(1, "its retry"), "failed", true)
				require.Equal(t, order == "hold", waits("k"), "the first one has failed")
			}
		})
	}
}
