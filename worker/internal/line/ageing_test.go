package line

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// agedPlanner is one that has claimed jobs of priority 0, and is told that 9 is aged.
func agedPlanner() *planner {
	p := newPlanner(100)
	p.SetAged([]db.Aged{{Priority: 9, Position: 7}})
	return p
}

// Of a hundred claims that get jobs, ten begin with the aged priority, if there is one.
// Those that get none do not count.
func TestEveryTenthClaimBeginsWithAged(t *testing.T) {
	t.Parallel()
	for _, has := range []bool{false, true} {
		p, aged := newPlanner(100), 0
		if has {
			p = agedPlanner()
		}
		for i := range int64(100) {
			claim, _ := p.begin(1)
			if claim.aged {
				aged++
			}
			p.answered(claim, 0, 101+i)
		}
		if !has {
			require.Zero(t, aged)
			continue
		}
		require.Equal(t, 10, aged)
		for range 100 {
			claim, _ := p.begin(1)
			if claim.aged {
				aged++
			}
			p.answered(claim, 0)
		}
		require.LessOrEqual(t, aged, 11)
	}
}

// The first claim after the news begins with the aged priority, from its first job on,
// if none of the last ones did; one that fails has its turn again.
func TestAgedTurn(t *testing.T) {
	t.Parallel()
	p := newPlanner(100)
	p.SetAged([]db.Aged{{Priority: 9, Position: 7}, {Priority: 4, Position: 90}})
	request := newRequest(5)
	failed := p.Begin(p.now, request, false)
	require.True(t, failed.aged)
	require.Equal(t, []int32{9, 4}, request.FromPriorities[:2])
	require.Equal(t, []int64{6, 89}, request.FromPositions[:2])
	require.Equal(t, []int32{9, 4}, request.ToPriorities[:2])
	p.failed(failed, 0, false)
	again, _ := p.begin(1)
	require.True(t, again.aged)
	p.answered(again, 0, 7)
	other, _ := p.begin(1)
	require.False(t, other.aged)
}

// A look at the whole line that is due, since jobs have come back, is made with the claim
// after one that begins with the aged priority.
func TestAgedDoesNotLookBack(t *testing.T) {
	t.Parallel()
	p := newPlanner(100)
	whole, _ := p.begin(1)
	p.answered(whole, 100*time.Millisecond, 101)
	p.now++
	p.SetAged([]db.Aged{{Priority: 9, Position: 7}})
	p.Returned()
	first, _ := p.begin(1)
	require.True(t, first.aged)
	require.False(t, first.IsWhole())
	p.answered(first, 0, 7)
	next, _ := p.begin(1)
	require.True(t, next.IsWhole())
}
