package resting_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/worker/internal/resting"
)

var noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// failing is the memory of a worker of which so many runs have failed in a row, a second apart from noon on, and whether it asks
// others after the last one.
func failing(runs int) (k *resting.Kinds, asks bool) {
	k = &resting.Kinds{After: 5}
	for i := range runs {
		asks, _ = k.Ended("sim", true, false, noon.Add(time.Duration(i)*time.Second))
	}
	return k, asks
}

func begins(k *resting.Kinds, kind string, now time.Time) bool {
	may, _ := k.Begin(kind, now)
	return may
}

// After five failures in a row a kind is left alone, others are not, and what others say decides.
func TestRests(t *testing.T) {
	t.Parallel()
	k, asks := failing(4)
	require.False(t, asks)
	require.Equal(t, []string{"sim"}, k.Claimable([]string{"sim"}, noon))
	k, asks = failing(5)
	require.True(t, asks)
	at := noon.Add(5 * time.Second)
	require.Equal(t, []string{"other"}, k.Claimable([]string{"sim", "other"}, at))
	require.False(t, begins(k, "sim", at), "what was claimed before goes back")
	require.True(t, begins(k, "other", at))
	require.Equal(t, map[string]time.Duration{"sim": 5 * time.Second}, k.Open(at))
	const since = 5 * time.Second
	for name, c := range map[string]struct {
		others resting.Others
		want   resting.Verdict
	}{
		"nobody else has the kind":          {resting.Others{LastOK: -1}, resting.Resumes},
		"others have not ended a run since": {resting.Others{Live: 3, LastOK: -1}, resting.Unchanged},
		"one has completed one":             {resting.Others{Live: 1, OK: 1, LastOK: time.Second}, resting.Unchanged},
		"one has completed five":            {resting.Others{Live: 1, OK: 5, LastOK: time.Second}, resting.Rests},
		"others fail alike":                 {resting.Others{Live: 2, Failed: 9, LastOK: -1}, resting.Resumes},
		"they succeeded before, not since":  {resting.Others{Live: 2, OK: 15, Failed: 5, LastOK: time.Minute}, resting.Resumes},
		"half of theirs fail":               {resting.Others{Live: 2, OK: 20, Failed: 20, LastOK: time.Second}, resting.Resumes},
		"a few of theirs fail":              {resting.Others{Live: 2, OK: 39, Failed: 1, LastOK: time.Second}, resting.Rests},
	} {
		k, _ := failing(5)
		verdict, streak, _ := k.Answered("sim", since, c.others, at)
		require.Equal(t, c.want, verdict, name)
		require.Equal(t, 5, streak)
		require.Equal(t, c.want == resting.Resumes, len(k.Claimable([]string{"sim"}, at)) == 1, name)
	}
}

// A kind that fails everywhere is not left alone again after the next failure: others are asked after ten seconds, or twice as
// many failures.
func TestAsksSeldomWhereAllFail(t *testing.T) {
	t.Parallel()
	k, _ := failing(5)
	at := noon.Add(5 * time.Second)
	alike := resting.Others{Live: 1, Failed: 9, LastOK: -1}
	verdict, _, _ := k.Answered("sim", 5*time.Second, alike, at)
	require.Equal(t, resting.Resumes, verdict)
	asked := 0
	for range 4 {
		if ask, _ := k.Ended("sim", true, false, at); ask {
			asked++
		}
	}
	require.Zero(t, asked)
	ask, _ := k.Ended("sim", true, false, at)
	require.True(t, ask, "these are ten")
	require.True(t, begins(k, "sim", at), "it goes on meanwhile")
	require.Len(t, k.Open(at), 1)
	k.Answered("sim", 5*time.Second, alike, at)
	require.Empty(t, k.Open(at))
	ask, _ = k.Ended("sim", true, false, at.Add(11*time.Second))
	require.True(t, ask, "another worker may have come that succeeds")
	at = at.Add(12 * time.Second)
	verdict, _, rest := k.Answered("sim", time.Minute, resting.Others{Live: 1, OK: 20, LastOK: time.Second}, at)
	require.Equal(t, resting.Rests, verdict)
	require.Equal(t, resting.RestMin, rest)
	require.False(t, begins(k, "sim", at))
}

// After a rest one job runs. If it fails, the next rest is twice as long, up to an hour; a success ends it.
func TestTriesWithOneJob(t *testing.T) {
	t.Parallel()
	k, _ := failing(5)
	at := noon.Add(4 * time.Second)
	verdict, _, rest := k.Answered("sim", 4*time.Second, resting.Others{Live: 1, OK: 20, LastOK: time.Second}, at)
	require.Equal(t, resting.Rests, verdict)
	require.Equal(t, resting.RestMin, rest)
	for want := 2 * resting.RestMin; ; want = min(2*want, resting.RestMax) {
		at = at.Add(k.Wake("sim", at))
		require.Equal(t, []string{"sim"}, k.Claimable([]string{"sim"}, at))
		require.True(t, begins(k, "sim", at))
		require.False(t, begins(k, "sim", at), "one only")
		require.Empty(t, k.Claimable([]string{"sim"}, at))
		k.Untried("sim")
		require.True(t, begins(k, "sim", at), "that one was released, say")
		k.Ended("sim", true, false, at)
		require.Equal(t, want, k.Wake("sim", at))
		if want == resting.RestMax {
			break
		}
	}
	at = at.Add(resting.RestMax)
	require.True(t, begins(k, "sim", at))
	_, resumed := k.Ended("sim", false, true, at)
	require.True(t, resumed)
	require.True(t, begins(k, "sim", at))
	require.True(t, begins(k, "sim", at))
	require.Empty(t, k.Resting())
	ask, _ := k.Ended("sim", true, false, at)
	require.False(t, ask, "the row begins anew")
}

// What others are told: of the last twenty runs, and how long ago.
func TestTold(t *testing.T) {
	t.Parallel()
	k := &resting.Kinds{After: 100}
	for i := range 30 {
		k.Ended("sim", i >= 25, i < 25, noon)
	}
	k.Ended("bad", true, false, noon)
	k.Ended("bad", false, false, noon.Add(time.Hour)) // cancelled, say
	require.Equal(t, map[string]resting.Outcomes{
		"sim": {OK: 15, Failed: 5, OKMs: 3000, EndMs: 3000}, "bad": {Failed: 1, OKMs: -1, EndMs: 3000},
	}, k.Told(noon.Add(3*time.Second)))
	off := &resting.Kinds{After: -1}
	for range 10 {
		ask, _ := off.Ended("sim", true, false, noon)
		require.False(t, ask)
	}
}
