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

// keyAct pauses or resumes a partition key, and returns the id in the audit.
func (q *queue) keyAct(action, key string) (audit int) {
	q.Helper()
	return q.number("select coalesce((select a.audit from jobq.act_key('me', $1, 'default', $2, null) a), 0)", action, key)
}

// keyPauseQueues are the settings of queues whose keys are paused in the tests.
var keyPauseQueues = map[string]string{"no limit": `{}`, "limit": `{"key_limit": 20}`, "order": `{"key_order": "hold"}`}

// Nothing of a key is claimed from the commit of its pause until it is resumed, whatever limits there are and
// in whatever way leases are given; other keys go on. Jobs that come, and such that end, change nothing of that, and it does
// not count as work that waits.
func TestPausedKeyIsNotClaimed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, settings := range keyPauseQueues {
		for _, each := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, each %t", name, each), func(t *testing.T) {
				t.Parallel()
				q := setUp(t)
				if name != "no limit" {
					q.set(settings)
				}
				claim := func(count int, jobs ...db.KeyedJob) db.Exchanged {
					exchange := ended(keyed("w", count), jobs...)
					exchange.Claim.LeasePerJob = each
					return q.exchange(exchange)
				}
				waits := func() bool {
					waits, err := q.queries.WorkWaits(ctx, true, []string{"k"}, []string{"default"})
					require.NoError(t, err)
					return waits
				}
				for _, key := range []string{"a", "b"} {
					q.enqueueKeyed(key, 10)
				}
				first := claim(2).Keyed
				require.Equal(t, map[string]int{"a": 1, "b": 1}, perKey(first))
				tx, err := q.pool.Begin(ctx)
				require.NoError(t, err)
				defer func() { _ = tx.Rollback(ctx) }()
				_, err = tx.Exec(ctx, "select jobq.act_key('me', 'key_pause', 'default', 'a', 'broken')")
				require.NoError(t, err)
				second := claim(2, first...).Keyed
				require.Equal(t, map[string]int{"a": 1, "b": 1}, perKey(second), "before the commit")
				require.NoError(t, tx.Commit(ctx))
				require.Zero(t, q.keyAct("key_pause", "a"), "already")
				require.NotContains(t, perKey(claim(4, second...).Keyed), "a")
				q.enqueueKeyed("a", 5)
				q.exec("delete from jobq.pending where partition_key = 'b'")
				none := claim(10)
				require.Empty(t, none.Keyed)
				require.False(t, none.KeysMore, "else workers would ask again and again")
				require.False(t, waits())
				q.enqueueKeyed("c", 1)
				require.True(t, waits(), "another key")
				require.Equal(t, map[string]int{"c": 1}, perKey(claim(10).Keyed))
				require.Positive(t, q.keyAct("key_resume", "a"))
				require.Zero(t, q.keyAct("key_resume", "a"), "already")
				require.True(t, waits())
				require.Equal(t, map[string]int{"a": 1}, perKey(claim(1).Keyed))
				require.Zero(t, q.number("select count(*) from jobq.paused_key"))
			})
		}
	}
}

// A key that is paused before its first job, and whose pause outlives its lane, is claimed from when it goes on.
func TestPauseOutlivesTheLane(t *testing.T) {
	t.Parallel()
	for name, settings := range keyPauseQueues {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			if name != "no limit" {
				q.set(settings)
			}
			q.keyAct("key_pause", "a")
			q.enqueueKeyed("a", 2)
			q.enqueueKeyed("b", 1)
			require.Equal(t, map[string]int{"b": 1}, perKey(q.exchange(keyed("w", 10)).Keyed))
			q.exec("delete from jobq.pending")
			require.Empty(t, q.exchange(keyed("w", 10)).Keyed)
			q.exec("select * from jobq.lane_prune('', '', 0, 100)")
			require.Zero(t, q.number("select count(*) from jobq.lane where key = 'a'"))
			q.enqueueKeyed("a", 1)
			require.Empty(t, q.exchange(keyed("w", 10)).Keyed)
			q.exec("select * from jobq.lane_prune('', '', 0, 100)")
			q.enqueueKeyed("a", 1)
			q.exec("select * from jobq.lane_prune('', '', 0, 100)") // which takes the hint away
			require.Empty(t, q.exchange(keyed("w", 10)).Keyed)
			q.exec("delete from jobq.lane") // as when none was found for a day
			require.Empty(t, q.exchange(keyed("w", 10)).Keyed)
			q.keyAct("key_resume", "a")
			require.Equal(t, map[string]int{"a": 1}, perKey(q.exchange(keyed("w", 1)).Keyed))
		})
	}
}

