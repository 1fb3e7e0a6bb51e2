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
	p.SetAged(p.now, []db.Aged{{Priority: 9, Position: 7}})
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
	p.SetAged(p.now, []db.Aged{{Priority: 9, Position: 7}, {Priority: 4, Position: 90}})
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
	p.SetAged(p.now, []db.Aged{{Priority: 9, Position: 7}})
	p.Returned()
	first, _ := p.begin(1)
	require.True(t, first.aged)
	require.False(t, first.IsWhole())
	p.answered(first, 0, 7)
	next, _ := p.begin(1)
	require.True(t, next.IsWhole())
}

// The claims that begin with aged priorities take a tenth of the time at most: after one that
// took long, whether it got jobs or failed, the next one waits nine times as long.
func TestAgedClaimsTakeATenthOfTheTime(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*planner, Claim){
		"answered":      func(p *planner, claim Claim) { p.answered(claim, time.Second, 7) },
		"found nothing": func(p *planner, claim Claim) { p.answered(claim, time.Second) },
		"failed":        func(p *planner, claim Claim) { p.failed(claim, time.Second, false) },
		"too long":      func(p *planner, claim Claim) { p.failed(claim, time.Second, true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := agedPlanner()
			first, _ := p.begin(1)
			require.True(t, first.aged)
			end(p, first)
			ended := p.now
			for p.now < ended+9*time.Second {
				claim, _ := p.begin(1)
				require.False(t, claim.aged, "%s after it", p.now-ended)
				p.answered(claim, 0, 101)
				p.now += 250 * time.Millisecond
			}
			next, _ := p.begin(1)
			require.True(t, next.aged)
		})
	}
}

// A claim that begins with aged priorities and takes too long does not keep urgent jobs from
// being claimed, however often that happens: nine claims come before the next one.
func TestAgedClaimsThatTakeTooLong(t *testing.T) {
	t.Parallel()
	p := agedPlanner()
	for range 3 {
		p.SetAged(p.now, []db.Aged{{Priority: 9, Position: 7}})
		claim, _ := p.begin(1)
		require.True(t, claim.aged)
		p.failed(claim, time.Second, true)
		p.now += time.Minute
		p.SetAged(p.now, []db.Aged{{Priority: 9, Position: 7}})
		for range 9 {
			claim, _ = p.begin(1)
			require.False(t, claim.aged)
			p.answered(claim, 0, 101)
		}
	}
}

// What was aged counts for thirty seconds, unless it is said again.
func TestAgedIsForgotten(t *testing.T) {
	t.Parallel()
	p := agedPlanner()
	p.now += agedFor
	claim, _ := p.begin(1)
	require.False(t, claim.aged)
	p.answered(claim, 0, 101)
	p.SetAged(p.now, []db.Aged{{Priority: 9, Position: 7}})
	p.now += agedFor - 1
	claim, _ = p.begin(1)
	require.True(t, claim.aged)
}

// A claim that does not ask for all kinds does not begin with aged priorities, since it could
// walk past all their jobs. The next one that does has its turn.
func TestPartialClaimIsNotAged(t *testing.T) {
	t.Parallel()
	p := agedPlanner()
	partial := p.Begin(p.now, newRequest(1), true)
	require.False(t, partial.aged)
	p.answered(partial, 0, 101)
	whole, _ := p.begin(1)
	require.True(t, whole.aged)
}
