package db_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// A worker that has seen a thousand priorities looks at few segments, which
// have a place for every job that it has not got, of any priority.
func TestLineForgets(t *testing.T) {
	t.Parallel()
	const priorities, segmentsMax = 1000, 33
	line := make(db.Line)
	for position := range int64(3 * priorities) {
		line.Advance([]db.JobClaimRow{{
			Priority: int16(position * 7 % priorities), Position: pgtype.Int8{Int64: position, Valid: true}, // #nosec G115 -- small
		}})
	}
	var claim db.JobClaimParams
	line.Rest(&claim)
	require.LessOrEqual(t, len(claim.FromPriorities), segmentsMax)
	covers := func(priority int32, position int64) bool {
		for i, from := range claim.FromPriorities {
			if (priority > from || priority == from && position > claim.FromPositions[i]) && priority <= claim.ToPriorities[i] {
				return true
			}
		}
		return false
	}
	for priority := int32(-32768); priority <= 32767; priority++ {
		require.True(t, covers(priority, 3*priorities), "a new job of priority %d", priority)
	}
	const last = (3*priorities - 1) * 7 % priorities
	require.False(t, covers(last, 3*priorities-1), "what it has got last is behind")
}

// A look that was filled has covered what lies before its last job, in the order
// of priority and position, and no more of the rest than where it began.
func TestLineCovered(t *testing.T) {
	t.Parallel()
	job := func(priority int16, position int64) db.JobClaimRow {
		return db.JobClaimRow{Priority: priority, Position: pgtype.Int8{Int64: position, Valid: true}}
	}
	line := db.Line{1: 100, 2: 200, 3: 300, 4: 400}
	from := db.Line{1: 10, 2: 20, 3: 30}
	require.Equal(t, db.Line{1: 100, 2: 150, 3: 30}, line.Covered(from, []db.JobClaimRow{job(2, 150), job(1, 90), job(2, 120)}))
	require.Equal(t, db.Line{1: 100, 2: 200, 3: 30}, line.Covered(from, []db.JobClaimRow{job(2, 250)}), "no further than the line")
	require.Equal(t, line, line.Covered(nil, []db.JobClaimRow{job(5, 1)}))
}

// A claim that begins with aged priorities has a place for each job that an ordinary one
// has a place for, and for all of the aged ones, and for none of them two.
func TestLineAfterAged(t *testing.T) {
	t.Parallel()
	line := db.Line{0: 100, 3: 40, 9: 20}
	aged := []db.Aged{{Priority: 9, Position: 12}, {Priority: 5, Position: 30}}
	var ordinary, claim db.JobClaimParams
	line.Rest(&ordinary)
	line.RestAfter(aged, &claim)
	places := func(claim *db.JobClaimParams, priority int32, position int64) (count int) {
		for i, from := range claim.FromPriorities {
			if (priority > from || priority == from && position > claim.FromPositions[i]) && priority <= claim.ToPriorities[i] {
				count++
			}
		}
		return count
	}
	for priority := int32(-2); priority <= 11; priority++ {
		for position := int64(1); position <= 110; position++ {
			want := places(&ordinary, priority, position)
			for _, a := range aged {
				if priority == int32(a.Priority) {
					want = 0
					if position >= a.Position {
						want = 1
					}
				}
			}
			require.Equal(t, want, places(&claim, priority, position), "priority %d, position %d", priority, position)
		}
	}
	require.Equal(t, []int32{9, 5}, claim.ToPriorities[:2])
	require.Equal(t, db.Line{0: 100, 3: 40, 9: 20}, line, "the line itself stays")
}