// Neither the look at keys that are full for a minute makes a paused key ready, nor a limit that changes, nor the janitor.
func TestPausedKeyIsNotMadeReady(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.set(`{"key_limit": 2}`)
	q.enqueueKeyed("a", 10)
	jobs := q.exchange(keyed("w", 10)).Keyed
	require.Len(t, jobs, 2)
	require.Equal(t, 1, q.number("select count(*) from jobq.lane where full_limit = 2"))
	q.keyAct("key_pause", "a")
	answer := ended(keyed("w", 10), jobs...)
	answer.EndedKeys = nil // nobody tells of the places that are free
	require.Empty(t, q.exchange(answer).Keyed)
	q.exec("update jobq.lane set looked_at = now() - interval '1 hour'")
	require.Empty(t, q.exchange(keyed("w", 10)).Keyed, "a minute later")
	q.set(`{"key_limit": 3}`)
	require.Empty(t, q.exchange(keyed("w", 10)).Keyed, "a higher limit")
	q.set(`{"key_limit": null}`)
	require.Empty(t, q.exchange(keyed("w", 10)).Keyed, "no limit")
	q.set(`{"key_limit": 1}`)
	require.Empty(t, q.exchange(keyed("w", 10)).Keyed, "a limit again")
	q.prune(100)
	require.Empty(t, q.exchange(keyed("w", 10)).Keyed, "after the janitor")
	q.keyAct("key_resume", "a")
	require.Len(t, q.exchange(keyed("w", 10)).Keyed, 1)
}

// A pause frees no places, and a key that goes on is as full as it is.
func TestPauseOfAFullKey(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.set(`{"key_limit": 2}`)
	q.enqueueKeyed("a", 10)
	jobs := q.exchange(keyed("w", 10)).Keyed
	require.Len(t, jobs, 2)
	for range 2 { // with claims that have noted it and without
		q.keyAct("key_pause", "a")
		q.keyAct("key_resume", "a")
		require.Empty(t, q.exchange(keyed("w", 10)).Keyed)
		q.keyAct("key_pause", "a")
		require.Empty(t, q.exchange(keyed("w", 10)).Keyed)
		q.keyAct("key_resume", "a")
		require.Empty(t, q.exchange(keyed("w", 10)).Keyed)
	}
	q.keyAct("key_pause", "a")
	require.Empty(t, q.exchange(ended(keyed("w", 10), jobs[0])).Keyed)
	q.keyAct("key_resume", "a")
	require.Len(t, q.exchange(keyed("w", 10)).Keyed, 1, "the other one runs")
}

// A key that has gone on before a claim has heard of its pause stays ready, although the hint of that comes late: a claim may
// have begun before the pause, and have taken the hint of its end away.
func TestPauseThatIsOverBeforeItIsHeardOf(t *testing.T) {
	t.Parallel()
	for name, settings := range keyPauseQueues {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			if name != "no limit" {
				q.set(settings)
			}
			q.enqueueKeyed("a", 10)
			q.exec("select * from jobq.lane_prune('', '', 0, 100)")
			require.Equal(t, 1, q.number("select count(*) from jobq.lane where key = 'a' and turn is not null"))
			q.keyAct("key_pause", "a")
			q.keyAct("key_resume", "a")
			q.exec("delete from jobq.lane_hint where id > 0")
			require.Len(t, q.exchange(keyed("w", 1)).Keyed, 1)
		})
	}
}

// A key whose jobs run in order goes on where it was: at the head that waits for its retry, or else at the next job.
func TestPauseOfAnOrderedKey(t *testing.T) {
	t.Parallel()
	q := ordered(t, "hold")
	q.enqueueKeyed("a", 3)
	first := q.takeOne(1, "the first")
	q.keyAct("key_pause", "a")
	q.over(first, "failed", false)
	require.Empty(t, q.next())
	q.promote()
	require.Empty(t, q.next(), "its head may run, but for the pause")
	q.keyAct("key_resume", "a")
	first = q.takeOne(1, "its retry, before the others")
	q.over(first, "failed", false)
	q.keyAct("key_pause", "a")
	require.Empty(t, q.next())
	q.keyAct("key_resume", "a")
	require.Empty(t, q.next(), "the head waits for its retry")
	q.promote()
	q.over(q.takeOne(1, "its retry"), "completed", false)
	q.over(q.takeOne(2, "the second"), "completed", false)
	q.takeOne(3, "the third")
}

