package unreadable_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/worker/internal/unreadable"
)

var begin = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// pause fails as many jobs of the kind as it takes for it not to be claimed.
func pause(t *testing.T, m *unreadable.Memory, kind string, now time.Time) unreadable.Verdict {
	t.Helper()
	for i := range 5 {
		verdict := m.Failed(kind, "k9", true, now)
		require.False(t, verdict.ToOthers)
		require.Equal(t, i == 4, verdict.Pause > 0, i)
		if i == 4 {
			return verdict
		}
	}
	panic("not reached")
}

// As the timeline of the package says: a kind of which nothing can be read is not claimed, then one job
// of it tries at a time, less and less often, until one can be read.
func TestPauses(t *testing.T) {
	t.Parallel()
	var m unreadable.Memory
	kinds := []string{"charge", "other"}
	require.False(t, m.HasSome())
	require.Equal(t, kinds, m.Claimable(kinds, begin))
	verdict := pause(t, &m, "charge", begin)
	require.Equal(t, 30*time.Second, verdict.Pause)
	require.True(t, m.HasSome())
	require.Equal(t, unreadable.Verdict{ToOthers: true}, m.Failed("charge", "k9", true, begin.Add(29*time.Second)), "in hand")
	require.Equal(t, []string{"other"}, m.Claimable(kinds, begin.Add(29*time.Second)))
	require.Equal(t, []string{"charge", "other"}, kinds, "not changed")
	now := begin.Add(30 * time.Second)
	for _, want := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 10 * time.Minute, 10 * time.Minute} {
		require.Equal(t, kinds, m.Claimable(kinds, now))
		verdict := m.Failed("charge", "k9", true, now)
		require.Equal(t, [2]time.Duration{want, want}, [2]time.Duration{verdict.Delay, verdict.Pause})
		require.True(t, m.Failed("charge", "k9", true, now).ToOthers, "one job tries")
		now = now.Add(want)
	}
	require.False(t, m.Read("charge", "k9", now), "the pause was over")
	require.False(t, m.HasSome())
	require.Equal(t, 30*time.Second, m.Failed("charge", "k9", true, now).Delay, "all is forgotten")
	require.Equal(t, kinds, m.Claimable(kinds, now))
}

// Jobs that can be read, beside others, keep their kind claimed; one in hand during a pause ends that.
func TestReadsBetween(t *testing.T) {
	t.Parallel()
	var m unreadable.Memory
	for range 20 {
		require.Zero(t, m.Failed("charge", "k9", true, begin).Pause)
		require.Zero(t, m.Failed("charge", "k9", true, begin).Pause)
		require.False(t, m.Read("charge", "k1", begin))
	}
	require.Equal(t, time.Minute, m.Failed("charge", "k9", true, begin.Add(time.Minute)).Delay, "k9 was never read")
	m = unreadable.Memory{}
	pause(t, &m, "charge", begin)
	require.True(t, m.Read("charge", "k1", begin))
	require.Equal(t, []string{"charge"}, m.Claimable([]string{"charge"}, begin))
	require.True(t, m.HasSome(), "k9")
	m.Read("other", "k9", begin)
	require.False(t, m.HasSome())
}

// Where a job of the kind could be read once, later ones that cannot be keep readable ones waiting for
// the shortest pause at most, however long it goes on.
func TestPausesOnceRead(t *testing.T) {
	t.Parallel()
	var m unreadable.Memory
	pause(t, &m, "charge", begin)
	m.Read("charge", "k1", begin)
	now := begin
	require.Equal(t, 30*time.Second, pause(t, &m, "charge", now).Pause)
	for range 100 {
		now = now.Add(time.Minute)
		require.Equal(t, 30*time.Second, m.Failed("charge", "k9", true, now).Pause)
		require.True(t, m.Failed("charge", "k9", true, now).ToOthers)
	}
	require.Equal(t, 10*time.Minute, m.Failed("charge", "k9", true, now.Add(time.Minute)).Delay, "of the job itself")
}

// Values of a key that nobody has keep no kind from being claimed, however many there are and for however long: anybody who
// may add jobs can invent keys. The key has its delays and its warning all the same.
func TestKeysOfNobodyPauseNothing(t *testing.T) {
	t.Parallel()
	var m unreadable.Memory
	for i := range 200 {
		require.Equal(t, unreadable.Verdict{Delay: 30 * time.Second, Warn: i == 0}, m.Failed("charge", "k9", false, begin))
	}
	require.Equal(t, []string{"charge"}, m.Claimable([]string{"charge"}, begin))
	require.Equal(t, 2*time.Minute, m.Failed("charge", "k9", false, begin.Add(2*time.Minute)).Delay)
	require.Zero(t, m.Failed("charge", "k8", true, begin).Pause, "it is the first that others could read")
}

// Of a key there is a warning every ten minutes, whatever happens between, and however many names
// of keys come, there are no more than 1000 warnings in that time.
func TestWarnings(t *testing.T) {
	t.Parallel()
	var m unreadable.Memory
	warns := func(key string, after time.Duration) bool {
		defer m.Read("charge", key, begin)
		return m.Failed("charge", key, true, begin.Add(after)).Warn
	}
	require.True(t, warns("k9", 0))
	require.False(t, warns("k9", 9*time.Minute))
	require.True(t, warns("k9", 10*time.Minute))
	require.False(t, warns("k9", 11*time.Minute))
	warned := 0
	for i := range 3000 {
		if warns(fmt.Sprint("key ", i), 12*time.Minute) {
			warned++
		}
	}
	require.Equal(t, 999, warned, "and k9")
	require.True(t, warns("another", 23*time.Minute))
	m = unreadable.Memory{}
	for i := range 3000 {
		m.Failed(fmt.Sprint("kind ", i), fmt.Sprint("key ", i), true, begin)
	}
	require.Equal(t, 30*time.Second, m.Failed("charge", "new", true, begin.Add(time.Hour)).Delay, "of a new key")
}
