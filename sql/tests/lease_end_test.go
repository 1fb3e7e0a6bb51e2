package tests

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// lease is a claim of several jobs, by slot.
type lease struct {
	*queue
	id   int64
	jobs map[int16]db.JobClaimRow
}

// leaseOf adds so many jobs and claims them, together, for a.
func leaseOf(q *queue, count int) lease {
	q.Helper()
	q.exec("select jobq.enqueue('k', max_attempts => 5) from generate_series(1, $1::integer)", count)
	l := lease{queue: q, jobs: make(map[int16]db.JobClaimRow, count)}
	for _, job := range q.claim("a", int32(count)) { // #nosec G115 -- few
		l.id, l.jobs[job.Slot] = job.LeaseToken, job
	}
	require.Len(q, l.jobs, count)
	return l
}

// completions are plain successes in these slots.
func (l lease) completions(slots ...int16) (completions []db.Completion) {
	for _, slot := range slots {
		completions = append(completions, plainly(l.jobs[slot]))
	}
	return completions
}

// succeed completes jobs plainly, and returns the ids of those of which that is stored.
func (l lease) succeed(slots ...int16) []int64 {
	l.Helper()
	return l.exchange(db.Exchange{Owner: "a", Completions: l.completions(slots...)}).Completed
}

// ids are those of the jobs in these slots.
func (l lease) ids(slots ...int16) (ids []int64) {
	for _, slot := range slots {
		ids = append(ids, l.jobs[slot].ID)
	}
	return ids
}

// state is that of the job in a slot.
func (l lease) state(slot int16) (state string) {
	l.Helper()
	require.NoError(l, l.pool.QueryRow(context.Background(), "select state::text from jobq.job where id = $1", l.jobs[slot].ID).Scan(&state))
	return state
}

// states are those of all jobs, by slot.
func (l lease) states() (states []string) {
	l.Helper()
	for slot := range len(l.jobs) {
		states = append(states, l.state(int16(slot+1))) // #nosec G115 -- few
	}
	return states
}

// age makes the claim be that much longer ago.
func (l lease) age(by time.Duration) {
	l.Helper()
	l.exec("update jobq.lease set claimed_at = claimed_at - $2::interval where id = $1", l.id, by)
	for slot, job := range l.jobs {
		job.StartedAt.Time = job.StartedAt.Time.Add(-by)
		l.jobs[slot] = job
	}
}

// lose makes the lease expire and reaps at most so many runs. It returns how many it took.
func (l lease) lose(count int32) int {
	l.Helper()
	l.expire()
	reaped, err := l.schema.Reap(context.Background(), l.pool, nil, count, "test")
	require.NoError(l, err)
	return len(reaped)
}

func (q *queue) leases() int {
	q.Helper()
	return q.number("select count(*) from jobq.lease")
}

// The place of an id in a lease is the slot of its run, also if somebody else
// keeps some jobs in between from being claimed.
func TestSlotsAreThoseOfTheLease(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("select jobq.enqueue('k', priority => (i * 7) % 5) from generate_series(1, 300) i")
	tx, err := q.pool.Begin(context.Background())
	require.NoError(t, err)
	_, err = tx.Exec(context.Background(), "select from jobq.pending where id % 10 = 0 for update")
	require.NoError(t, err)
	jobs := q.claim("a", 1000)
	require.NoError(t, tx.Rollback(context.Background()))
	require.Len(t, jobs, 270)
	for _, job := range jobs {
		require.Equal(t, 1, q.number("select count(*) from jobq.lease where id = $1 and job_ids[$2] = $3", job.LeaseToken, job.Slot, job.ID))
	}
	require.Equal(t, 270, q.number("select count(*) from jobq.run r join jobq.lease l on l.id = r.lease_id where l.job_ids[r.slot] = r.id"))
}

// Trap 1: after some of its jobs were reaped, a stale owner's bulk end is
// refused as a whole, on the jobs' own rows as well; what had ended before is
// answered as completed.
func TestStaleBulkEndIsRefusedAsAWhole(t *testing.T) {
	t.Parallel()
	l := leaseOf(setUp(t), 4)
	require.Equal(t, l.ids(1), l.succeed(1))
	require.Equal(t, "scheduled", l.end(l.jobs[2], db.Ending{Outcome: "failed", Delay: db.DelayOf(time.Hour)}))
	require.Equal(t, 2, l.lose(100), "3 and 4")
	require.Zero(t, l.leases())
	before := l.everything()
	answer := l.exchange(db.Exchange{Owner: "a", Completions: l.completions(1, 3, 4)})
	require.Equal(t, l.ids(1), answer.Completed)
	require.Empty(t, answer.Busy)
	require.Empty(t, answer.Unrecorded)
	require.Equal(t, before, l.everything())
	require.Equal(t, []string{"completed", "scheduled", "available", "available"}, l.states())
	require.Equal(t, 1, l.number("select sum(completed) from jobq.stats"))
}