// Of more pauses than a claim takes in at a time, those that are left over count all the same: it takes nothing
// until it has heard of all.
func TestManyPausesAtOnce(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("select jobq.enqueue('k', partition_key => 'key ' || i) from generate_series(1, 1200) i")
	taken, _ := q.passOf(keyed("w", 300))
	require.Len(t, taken, 1200)
	q.exec("select jobq.enqueue('k', partition_key => 'key ' || i) from generate_series(1, 1200) i")
	require.NotEmpty(t, q.exchange(keyed("w", 1)).Keyed)
	q.exec("select jobq.act_key('me', 'key_pause', 'default', 'key ' || i, null) from generate_series(1, 1200) i")
	q.enqueueKeyed("z", 2)
	none := q.exchange(keyed("w", 2000))
	require.Empty(t, none.Keyed)
	require.True(t, none.KeysMore)
	taken, claims := q.passOf(keyed("w", 2000))
	require.Equal(t, map[string]int{"z": 2}, taken)
	require.LessOrEqual(t, claims, 5)
	require.Zero(t, q.number("select count(*) from jobq.lane_hint"))
	q.exec("select jobq.act_key('me', 'key_resume', 'default', 'key ' || i, null) from generate_series(1, 1200) i")
	taken, _ = q.passOf(keyed("w", 300))
	require.Len(t, taken, 1199)
}

// A pause alone does not make claims of a queue look for keys, and the hints of pauses are taken away of a queue, too, that
// nobody claims from.
func TestPauseInAQueueWithoutKeys(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.keyAct("key_pause", "a")
	require.Equal(t, 1, q.number("select count(*) from jobq.lane_hint"))
	require.Empty(t, q.exchange(keyed("w", 10)).Keyed)
	require.Zero(t, q.number("select count(*) from jobq.lane"))
	settings, err := q.queries.WorkerBeat(context.Background(), db.WorkerBeatParams{
		ID: "w", Queues: []byte("{}"), Kinds: []string{}, Programs: []byte("{}"), QueueNames: []string{"default"}, Silence: hour,
	})
	require.NoError(t, err)
	require.False(t, settings[0].HasKeys)
	q.exec("select * from jobq.lane_prune('', '', 0, 100)")
	require.Zero(t, q.number("select count(*) from jobq.lane_hint"))
	require.Zero(t, q.number("select count(*) from jobq.lane"))
}

// Keys that are paused cost a claim nothing, however many they are and however many jobs they have; and what it has yet
// to hear of costs it as much as that is.
func TestLaneClaimBesideManyPausedKeys(t *testing.T) {
	t.Parallel()
	for name, settings := range keyPauseQueues {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			for _, table := range []string{"pending", "lane", "lane_hint", "paused_key"} {
				q.exec("alter table jobq." + table + " set (autovacuum_enabled = off)")
			}
			q.exec("insert into jobq.queue (name) values ('keys')")
			if name != "no limit" {
				q.exec("select jobq.act_queue_set('me', 'keys', $1::text::jsonb)", settings)
			}
			q.exec("insert into jobq.pending (kind, queue, partition_key) select 'k', 'keys', 'paused ' || i % 20000 from generate_series(1, 60000) i")
			q.exec("truncate jobq.lane_hint")
			q.exec("insert into jobq.lane (queue, key) values ('keys', '')")
			q.exec("insert into jobq.lane (queue, key, held_leases) select 'keys', 'paused ' || i, '{}' from generate_series(0, 19999) i")
			q.exec("insert into jobq.paused_key (queue, key, paused_at, paused_by) select 'keys', 'paused ' || i, now(), 'me' from generate_series(0, 19999) i")
			q.exec("insert into jobq.pending (kind, queue, partition_key) select 'k', 'keys', 'ready ' || i % 10 from generate_series(1, 100) i")
			for _, buffers := range q.laneBuffers() {
				require.LessOrEqual(t, buffers, laneBuffersMax)
			}
			q.exec("insert into jobq.lane_hint (queue, key) select 'keys', 'paused ' || i from generate_series(0, 19999) i")
			for _, buffers := range q.laneBuffers() {
				require.LessOrEqual(t, buffers, 20_000, "a thousand hints")
			}
			q.exec("truncate jobq.lane_hint")
			q.exec("insert into jobq.lane_hint (id, queue, key) overriding system value select -i, 'keys', 'paused ' || i - 1 from generate_series(1, 20000) i")
			q.exec("update jobq.lane set turn = nextval('jobq.lane_turn_seq') where key <> ''")
			for _, buffers := range q.laneBuffers() {
				require.LessOrEqual(t, buffers, 40_000, "a thousand pauses")
			}
		})
	}
}

