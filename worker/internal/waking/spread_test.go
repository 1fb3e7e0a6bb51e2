package waking

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// queue returns what a queue is told among so many idle workers, and how often it
// was woken.
func queue(idle int64) (*Notifications, *atomic.Int64) {
	workers, woken := new(atomic.Int64), new(atomic.Int64)
	workers.Store(idle)
	n := NewSpreader().Notifications("default", workers, func() { woken.Add(1) })
	n.SetKinds([]string{"a", "b"})
	return n, woken
}

// A queue is woken at once when it need not wait, and otherwise is not until its
// delay is over or somebody says that nothing is left.
func TestReceived(t *testing.T) {
	t.Parallel()
	const idle = 50
	n, woken := queue(idle)
	n.Received("1", 0, false)
	n.Received("2", -time.Millisecond, false)
	n.Received("3", time.Hour, true)
	require.EqualValues(t, 3, woken.Load())
	n.Received("4", time.Hour, false)
	require.EqualValues(t, 3, woken.Load())
	require.True(t, n.IsDelayed())
	require.Equal(t, "4", n.Last())

	kinds := kindsHash([]string{"b", "a"})
	n.LeftNothing("3", kinds)
	n.LeftNothing("4", kindsHash([]string{"a"}))
	require.True(t, n.IsDelayed(), "an earlier notification, or other handlers")
	n.LeftNothing("4", kinds)
	require.False(t, n.IsDelayed())
	require.EqualValues(t, 3, woken.Load())

	n.Received("keys", time.Hour, false)
	n.SetKeys(true)
	n.LeftNothing("keys", kinds)
	require.True(t, n.IsDelayed(), "of a worker that claims no jobs with partition keys")
	n.SetKeys(false)
	n.LeftNothing("keys", kinds)
	require.False(t, n.IsDelayed())

	n.Received("5", time.Nanosecond, false)
	require.Eventually(t, func() bool { return woken.Load() == 4 && !n.IsDelayed() }, time.Minute, time.Millisecond)
}

// What a claim has left is told once for each notification, and not among few.
func TestTellOthers(t *testing.T) {
	t.Parallel()
	n, _ := queue(50)
	told := func() string {
		select {
		case outcome := <-n.spreader.outcomes:
			return outcome
		default:
			return ""
		}
	}
	n.TellOthers("")
	require.Empty(t, told(), "none was received")
	n.Received("7", time.Hour, false)
	n.TellOthers("7")
	notification, kinds, name, ok := ParseLeftNothing(told())
	require.True(t, ok)
	require.Equal(t, "7", notification)
	require.Equal(t, kindsHash([]string{"a", "b"}), kinds)
	require.Equal(t, "default", name)
	n.TellOthers("7")
	require.Empty(t, told(), "it is known")
	n.Received("8", time.Hour, false)
	n.LeftNothing("8", kinds)
	n.TellOthers("8")
	require.Empty(t, told(), "somebody else has told")
	n.idle.Store(allAtOnceMax)
	n.TellOthers("9")
	require.Empty(t, told(), "nobody waits")
}

// Few workers claim at once. Of many, about two do, and the last after no more than
// the longest delay.
func TestDelay(t *testing.T) {
	t.Parallel()
	s := NewSpreader()
	require.Zero(t, s.Delay(allAtOnceMax))
	for _, idle := range []int64{5, 20, 50} {
		const tries = 10_000
		longest, atOnce := time.Duration(0), 0
		for range tries {
			delay := s.Delay(idle)
			longest = max(longest, delay)
			if delay <= 0 {
				atOnce++
			}
		}
		require.LessOrEqual(t, longest, min(time.Duration(idle)*delayEach, delayMax))
		require.InDelta(t, 2, float64(atOnce)/tries*float64(idle), 0.5, "of %d", idle)
	}
	s.DelayMax = time.Hour
	longest := time.Duration(0)
	for range 100 {
		longest = max(longest, s.Delay(1_000_000))
	}
	require.Greater(t, longest, delayMax)
	require.LessOrEqual(t, longest, s.DelayMax)
}

// A payload that is not one, as anybody may send it, names no queue.
func TestParse(t *testing.T) {
	t.Parallel()
	notification, name := ParseNew("71 a queue")
	require.Equal(t, "71", notification)
	require.Equal(t, "a queue", name)
	for _, payload := range []string{"", "71", "71 xyz default", "71 fffffffff default"} {
		_, _, _, ok := ParseLeftNothing(payload)
		require.False(t, ok, payload)
	}
}
