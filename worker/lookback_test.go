package worker

import (
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/worker/internal/clock"
)

func rowAt(position int64) db.JobClaimRow {
	return db.JobClaimRow{Position: pgtype.Int8{Int64: position, Valid: true}}
}

// claimed makes the queue believe that it has got the job at a position.
func claimed(q *queue, position int64) {
	q.line.Advance([]db.JobClaimRow{rowAt(position)})
}

// lookFrom is a claim: where in the line it begins, and what it is.
func lookFrom(q *queue, jobs int32) (look look, from int64) {
	claim := db.JobClaimParams{JobCount: jobs}
	look = q.aim(&claim)
	return look, claim.FromPositions[len(claim.FromPositions)-1]
}

// makeDue makes it time for looks of up to that reach.
func makeDue(q *queue, long int) {
	for each := range long + 1 {
		q.pace.back.reaches[each].at = 0
	}
}

const slow = time.Minute // for a look

// A look begins where the last but one of its reach ended. There is none while one
// is under way, nor when nothing was claimed since.
func TestLooksBackInSteps(t *testing.T) {
	t.Parallel()
	q := newQueue(&Worker{}, "default", 1)
	claimed(q, 10)
	whole, from := lookFrom(q, 1)
	require.True(t, whole.isWhole())
	require.Zero(t, from)
	claimed(q, 20) // another claim, meanwhile
	beyond, from := lookFrom(q, 1)
	require.False(t, beyond.back, "one is under way")
	require.EqualValues(t, 20, from)
	require.Equal(t, never, q.pace.back.next(q.line))
	q.observeClaim(nil, whole, slow)
	require.Greater(t, q.pace.back.next(q.line), clock.SinceBoot(), "it is not time")

	short := func(want int64) {
		t.Helper()
		makeDue(q, 0)
		look, from := lookFrom(q, 1)
		require.True(t, look.back)
		require.Zero(t, look.long)
		require.Equal(t, want, from)
		q.observeClaim(nil, look, 0)
	}
	short(0)
	claimed(q, 30)
	short(10)
	claimed(q, 40)
	short(20)
	short(30)
	makeDue(q, 0)
	beyond, _ = lookFrom(q, 1)
	require.False(t, beyond.back, "nothing was claimed since")

	makeDue(q, 1)
	longer, from := lookFrom(q, 1)
	require.Equal(t, 1, longer.long)
	require.Zero(t, from)
	q.observeClaim(nil, longer, 0)
	claimed(q, 50)
	makeDue(q, 1)
	longer, from = lookFrom(q, 1)
	require.Equal(t, 1, longer.long, "the longest that is due")
	require.EqualValues(t, 10, from)
}

// A look that was filled goes on where it ended, and not only when the whole line
// is due again.
func TestFilledLookGoesOn(t *testing.T) {
	t.Parallel()
	q := newQueue(&Worker{}, "default", 2)
	claimed(q, 1000)
	whole, _ := lookFrom(q, 2)
	q.observeClaim([]db.JobClaimRow{rowAt(8), rowAt(5)}, whole, slow)
	next, from := lookFrom(q, 2)
	require.True(t, next.back)
	require.EqualValues(t, 8, from)
	q.observeClaim([]db.JobClaimRow{rowAt(9), rowAt(12)}, next, slow)
	next, from = lookFrom(q, 2)
	require.True(t, next.back)
	require.EqualValues(t, 12, from)
	q.observeClaim([]db.JobClaimRow{rowAt(13)}, next, 0)
	beyond, _ := lookFrom(q, 2)
	require.False(t, beyond.back, "all was looked at")
}

// Claims that are filled beyond the bound, as in a busy queue, have looked at all
// that lies behind it.
func TestBusyQueueLooksBackInTime(t *testing.T) {
	t.Parallel()
	q := newQueue(&Worker{}, "default", 1)
	claimed(q, 10)
	whole, _ := lookFrom(q, 1)
	require.True(t, whole.isWhole())
	q.observeClaim([]db.JobClaimRow{rowAt(11)}, whole, slow)
	beyond, from := lookFrom(q, 1)
	require.False(t, beyond.back)
	require.EqualValues(t, 11, from)
}

// What a look that failed was to cover, the next one of its reach covers.
func TestFailedLookBack(t *testing.T) {
	t.Parallel()
	q := newQueue(&Worker{}, "default", 1)
	for _, position := range []int64{10, 20} {
		claimed(q, position)
		makeDue(q, wholeLine)
		whole, _ := lookFrom(q, 1)
		q.observeClaim(nil, whole, slow)
	}
	claimed(q, 30)
	makeDue(q, 0)
	failed, from := lookFrom(q, 1)
	require.EqualValues(t, 10, from)
	q.claimFailed(failed, 0, false)
	again, from := lookFrom(q, 1)
	require.Zero(t, again.long)
	require.EqualValues(t, 10, from)
	q.claimFailed(again, slow, true)
	beyond, _ := lookFrom(q, 1)
	require.False(t, beyond.back, "not at once after one that took too long")
}

// A line without dead entries is looked at as a whole each time.
func TestQuickLooksAreWhole(t *testing.T) {
	t.Parallel()
	q := newQueue(&Worker{}, "default", 1)
	for position := range int64(10) {
		claimed(q, position)
		look, _ := lookFrom(q, 1)
		require.True(t, look.isWhole())
		q.observeClaim(nil, look, 0)
	}
}

// A job that commits late is found after the time of the shortest reach that is
// as long as it was late, and the looks under way. Here claims pass 30 jobs a
// millisecond, a million dead entries take a second, and jobs are late by
// anything up to the longest reach.
func TestLatenessIsBounded(t *testing.T) {
	t.Parallel()
	const (
		tick      = time.Millisecond
		passed    = 30 // jobs a tick
		entryTime = time.Microsecond
		length    = 2 * time.Minute
	)
	type lateJob struct {
		position          int64
		commits, lateness time.Duration
	}
	var (
		back    lookBack
		waiting []lateJob
		long    int
		from    db.Line
		bound   db.Line
		began   time.Duration
		ends    time.Duration // of the look under way
		longest time.Duration // look
		found   int
	)
	longestReach := lookBackEvery[wholeLine-1]
	line := db.Line{0: 0}
	for now := tick; now < length; now += tick {
		line[0] += passed
		if rand.N(10) == 0 { // #nosec G404 -- no secret
			lateness := rand.N(longestReach) >> rand.N(14)                                                // #nosec G404
			waiting = append(waiting, lateJob{line[0] - rand.N(int64(passed)), now + lateness, lateness}) // #nosec G404
		}
		if back.flying > 0 && now >= ends {
			back.done(now, long, bound, now-began)
			kept := waiting[:0]
			for _, job := range waiting {
				if job.commits <= began && job.position > from[0] {
					found++
					continue
				}
				within := longestReach
				for _, every := range lookBackEvery[:wholeLine] {
					if job.lateness <= every {
						within = every
						break
					}
				}
				require.LessOrEqual(t, now-job.commits, within+within/4+4*longest, "late by %s", job.lateness)
				kept = append(kept, job)
			}
			waiting = kept
		}
		if reach, ok := back.due(now, line); ok {
			back.flying++
			long, from, bound, began = reach, back.reaches[reach].from, maps.Clone(line), now
			took := time.Duration(line[0]-from[0]) * entryTime
			longest, ends = max(longest, took), now+took
		}
	}
	require.Greater(t, found, 10_000)
}
