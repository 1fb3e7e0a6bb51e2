package worker

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// claimed makes the queue believe that it has got the job at a position.
func claimed(q *queue, position int64) {
	q.line.Advance([]db.JobClaimRow{{Position: pgtype.Int8{Int64: position, Valid: true}}})
}

// lookFrom is a claim: where in the line it begins, and what it is.
func lookFrom(q *queue) (look look, from int64) {
	claim := db.JobClaimParams{JobCount: 1}
	look = q.aim(&claim)
	return look, claim.FromPositions[len(claim.FromPositions)-1]
}

// A long look at the whole line is followed by shorter ones, each of which
// begins where the last began that reached as far, and there is none while one is
// under way, nor when nothing was claimed since.
func TestLooksBackInSteps(t *testing.T) {
	t.Parallel()
	const slow = time.Minute
	q := newQueue(&Worker{}, "default", 1)
	claimed(q, 10)
	whole, from := lookFrom(q)
	require.True(t, whole.isWhole())
	require.Zero(t, from)
	claimed(q, 20) // another claim, meanwhile
	beyond, from := lookFrom(q)
	require.False(t, beyond.back, "one is under way")
	require.EqualValues(t, 20, from)
	require.Equal(t, never, q.pace.back.next(q.line))
	q.observeClaim(nil, whole, slow)

	reaches := &q.pace.back.reaches
	require.Positive(t, q.pace.back.next(q.line), "it is not time")
	reaches[0].at = 0
	short, from := lookFrom(q)
	require.True(t, short.back)
	require.Zero(t, short.long)
	require.EqualValues(t, 10, from, "the line when the long look began")
	q.observeClaim(nil, short, 0)
	reaches[0].at = 0
	beyond, _ = lookFrom(q)
	require.False(t, beyond.back, "nothing was claimed since")

	claimed(q, 30)
	reaches[0].at, reaches[1].at = 0, 0
	longer, from := lookFrom(q)
	require.Equal(t, 1, longer.long, "the longest that is due")
	require.EqualValues(t, 10, from)
	q.observeClaim(nil, longer, 0)
	claimed(q, 40)
	reaches[0].at = 0
	_, from = lookFrom(q)
	require.EqualValues(t, 30, from, "the longer one has covered the shorter one's part")
}

// What a look that failed was to cover, the next one of its reach covers.
func TestFailedLookBack(t *testing.T) {
	t.Parallel()
	q := newQueue(&Worker{}, "default", 1)
	claimed(q, 10)
	whole, _ := lookFrom(q)
	q.observeClaim(nil, whole, time.Minute)
	claimed(q, 20)
	q.pace.back.reaches[0].at = 0
	failed, from := lookFrom(q)
	require.EqualValues(t, 10, from)
	claimed(q, 30)
	q.claimFailed(failed, 0, false)
	again, from := lookFrom(q)
	require.Equal(t, 0, again.long)
	require.EqualValues(t, 10, from)
	q.claimFailed(again, time.Minute, true)
	beyond, _ := lookFrom(q)
	require.False(t, beyond.back, "not at once after one that took too long")
}

// A line without dead entries is looked at as a whole each time.
func TestQuickLooksAreWhole(t *testing.T) {
	t.Parallel()
	q := newQueue(&Worker{}, "default", 1)
	for position := range int64(10) {
		claimed(q, position)
		look, _ := lookFrom(q)
		require.True(t, look.isWhole())
		q.observeClaim(nil, look, 0)
	}
}
