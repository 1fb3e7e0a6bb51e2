package worker

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/worker/internal/clock"
	"github.com/jobq-dev/jobq/worker/internal/leases"
)

// resultOf is the result of a failed run of the job under the lease.
func resultOf(job, lease int64) result {
	run := &Run{}
	run.row.ID, run.row.LeaseToken = job, lease
	return result{run: run, ending: &db.Ending{Started: true}}
}

// A claim of jobs with keys that took too long has the next one made in a round trip of its own,
// also where it was to take no others.
func TestKeyedClaimThatTakesTooLong(t *testing.T) {
	t.Parallel()
	w := &Worker{claimed: leases.NewClaims(), unanswered: make(chan struct{}, 1)}
	q := &queue{worker: w, load: newLoad(1)}
	(&claim{queue: q, underWay: w.claimed.Begin()}).failed(time.Second, context.DeadlineExceeded)
	require.True(t, q.load.isSeparate())
}

// News that come while a pass over the keys goes on have another one made, and without any
// the queue rests when the pass is over.
func TestNewsDuringAPassOfKeys(t *testing.T) {
	t.Parallel()
	l := newLoad(10)
	answered := func(pass db.LanePass, more bool) keysPlan {
		_, keys := l.beginKeyed(0)
		l.keysAnswered(0, keys, db.Exchanged{LanePass: pass, KeysMore: more}, 0)
		return keys
	}
	on := db.LanePass{FromTurn: 100, ToTurn: 300}
	require.Zero(t, answered(on, true).pass)
	require.True(t, l.keysNow)
	l.news()
	require.Equal(t, on, answered(db.LanePass{}, false).pass, "it goes on where it was")
	require.True(t, l.keysNow, "the news came after it began")
	require.Zero(t, answered(db.LanePass{}, false).pass)
	require.False(t, l.keysNow)
}

// Of throttled keys, a claim follows when the next one is due, after the delay, and none before it; an answer without any makes it forget.
func TestClaimWhenAKeyIsDue(t *testing.T) {
	t.Parallel()
	l := newLoad(10)
	l.setKeys(true)
	claims := func(now time.Duration) bool {
		_, count := l.take(now, true, false)
		if count > 0 {
			l.roundTripEnded(count, nil)
		}
		return count > 0
	}
	answered := func(now, wait, delay time.Duration) {
		claim := l.begin(now, &db.JobClaimParams{JobCount: 10}, false)
		l.answered(now, claim, nil, 0)
		_, keys := l.beginKeyed(now)
		l.keysAnswered(now, keys, db.Exchanged{KeysWait: wait}, delay)
	}
	require.True(t, claims(0))
	answered(0, time.Second, -time.Millisecond)
	look, _ := l.wakeTimes(0, false)
	require.Equal(t, time.Second, look)
	require.False(t, claims(time.Second-1))
	require.True(t, claims(time.Second))
	answered(time.Second, time.Second, 100*time.Millisecond)
	require.False(t, claims(2*time.Second))
	look, _ = l.wakeTimes(2*time.Second, false)
	require.Equal(t, 2100*time.Millisecond, look)
	l.news()
	require.True(t, claims(2*time.Second))
	answered(2*time.Second, 0, 0)
	require.False(t, claims(time.Hour))
}

// Jobs are claimed ahead from a queue with keys while these are known to have no limit.
func TestClaimsAheadOfKeys(t *testing.T) {
	t.Parallel()
	l := newLoad(10)
	require.True(t, l.mayClaimAhead())
	l.setKeys(true)
	require.False(t, l.mayClaimAhead(), "nobody knows yet")
	for _, has := range []bool{false, true, false} {
		_, keys := l.beginKeyed(0)
		l.keysAnswered(0, keys, db.Exchanged{HasKeyLimit: has}, 0)
		require.Equal(t, !has, l.mayClaimAhead())
	}
}