// Trap 1: an exchange that is sent again after its answer was lost changes and
// counts nothing, and answers as the first did; also beside ends that are new, and when
// the lease has moved to the history meanwhile.
func TestEndIsCountedOnce(t *testing.T) {
	t.Parallel()
	l := leaseOf(setUp(t), 5)
	require.Equal(t, l.ids(1, 2), l.succeed(1, 2))
	before := l.everything()
	require.Equal(t, l.ids(1, 2), l.succeed(1, 2))
	require.Equal(t, before, l.everything())

	require.Equal(t, l.ids(2, 3), l.succeed(2, 3), "one is new")
	require.Equal(t, 3, l.number("select sum(completed) from jobq.stats"))
	require.Equal(t, l.ids(4, 5), l.succeed(4, 5))
	require.Zero(t, l.leases())
	before = l.everything()
	require.Equal(t, l.ids(1, 3, 5), l.succeed(1, 3, 5))
	require.Equal(t, before, l.everything())
	require.Equal(t, 5, l.number("select sum(completed) from jobq.stats"))
	require.Equal(t, 5, l.number("select count(*) from jobq.job where state = 'completed' and finished_at >= started_at"))
}

// Trap 3: of 500 jobs of a lease one is slow: the others are completed at once
// for everybody, the slow one is still extended, and when its worker dies, it
// alone is lost.
func TestOneSlowJobOfALease(t *testing.T) {
	t.Parallel()
	l := leaseOf(setUp(t), 500)
	var others []int16
	for slot := range l.jobs {
		if slot != 7 {
			others = append(others, slot)
		}
	}
	require.Len(t, l.succeed(others...), 499)
	require.Equal(t, 499, l.number("select count(*) from jobq.job where state = 'completed' and finished_at >= started_at"))
	require.Equal(t, "running", l.state(7))
	require.Equal(t, db.LeaseOK, l.extend("a", at(l.jobs[1]), time.Hour))
	require.Equal(t, 1, l.lose(100))
	require.Zero(t, l.leases())
	require.Equal(t, "available", l.state(7))
	require.Equal(t, 1, l.number("select count(*) from jobq.attempt where outcome = 'lost' and job_id = $1", l.jobs[7].ID))
	require.Equal(t, 499, l.number("select count(*) from jobq.job where state = 'completed'"))
}

// Trap 4: a token that comes again after a failover to a standby that did not
// have all does not make one owner's writes count for another's jobs.
func TestRepeatedTokenOfAnotherOwner(t *testing.T) {
	t.Parallel()
	l := leaseOf(setUp(t), 1)
	l.change(pgtest.Columns{"lease_owner": "'another'"}, "true") // which has claimed the same job under the same number
	before := l.everything()
	for name, write := range writes {
		require.False(t, write(l.queue, at(l.jobs[1]), "a"), name)
		require.Equal(t, before, l.everything(), name)
	}
	fate, err := l.queries.RunFate(context.Background(), fateOf(l.jobs[1]))
	require.NoError(t, err)
	require.Equal(t, db.RunFateRow{}, fate)
	require.True(t, writes["complete"](l.queue, at(l.jobs[1]), "another"))
	require.Empty(t, l.succeed(1), "nor when it has ended: it is not this owner's end")
}

// Trap 5: what had succeeded, and was not yet sent when the worker died, runs
// again; what was sent does not.
func TestUnsentSuccessRunsAgain(t *testing.T) {
	t.Parallel()
	l := leaseOf(setUp(t), 3)
	require.Equal(t, l.ids(1), l.succeed(1))
	require.Equal(t, 2, l.lose(100)) // 2 has succeeded as well, as its worker alone knew
	again := l.claim("b", 10)
	require.ElementsMatch(t, l.ids(2, 3), ids(again))
	require.Greater(t, again[0].LeaseToken, l.id, "tokens grow with every claim")
}

