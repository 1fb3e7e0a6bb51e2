package line

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// News that comes while a claim is under way makes the queue claim again,
// whatever that claim has found, or that it has failed.
func TestNewsWhileClaiming(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*planner, Claim){
		"nothing found": func(p *planner, claim Claim) { p.answered(claim, 0) },
		"failed":        func(p *planner, claim Claim) { p.failed(claim, 0, false) },
		"too slow":      func(p *planner, claim Claim) { p.failed(claim, time.Second, true) },
	} {
		p := newPlanner(0)
		first, _ := p.begin(2)
		require.True(t, first.IsWhole(), name)
		p.News()
		end(p, first)
		require.True(t, p.ShouldClaim(p.now), name)
	}
	p := newPlanner(0)
	only, _ := p.begin(2)
	require.True(t, p.answered(only, 0), "others need not look")
	require.False(t, p.ShouldClaim(p.now), "without news")
	require.True(t, p.IsAtRest())
}

// A look at the whole line that is under way has not seen what was given back
// to its old place since.
func TestLookAgain(t *testing.T) {
	t.Parallel()
	p := newPlanner(0)
	first, _ := p.begin(1)
	require.True(t, first.IsWhole())
	p.Returned()
	p.answered(first, 0)
	require.True(t, p.ShouldClaim(p.now))
	again, _ := p.begin(1)
	require.True(t, again.IsWhole())
}

// What a claim beyond the bound may have left, an older look at the whole line
// has not seen either, if there was news in between.
func TestOlderWholeLook(t *testing.T) {
	t.Parallel()
	p := newPlanner(0)
	whole, _ := p.begin(1)
	p.News()
	beyond, _ := p.begin(1)
	require.True(t, whole.IsWhole())
	require.False(t, beyond.IsWhole())
	require.False(t, p.answered(beyond, 0))
	p.answered(whole, time.Hour)
	require.False(t, p.ShouldClaim(p.now), "until it is time")
	require.False(t, p.IsAtRest())
	at, ok := p.NextLook()
	require.True(t, ok)
	p.now = at
	require.True(t, p.ShouldClaim(p.now))
}

// A claim that fails makes the queue claim again although another has found
// nothing since: that one has passed by what the first had locked.
func TestFailedClaim(t *testing.T) {
	t.Parallel()
	p := newPlanner(0)
	whole, _ := p.begin(1)
	beyond, _ := p.begin(1)
	p.failed(beyond, 0, false)
	p.answered(whole, 0)
	require.True(t, p.ShouldClaim(p.now))
}

// After a look at the whole line that took too long, claims go on beyond the
// bound, separate from results, until such a look has gone well.
func TestSlowWholeLook(t *testing.T) {
	t.Parallel()
	p := newPlanner(0)
	slow, _ := p.begin(1)
	require.True(t, slow.IsWhole())
	p.failed(slow, time.Second, true)
	require.True(t, p.ShouldClaim(p.now))
	next, _ := p.begin(1)
	require.False(t, next.IsWhole())
	p.answered(next, 0)
	require.True(t, p.IsSeparate())
	require.False(t, p.IsAtRest())

	p.now += time.Second
	require.True(t, p.ShouldClaim(p.now))
	next, _ = p.begin(1)
	require.True(t, next.IsWhole())
	p.answered(next, 0)
	require.False(t, p.IsSeparate())
}

// However often jobs come back, a look at the whole line that took long is
// followed by ordinary claims for a while; then it is made.
func TestLookAgainRests(t *testing.T) {
	t.Parallel()
	p := newPlanner(0)
	whole, _ := p.begin(1)
	require.True(t, whole.IsWhole())
	p.answered(whole, 10*time.Second)
	p.now++
	for range 3 {
		p.Returned()
		p.News()
		require.True(t, p.ShouldClaim(p.now))
		beyond, _ := p.begin(1)
		require.False(t, beyond.IsWhole())
		p.answered(beyond, 0)
		at, ok := p.NextLook()
		require.True(t, ok, "it is not forgotten")
		require.LessOrEqual(t, at-p.now, restMax)
	}
	require.False(t, p.ShouldClaim(p.now), "until it is time")

	p.now += returnedRestShare * 10 * time.Second // less than restShare times as long
	require.True(t, p.ShouldClaim(p.now))
	again, _ := p.begin(1)
	require.True(t, again.IsWhole())
	p.answered(again, 0)
	require.True(t, p.IsAtRest(), "none has come back since")
}

// A claim that does not ask for all kinds says nothing about what it has left.
func TestPartialClaim(t *testing.T) {
	t.Parallel()
	for _, partial := range []bool{false, true} {
		p := New()
		claim := p.Begin(1, newRequest(1), partial)
		require.True(t, claim.IsWhole())
		require.Equal(t, !partial, p.Answered(1, claim, nil, 0))
	}
}

// A queue claims few and large: ahead of its slots at the rate of late, all that
// there is room for, and not for less than a quarter of that while no slot is free.
func TestCount(t *testing.T) {
	t.Parallel()
	const slots = 10
	p := New()
	require.Equal(t, slots, p.Count(slots, 0, true), "no rate is known")
	for now := time.Millisecond; now <= 2*time.Second; now += time.Millisecond {
		p.Ended(now, 2)
	}
	require.InDelta(t, 2000, p.ended.perSecond, 1)
	room := slots + int(p.ended.perSecond*aheadTime.Seconds())
	for inHand, want := range map[int]int{
		0: room, 9: room - 9, slots: room - slots, room - room/4: room / 4, room - room/4 + 1: 0, room: 0, room + 5: 0,
	} {
		require.Equal(t, want, p.Count(slots, inHand, true), "%d in hand", inHand)
	}
	require.Equal(t, 1, p.Count(slots, slots-1, false), "a slot is free")
	require.Zero(t, p.Count(slots, slots, false))
	for now := 2 * time.Second; now <= 3*time.Second; now += time.Millisecond {
		p.Ended(now, 1000)
	}
	require.Equal(t, ClaimMax, p.Count(slots, 0, true))
	room = slots + AheadMax
	for inHand, want := range map[int]int{ // one claim may travel while the jobs of others run
		ClaimMax: ClaimMax, room - ClaimMax: ClaimMax, room - worthwhile: worthwhile, room - worthwhile + 1: 0, room: 0,
	} {
		require.Equal(t, want, p.Count(slots, inHand, true), "%d in hand", inHand)
	}
	p.Ended(10*time.Second, 0)
	require.Less(t, p.ended.perSecond, 1.0, "forgotten with time")
}