// What a claim has taken of a key with many jobs waits here behind the first job of each other key.
func TestKeysTakeTurnsInTheBuffer(t *testing.T) {
	t.Parallel()
	var runs []*Run
	for i, key := range []string{"big", "big", "big", "", "small", "", "small"} {
		run := &Run{partitionKey: key}
		run.row.ID = int64(i)
		runs = append(runs, run)
	}
	var order []int64
	for _, run := range takeTurns(runs) {
		order = append(order, run.row.ID)
	}
	require.Equal(t, []int64{0, 3, 4, 1, 5, 6, 2}, order)
}

// Results whose rows are locked are no runs that end again and again, and each
// is sent again after its delay, whatever else turns out to be locked.
func TestBusyResults(t *testing.T) {
	t.Parallel()
	l := newLoad(1)
	now := time.Hour
	require.Empty(t, l.setAside(now, []result{resultOf(1, 1)}, []int64{1}, busyDelay))
	require.Empty(t, l.setAside(now+busyDelay/2, []result{resultOf(2, 1)}, []int64{2}, busyDelay))
	_, other := l.wakeTimes(0, false)
	require.Equal(t, now+busyDelay, other)
	l.take(now, false, true) // begins to count how many end
	results, _ := l.take(now+busyDelay-1, false, true)
	require.Empty(t, results)
	results, _ = l.take(now+busyDelay, false, true)
	require.Len(t, results, 2)
	require.Equal(t, l.slots, l.planner.Count(l.slots, 0, true), "nothing has ended")
}

// A round trip that claims has asked for all the room: another claims only what
// comes free beside it.
func TestClaimsShareTheRoom(t *testing.T) {
	t.Parallel()
	l := newLoad(2)
	_, count := l.take(1, true, false)
	require.Equal(t, 2, count)
	require.False(t, l.hasRoom())
	l.news()
	_, count = l.take(2, true, false)
	require.Zero(t, count)
	l.roundTripEnded(2, nil)
	require.True(t, l.hasRoom())
	_, count = l.take(3, true, false)
	require.Equal(t, 2, count, "the news are not forgotten")
}

// Two round trips do not tell one lease of ends at once: what ends meanwhile waits
// until the first has landed.
func TestOneRoundTripForALease(t *testing.T) {
	t.Parallel()
	l := newLoad(3)
	l.ended(1, resultOf(1, 900))
	first, _ := l.take(2, false, false)
	require.Len(t, first, 1)
	l.ended(3, resultOf(2, 900))
	l.ended(3, resultOf(3, 901))
	second, _ := l.take(4, false, false)
	require.Len(t, second, 1)
	require.EqualValues(t, 901, second[0].run.row.LeaseToken)
	l.roundTripEnded(0, leasesOf(second))
	l.roundTripEnded(0, leasesOf(first))
	rest, _ := l.take(5, false, false)
	require.Len(t, rest, 1)
	require.EqualValues(t, 900, rest[0].run.row.LeaseToken)
}

// Jobs in the buffer that have waited long for a slot are for others. They wait for
// one only while there are more jobs than slots: else each begins as soon as the
// machine has time for it, and stays.
func TestStuckJobsHaveNoSlot(t *testing.T) {
	t.Parallel()
	l := newLoad(2)
	claimed := func(now time.Duration, count int) {
		claim := l.begin(now, &db.JobClaimParams{JobCount: 10}, false)
		l.answered(now, claim, make([]db.JobClaimRow, count), 0)
	}
	now := time.Hour
	claimed(now, 2)
	require.False(t, l.isStuck(now+time.Minute))
	_, other := l.wakeTimes(0, true)
	require.Equal(t, clock.Never, other, "nothing is due again and again")

	now += time.Minute
	claimed(now, 1)
	_, other = l.wakeTimes(0, true)
	require.Equal(t, now+bufferTime, other)
	require.False(t, l.isStuck(other-1))
	require.True(t, l.isStuck(other))
	l.discarded(now)
	require.False(t, l.isStuck(other+time.Minute))
}
