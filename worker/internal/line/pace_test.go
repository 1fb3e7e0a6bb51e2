package line

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// claims makes so many claims, each as soon as it may be made, and lets each find so many jobs of ten and take so long.
func (p *planner) claims(count, jobs int, took time.Duration) {
	for range count {
		if at, ok := p.NextLook(); ok && !p.ShouldClaim(p.now) {
			p.now = at
		}
		claim, _ := p.begin(10)
		p.Claimed(p.now, jobs, 10, took)
		p.answered(claim, 0, make([]int64, jobs)...)
		p.lookSoon = false
	}
}

// While claims find jobs, others follow without news, and however much news comes: as long after as the last one took, within
// limits.
func TestPace(t *testing.T) {
	t.Parallel()
	for took, pause := range map[time.Duration]time.Duration{time.Microsecond: paceMin, 5 * time.Millisecond: 5 * time.Millisecond, time.Second: paceMax} {
		p := newPlanner(0)
		p.claims(1, 2, took)
		p.News()
		require.True(t, p.IsPaced())
		at, ok := p.NextLook()
		require.True(t, ok)
		require.Equal(t, p.now+pause, at)
		require.False(t, p.ShouldClaim(at-1))
		_, ok = p.NextLook()
		require.True(t, ok, "however late it is asked for")
		require.True(t, p.ShouldClaim(at))
		_, ok = p.NextLook()
		require.False(t, ok, "it is time already")
	}
}

// A queue for which several jobs came claims once more, and one for which many came soon waits for news, too.
func TestPaceEnds(t *testing.T) {
	t.Parallel()
	for found, without := range map[int]int{1: 1, 10: 10, 1000: paceKept} {
		p := newPlanner(0)
		p.claims(found, 3, 0)
		p.claims(without-1, without%2, 0) // one job is as good as none
		require.True(t, p.IsPaced())
		p.claims(1, 0, 0)
		require.False(t, p.IsPaced())
		require.True(t, p.IsAtRest())
		p.News()
		require.True(t, p.ShouldClaim(p.now), "at once")
	}
}

// Jobs that come only when the one before has run do not wait.
func TestOneByOneIsNotPaced(t *testing.T) {
	t.Parallel()
	p := newPlanner(0)
	p.claims(100, 1, time.Millisecond)
	require.False(t, p.IsPaced())
	p.News()
	require.True(t, p.ShouldClaim(p.now))
}

// A claim that is filled is followed by the next one at once.
func TestFullClaimsAreNotPaced(t *testing.T) {
	t.Parallel()
	p := newPlanner(0)
	p.claims(3, 2, 0)
	p.claims(1, 10, 0)
	at, ok := p.NextLook()
	require.True(t, ok)
	require.Equal(t, p.now, at)
	require.True(t, p.ShouldClaim(at))
}