// The charts have what runs took from their claim on, by both kinds of end. For
// finished_at see TestFinishedAtIsExact.
func TestRunSecondsOfBothEnds(t *testing.T) {
	t.Parallel()
	l := leaseOf(setUp(t), 2)
	l.age(1234 * time.Millisecond)
	for slot, onRow := range map[int16]bool{1: false, 2: true} {
		completion := l.completions(slot)
		completion[0].OnRow = onRow
		require.Equal(t, l.ids(slot), l.exchange(db.Exchange{Owner: "a", Completions: completion}).Completed)
	}
	require.Equal(t, 1, l.number("select count(*) from jobq.run where state is not null"), "one each")
	require.GreaterOrEqual(t, l.number("select (sum(run_seconds) * 1000)::integer from jobq.stats"), 2*1234)
}

// Trap 9: what was claimed longer ago than a smallint has milliseconds for ends
// on its own row, also when its worker thinks otherwise, and so does what has
// waited in the worker together with it. The lease is told of both.
func TestLongRunEndsOnItsOwnRow(t *testing.T) {
	t.Parallel()
	l := leaseOf(setUp(t), 3)
	l.age(40 * time.Second)
	require.Equal(t, l.ids(1, 2), l.succeed(1, 2))
	require.Equal(t, 2, l.number(`select count(*) from jobq.run r join jobq.job j using (id)
		where r.state = 'completed' and j.finished_at > j.started_at + interval '40 s'`))
	require.Equal(t, 1, l.number("select count(*) from jobq.lease where ended_ms = '{-1,-1}'"))
	last := l.completions(3)
	last[0].OnRow = true
	require.Equal(t, l.ids(3), l.exchange(db.Exchange{Owner: "a", Completions: last}).Completed)
	require.Zero(t, l.leases())
	require.Equal(t, 1, l.number("select count(*) from jobq.past_lease where ended = '{-1,-1,-1}'"))
	require.Equal(t, []string{"completed", "completed", "completed"}, l.states())
	require.Equal(t, 3, l.number("select sum(completed) from jobq.stats"))
}

// A job with a unique key ends on its own row, and gives the key up then; the
// claim says that it has one.
func TestUniqueKeyEndsOnItsOwnRow(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("select jobq.enqueue('k', unique_key => 'u')")
	job := q.claim("a", 1)[0]
	require.True(t, job.HasKey)
	done := plainly(job)
	done.OnRow = job.HasKey
	require.Equal(t, []int64{job.ID}, q.exchange(db.Exchange{Owner: "a", Completions: []db.Completion{done}}).Completed)
	require.Zero(t, q.number("select count(*) from jobq.unique_key"))
	require.Zero(t, q.leases())
	require.Greater(t, q.number("select jobq.enqueue('k', unique_key => 'u')"), 1)
}

// Where jobs extend their own leases by what they report, each has one.
func TestLeaseForEachJob(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("select jobq.enqueue('k') from generate_series(1, 5)")
	jobs := q.claimEach("a", 5)
	require.Equal(t, 5, q.number("select count(*) from jobq.run r join jobq.lease l on l.id = r.lease_id where l.job_ids = array[r.id] and r.slot = 1"))
	stored, err := q.queries.RunProgress(context.Background(), db.RunProgressParams{ID: 1, Token: jobs[1].LeaseToken, Owner: "a", ClaimedAt: jobs[1].StartedAt, ExtendBy: db.Interval(2 * time.Hour)})
	require.NoError(t, err)
	require.EqualValues(t, 1, stored)
	require.Equal(t, 1, q.number("select count(*) from jobq.job where state = 'running' and lease_expires_at > now() + interval '90 minutes'"))
	for id := range int64(5) {
		q.exchange(db.Exchange{Owner: "a", Completions: []db.Completion{plainly(jobs[id+1])}})
		require.Equal(t, 4-int(id), q.leases())
	}
	require.Equal(t, 5, q.number("select count(*) from jobq.job where state = 'completed'"))
}

