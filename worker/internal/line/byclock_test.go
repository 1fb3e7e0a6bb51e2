package line

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// arrive lets jobs come one by one for so long, at so many per second, and claims them at the next
// millisecond, as a queue with free slots does.
func (p *planner) arrive(perSecond int, long time.Duration, notify bool) {
	waiting := 0.0
	for end := p.now + long; p.now < end; p.now += time.Millisecond {
		for waiting += float64(perSecond) / 1000; waiting >= 1; waiting-- {
			if notify {
				p.Notified(p.now)
			}
			p.Claimed(p.now, 1, 0)
		}
	}
}

// A queue polls fast while jobs come fast one by one, and goes on without notifications, until they
// come half as fast.
func TestClaimsByClock(t *testing.T) {
	t.Parallel()
	p := newPlanner(0)
	p.arrive(byClockFrom*9/10, 10*time.Second, true)
	require.False(t, p.ClaimsByClock(), "not fast enough")
	p.arrive(byClockFrom*11/10, time.Second, true)
	require.True(t, p.ClaimsByClock())
	p.arrive(byClockFrom*6/10, 10*time.Second, false)
	require.True(t, p.ClaimsByClock(), "fast enough to go on")
	p.arrive(byClockFrom*4/10, time.Second, false)
	require.False(t, p.ClaimsByClock())
}

// Many jobs of one insert notify once: that is no reason to claim by the clock, and neither is a full line.
func TestManyAtOnceDoNotCount(t *testing.T) {
	t.Parallel()
	p := newPlanner(0)
	for range 20 {
		p.Notified(p.now)
		p.Claimed(p.now, ClaimMax, 0)
		require.False(t, p.ClaimsByClock())
		p.now += 100 * time.Millisecond
	}
	p.arrive(10*byClockFrom, time.Second, false)
	require.False(t, p.ClaimsByClock(), "nobody notifies")
}

// However fast jobs came, a queue for which none come any more soon stops.
func TestClaimsByClockEnd(t *testing.T) {
	t.Parallel()
	p := newPlanner(0)
	p.arrive(20*byClockFrom, time.Second, true)
	require.True(t, p.ClaimsByClock())
	last, _ := p.begin(10)
	p.answered(last, 0)
	claims := 0
	for end := p.now + 10*time.Second; p.now < end && p.ClaimsByClock(); claims++ {
		at, ok := p.NextLook()
		require.True(t, ok)
		p.now = at
		require.True(t, p.ShouldClaim(p.now), "by the clock")
		claim, _ := p.begin(10)
		p.Claimed(p.now, 0, time.Millisecond)
		p.answered(claim, time.Millisecond)
	}
	require.False(t, p.ClaimsByClock())
	require.InDelta(t, 140, claims, 20, "1 ms each, for 1.4 times the memory")
}

// Claims by the clock take half of the time, and there is none beside one under way. One that took
// long, since the database was held up, does not put the next one off for as long.
func TestClaimsByClockRest(t *testing.T) {
	t.Parallel()
	for took, pause := range map[time.Duration]time.Duration{
		time.Microsecond: byClockPauseMin, 5 * time.Millisecond: 5 * time.Millisecond, time.Second: byClockPauseMax,
	} {
		p := newPlanner(0)
		p.arrive(2*byClockFrom, time.Second, true)
		claim, _ := p.begin(10)
		p.Claimed(p.now, 5, took)
		p.answered(claim, took, 1, 2, 3, 4, 5)
		require.True(t, p.ClaimsByClock())
		p.lookSoon = false // no look back
		require.False(t, p.ShouldClaim(p.now+pause-1))
		at, ok := p.NextLook()
		require.True(t, ok)
		require.Equal(t, p.now+pause, at)
		require.True(t, p.ShouldClaim(at))
		_, ok = p.NextLook()
		require.False(t, ok, "it is time already")
	}
}
