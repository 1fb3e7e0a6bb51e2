package breaker_test

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/worker/programs/internal/breaker"
)

// pass lets time pass, of the test's own clock.
func pass(span time.Duration) {
	<-time.After(span)
	synctest.Wait()
}

// begin begins a try that is allowed.
func begin(t *testing.T, b *breaker.Breaker) *breaker.Try {
	t.Helper()
	try, err := b.Begin("k")
	require.NoError(t, err)
	return try
}

// What a job of before reports late takes no other job's try away.
func TestTriesApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(slog.New(slog.DiscardHandler), func(string) {})
		early, first := begin(t, b), begin(t, b)
		require.Error(t, first.Failed(errors.New("refused")))
		pass(time.Second)
		sole := begin(t, b)
		require.True(t, sole.IsSole())
		early.End()
		require.Error(t, early.Failed(errors.New("refused")))
		first.End()
		_, err := b.Begin("k")
		require.Error(t, err, "one tries")
		require.Equal(t, 1, b.Outages()["k"].Failures)
		require.Error(t, sole.Failed(errors.New("refused")))
		pass(time.Second)
		next := begin(t, b)
		sole.End()
		_, err = b.Begin("k")
		require.Error(t, err, "the next one tries")
		next.End()
		begin(t, b)
	})
}

// What a try finds that began before an outage, or before its end, begins no outage and ends none.
func TestStaleTriesSayNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(slog.New(slog.DiscardHandler), func(string) {})
		answered, refused, first := begin(t, b), begin(t, b), begin(t, b)
		require.Error(t, first.Failed(errors.New("refused")))
		answered.Reached()
		require.Len(t, b.Outages(), 1, "a server that stops answers what it has begun")
		pass(time.Second)
		begin(t, b).Reached()
		require.Empty(t, b.Outages())
		require.Error(t, refused.Failed(errors.New("refused")))
		require.Empty(t, b.Outages(), "it is back since")
		require.Error(t, begin(t, b).Failed(errors.New("refused")))
		require.Len(t, b.Outages(), 1)
	})
}

// The pauses of an outage are as long as it has lasted, up to a bound: each begins
// with a failure, lets no job of the kind be claimed, and wakes the worker at its
// end. Other kinds are claimed meanwhile. When the handler is reached, the next
// outage begins with the shortest pause again.
func TestPausesGrow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		woken := make(chan string, 100)
		b := breaker.New(slog.New(slog.DiscardHandler), func(kind string) { woken <- kind })
		kinds := []string{"k", "other"}
		fail := func() (pause time.Duration) {
			begun := time.Now()
			err := begin(t, b).Failed(errors.New("refused"))
			require.EqualError(t, err, "handler cannot be reached: refused")
			require.Equal(t, []string{"other"}, b.Claimable(kinds))
			_, err = b.Begin("k")
			require.EqualError(t, err, "handler cannot be reached: refused")
			require.Equal(t, "k", <-woken)
			require.Equal(t, kinds, b.Claimable(kinds))
			return time.Since(begun)
		}
		require.Equal(t, kinds, b.Claimable(kinds))
		for outage := range 2 {
			lasted := time.Duration(0)
			for failure := range 12 {
				longest := min(max(lasted, 200*time.Millisecond), 30*time.Second)
				pause := fail()
				require.LessOrEqual(t, pause, longest, "pause %d of outage %d", failure, outage)
				require.GreaterOrEqual(t, pause, longest*3/4, "pause %d of outage %d", failure, outage)
				lasted += pause
				require.Equal(t, failure+1, b.Outages()["k"].Failures)
			}
			begin(t, b).Reached()
			require.Equal(t, "k", <-woken)
			require.Empty(t, b.Outages())
		}
	})
}

// While one job tries, the others of its kind wait. If it ends without an outcome, the worker is woken for them.
func TestATryWithoutOutcomeWakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		woken := make(chan string, 100)
		b := breaker.New(slog.New(slog.DiscardHandler), func(kind string) { woken <- kind })
		require.Error(t, begin(t, b).Failed(errors.New("refused")))
		require.Equal(t, "k", <-woken, "the pause is over")
		sole := begin(t, b)
		require.Empty(t, b.Claimable([]string{"k"}))
		sole.End()
		require.Equal(t, []string{"k"}, b.Claimable([]string{"k"}))
		require.Len(t, woken, 1)
		sole.End()
		require.Len(t, woken, 1, "it is over")
	})
}