// An end on its own row is stored although somebody has the lease locked; the
// lease is told of it later. It is told nothing of an end that was not stored,
// and a lease that is gone is not asked for again.
func TestUnrecordedEnd(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := leaseOf(setUp(t), 4)
	release := l.lockLeases(l.id)
	answer, err := l.schema.Exchange(ctx, l.pool, db.Exchange{Owner: "a", Completions: []db.Completion{
		{Slot: at(l.jobs[1]), Kind: "k", Result: json.RawMessage("1")}, plainly(l.jobs[2]),
	}, Endings: []db.Ending{{Slot: at(l.jobs[3]), Outcome: "failed", Error: "e", Started: true}}})
	require.NoError(t, err)
	require.ElementsMatch(t, l.ids(1, 2), answer.Completed, "the plain one has ended on its own row, then")
	require.Len(t, answer.Ended, 1)
	require.ElementsMatch(t, []db.Slot{at(l.jobs[1]), at(l.jobs[2]), at(l.jobs[3])}, answer.Unrecorded)
	require.Equal(t, []string{"completed", "completed", "scheduled", "running"}, l.states())
	again := l.exchange(db.Exchange{Owner: "a", Unrecorded: answer.Unrecorded})
	require.Equal(t, answer.Unrecorded, again.Unrecorded, "still locked")
	release()

	// 4 has not ended: it is not counted, though somebody says so.
	recorded := l.exchange(db.Exchange{Owner: "a", Unrecorded: append(answer.Unrecorded, at(l.jobs[4]), at(l.jobs[1]))})
	require.Empty(t, recorded.Unrecorded)
	require.Equal(t, 1, l.number("select count(*) from jobq.lease where ended_ms = '{-1,-1,-1}'"), "each once")
	require.Equal(t, 2, l.number("select sum(completed) from jobq.stats"))
	require.Equal(t, l.ids(4), l.succeed(4))
	require.Zero(t, l.leases())
	require.Empty(t, l.exchange(db.Exchange{Owner: "a", Unrecorded: answer.Unrecorded}).Unrecorded)
}

// An end whose row somebody has locked is busy, and the lease is not told of it
// until it is stored.
func TestLockedEndIsNotRecorded(t *testing.T) {
	t.Parallel()
	l := leaseOf(setUp(t), 2)
	release := l.lockRuns(l.jobs[1].ID)
	exchange := db.Exchange{Owner: "a", Completions: l.completions(2), Endings: []db.Ending{{Slot: at(l.jobs[1]), Outcome: "failed", Started: true}}}
	answer, err := l.schema.Exchange(context.Background(), l.pool, exchange)
	require.ErrorIs(t, err, db.ErrBusy)
	require.Equal(t, l.ids(2), answer.Completed)
	require.Equal(t, l.ids(1), answer.Busy)
	require.Empty(t, answer.Unrecorded)
	require.Equal(t, 1, l.number("select count(*) from jobq.lease where ended_slots = '{2}'"))
	release()
	exchange.Completions = nil
	require.Len(t, l.exchange(exchange).Ended, 1)
	require.Zero(t, l.leases())
}

// A token that comes again for the same owner, after a failover to a standby that
// did not have all, is another lease: it is not told of what had the slot before.
func TestRepeatedTokenOfTheSameOwner(t *testing.T) {
	t.Parallel()
	stale := func(l lease) db.Slot {
		return db.Slot{ID: 4711, Token: l.id, Slot: 1, ClaimedAt: l.jobs[1].StartedAt.Time.Add(-time.Hour)}
	}
	for name, say := range map[string]func(at db.Slot, exchange *db.Exchange){
		"plain": func(at db.Slot, e *db.Exchange) {
			e.Completions = append(e.Completions, db.Completion{Slot: at, Kind: "k"})
		},
		"on row": func(at db.Slot, e *db.Exchange) {
			e.Completions = append(e.Completions, db.Completion{Slot: at, Kind: "k", OnRow: true})
		},
		"failed": func(at db.Slot, e *db.Exchange) {
			e.Endings = append(e.Endings, db.Ending{Slot: at, Outcome: "failed", Started: true})
		},
		"unrecorded": func(at db.Slot, e *db.Exchange) { e.Unrecorded = append(e.Unrecorded, at) },
		"twofold": func(at db.Slot, e *db.Exchange) {
			e.Unrecorded = append(e.Unrecorded, at)
			e.Endings = append(e.Endings, db.Ending{Slot: at, Outcome: "snoozed"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := leaseOf(setUp(t), 3)
			alone := db.Exchange{Owner: "a"}
			say(stale(l), &alone)
			before := l.everything()
			answer := l.exchange(alone)
			require.Equal(t, before, l.everything())
			require.Empty(t, answer.Completed)
			require.Empty(t, answer.Ended)
			require.Empty(t, answer.Unrecorded, "its lease is gone")

			together := db.Exchange{Owner: "a", Completions: l.completions(2)}
			say(stale(l), &together)
			answer = l.exchange(together)
			require.Equal(t, l.ids(2), answer.Completed)
			require.Empty(t, answer.Unrecorded)
			require.Equal(t, 1, l.number("select count(*) from jobq.lease where ended_slots = '{2}'"))

			release := l.lockLeases(l.id)
			together.Completions = l.completions(3)
			together.Completions[0].OnRow = true
			say(stale(l), &together)
			require.Equal(t, []db.Slot{at(l.jobs[3])}, l.exchange(together).Unrecorded)
			release()
			require.Equal(t, "running", l.state(1))
			require.Equal(t, l.ids(1), l.succeed(1))
		})
	}
}
