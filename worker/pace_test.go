package worker

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/worker/internal/clock"
)

// send does what a round trip does before its claim is sent.
func send(q *queue) (look look, want int) {
	if _, want = q.next(context.Background()); want > 0 {
		look = q.aim(&db.JobClaimParams{JobCount: int32(want)}) // #nosec G115 -- a few
	}
	return look, want
}

// News that comes while a claim is under way makes the queue claim again,
// whatever that claim has found, or that it has failed.
func TestNewsWhileClaiming(t *testing.T) {
	t.Parallel()
	const slots = 2
	for name, end := range map[string]func(*queue, look){
		"nothing found": func(q *queue, look look) { q.observeClaim(nil, look, 0) },
		"failed":        func(q *queue, look look) { q.claimFailed(look, 0, false) },
		"too slow":      func(q *queue, look look) { q.claimFailed(look, time.Second, true) },
	} {
		q := newQueue(&Worker{}, "default", slots)
		first, want := send(q)
		require.Equal(t, slots, want, name)
		require.True(t, first.isWhole(), name)
		signal(q.wake)
		_, want = send(q)
		require.Zero(t, want, "%s: the first has asked for all the room", name)
		end(q, first)
		q.landed(slots, nil)
		_, want = send(q)
		require.Equal(t, slots, want, name)
	}
}

// A look at the whole line that is under way has not seen what was given back
// to its old place since.
func TestLookAgain(t *testing.T) {
	t.Parallel()
	q := newQueue(&Worker{}, "default", 1)
	first, _ := send(q)
	require.True(t, first.isWhole())
	q.lookAgain()
	q.observeClaim(nil, first, 0)
	q.landed(1, nil)
	again, want := send(q)
	require.Equal(t, 1, want)
	require.True(t, again.isWhole())
}

// What a claim beyond the bound may have left, an older look at the whole line
// has not seen either, if there was news in between.
func TestOlderWholeLook(t *testing.T) {
	t.Parallel()
	q := newQueue(&Worker{}, "default", 1)
	whole, _ := send(q)
	q.landed(1, nil)
	signal(q.wake)
	beyond, _ := send(q)
	require.True(t, whole.isWhole())
	require.False(t, beyond.isWhole())
	q.observeClaim(nil, beyond, 0)
	q.observeClaim(nil, whole, time.Hour)
	require.True(t, q.pace.awaited)

	again, _ := send(q)
	require.Zero(t, again.asked, "until it is time")
}

// A claim that fails makes the queue claim again although another has found
// nothing since: that one has passed by what the first had locked.
func TestFailedClaim(t *testing.T) {
	t.Parallel()
	q := newQueue(&Worker{}, "default", 1)
	whole, _ := send(q)
	q.landed(1, nil)
	q.pace.hasNews()
	beyond, _ := send(q)
	q.claimFailed(beyond, 0, false)
	q.observeClaim(nil, whole, 0)
	require.True(t, q.pace.more)
}

// After a look at the whole line that took too long, claims go on beyond the
// bound, apart from results, until such a look has gone well.
func TestSlowWholeLook(t *testing.T) {
	t.Parallel()
	q := newQueue(&Worker{}, "default", 1)
	slow, _ := send(q)
	require.True(t, slow.isWhole())
	q.claimFailed(slow, time.Second, true)
	q.landed(1, nil)
	next, want := send(q)
	require.Equal(t, 1, want)
	require.False(t, next.isWhole())
	q.observeClaim(nil, next, 0)
	q.landed(1, nil)
	require.True(t, q.claimsApart())
	require.True(t, q.pace.awaited)

	q.pace.back.reaches[wholeLine].at = 0 // time has passed
	next, _ = send(q)
	require.True(t, next.isWhole())
	q.observeClaim(nil, next, 0)
	require.False(t, q.claimsApart())
}

// Results whose rows are locked are no runs that end again and again, and each
// is sent again after its delay, whatever else turns out to be locked.
func TestBusyResults(t *testing.T) {
	t.Parallel()
	q := newQueue(&Worker{}, "default", 1)
	busy := func(id int64) []result {
		run := &Run{worker: q.worker}
		run.row.ID = id
		return []result{{run: run, ending: &db.Ending{Started: true}, retried: true}}
	}
	require.Empty(t, q.setAside(busy(1), []int64{1}, busyDelay))
	due := q.busyTo
	require.Empty(t, q.setAside(busy(2), []int64{2}, busyDelay))
	require.Equal(t, due, q.busyTo)
	q.busyTo = 1
	q.pace.lastAt = clock.SinceBoot() - time.Millisecond
	results, _ := q.next(context.Background())
	require.Len(t, results, 2)
	require.Zero(t, q.pace.rate)
}

// However often somebody asks for a look at the whole line, one that took long
// is followed by ordinary claims for a while; then it is made.
func TestLookAgainRests(t *testing.T) {
	t.Parallel()
	q := newQueue(&Worker{}, "default", 1)
	whole, _ := send(q)
	require.True(t, whole.isWhole())
	q.observeClaim(nil, whole, time.Hour)
	q.landed(1, nil)
	for range 3 {
		q.lookAgain()
		signal(q.wake)
		beyond, want := send(q)
		require.Equal(t, 1, want)
		require.False(t, beyond.isWhole())
		q.observeClaim(nil, beyond, 0)
		q.landed(1, nil)
		back, _ := q.dues()
		require.LessOrEqual(t, back, wholeLineMax, "it is not forgotten")
	}
	_, want := send(q)
	require.Zero(t, want, "until it is time")

	q.pace.back.againAt, q.pace.back.reaches[wholeLine].at = 0, never // time has passed
	again, want := send(q)
	require.Equal(t, 1, want)
	require.True(t, again.isWhole())
	require.False(t, q.pace.behind)
}