// Keys are paused and go on while many claim, jobs come, and transactions commit late. No claim takes a job of
// a key that was paused when it began and until it ended; and in the end all have run.
func TestPausedKeysBesideManyClaimers(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, settings := range keyPauseQueues {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			if name != "no limit" {
				q.set(settings)
			}
			const keys, claimers, rounds, added = 3, 4, 60, 120
			// since is which of a key's pauses is in effect; 0 for none.
			var mu sync.Mutex
			var since [keys]int
			seen := func() [keys]int { mu.Lock(); defer mu.Unlock(); return since }
			set := func(key, to int) { mu.Lock(); defer mu.Unlock(); since[key] = to }
			seed := rand.Uint64()
			var group errgroup.Group
			group.Go(func() error { // who adds jobs
				for i := range added {
					tx, err := q.pool.Begin(ctx)
					if err != nil {
						return err
					}
					if _, err = tx.Exec(ctx, "select jobq.enqueue('k', partition_key => $1)", fmt.Sprint(i%keys)); err != nil {
						return err
					}
					if _, err = tx.Exec(ctx, "select count(*) from jobq.pending"); err != nil { // it commits late
						return err
					}
					if err = tx.Commit(ctx); err != nil {
						return err
					}
				}
				return nil
			})
			group.Go(func() error { // who pauses
				random := rand.New(rand.NewPCG(seed, 1)) // #nosec G404 -- a test
				for i := range rounds {
					key, action := random.IntN(keys), "key_pause"
					if seen()[key] > 0 {
						set(key, 0) // from here on, a claim may take its jobs
						action = "key_resume"
					}
					tx, err := q.pool.Begin(ctx)
					if err != nil {
						return err
					}
					if _, err = tx.Exec(ctx, "select jobq.act_key('me', $1, 'default', $2, null)", action, fmt.Sprint(key)); err != nil {
						return err
					}
					if _, err = tx.Exec(ctx, "select count(*) from jobq.run"); err != nil { // it commits late
						return err
					}
					if err = tx.Commit(ctx); err != nil {
						return err
					}
					if action == "key_pause" {
						set(key, i+1)
					}
				}
				return nil
			})
			claim := func(exchange db.Exchange) ([]db.KeyedJob, error) {
				before := seen()
				answer, err := q.schema.Exchange(ctx, q.pool, exchange)
				after := seen()
				for _, job := range answer.Keyed {
					key := int(job.PartitionKey[0] - '0')
					if before[key] > 0 && before[key] == after[key] {
						return nil, fmt.Errorf("seed %d: job %d of key %d was claimed while that was paused", seed, job.ID, key)
					}
				}
				return answer.Keyed, err
			}
			for i := range claimers {
				group.Go(func() error {
					exchange := keyed(fmt.Sprint("worker ", i), 2)
					for range rounds {
						jobs, err := claim(exchange)
						if err != nil {
							return err
						}
						exchange = ended(keyed(fmt.Sprint("worker ", i), 2), jobs...)
					}
					exchange.Claim = nil
					_, err := q.schema.Exchange(ctx, q.pool, exchange)
					return err
				})
			}
			require.NoError(t, group.Wait())
			for key := range keys {
				q.keyAct("key_resume", fmt.Sprint(key))
			}
			for answer := q.exchange(keyed("w", 100)); len(answer.Keyed) > 0 || answer.KeysMore; {
				answer = q.exchange(ended(keyed("w", 100), answer.Keyed...))
			}
			require.Equal(t, added, q.number("select count(*) from jobq.job where state = 'completed'"), "seed %d", seed)
		})
	}
}

// Beside a paused key, more keys than are looked at have jobs of another kind. A worker that ends when there is no work
// has none with them; a job of its own kind behind all of them is work.
func TestPauseBesideManyKeysOfAnotherKind(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.number("select count(jobq.enqueue('other', partition_key => to_char(i, 'FM00000'))) from generate_series(1, 1001) i")
	require.Positive(t, q.keyAct("key_pause", "x"))
	waits := func() bool {
		waits, err := q.queries.WorkWaits(ctx, true, []string{"k"}, []string{"default"})
		require.NoError(t, err)
		return waits
	}
	require.False(t, waits())
	q.enqueueKeyed("y", 1)
	require.True(t, waits())
}
