package leases_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/worker/internal/leases"
)

// unknown are those of the leases that are searched for.
func unknown(c *leases.Claims, ids ...int64) (found []int64) {
	for _, id := range ids {
		if c.IsUnknown(id) {
			found = append(found, id)
		}
	}
	return found
}

// What is searched for is neither earlier than the claim without an answer nor a
// lease that another claim was told of, before or after.
func TestOnlyWhatNobodyAnsweredIsUnknown(t *testing.T) {
	t.Parallel()
	c := leases.NewClaims()
	c.Answered(c.Begin(), []int64{900})
	lost, beside := c.Begin(), c.Begin()
	c.Answered(beside, []int64{902})
	require.Empty(t, unknown(c, 900, 901, 902), "no claim has lost its answer")
	c.Unanswered(lost, time.Minute)
	later := c.Begin()
	require.Len(t, c.UnderWay(), 1)
	c.Answered(later, []int64{903, 904})
	require.Empty(t, c.UnderWay())
	require.Equal(t, []int64{901, 905}, unknown(c, 899, 900, 901, 902, 903, 904, 905))

	after, known, ok := c.Search(0)
	require.True(t, ok)
	require.EqualValues(t, 900, after)
	require.ElementsMatch(t, []int64{902, 903, 904}, known)
	_, _, ok = c.Search(time.Minute)
	require.False(t, ok, "the lease's time is over")
	require.Empty(t, unknown(c, 901, 905))
}

// There may be unknown leases until a search that began after the last lost answer has found none.
func TestMayHaveUnknown(t *testing.T) {
	t.Parallel()
	c := leases.NewClaims()
	require.False(t, c.MayHaveUnknown(0))
	c.Unanswered(c.Begin(), time.Minute)
	require.True(t, c.MayHaveUnknown(0))
	c.Search(0)
	c.Unanswered(c.Begin(), time.Minute)
	c.FoundNone()
	require.True(t, c.MayHaveUnknown(0), "an answer was lost during the search")
	require.False(t, c.MayHaveUnknown(time.Minute), "the leases have expired")
	c.Search(0)
	c.FoundNone()
	require.False(t, c.MayHaveUnknown(0))
}

// A lease of a claim under way is unknown only until its answer comes, also when it
// was sent before the one that lost its answer.
func TestAnEarlierClaimIsStillAnswered(t *testing.T) {
	t.Parallel()
	c := leases.NewClaims()
	c.Answered(c.Begin(), []int64{900})
	slow := c.Begin()
	c.Answered(c.Begin(), []int64{902})
	c.Unanswered(c.Begin(), time.Minute) // its lease would be after 902
	over := c.UnderWay()
	require.Len(t, over, 1)
	c.Answered(slow, []int64{903})
	<-over[0]
	require.Equal(t, []int64{904}, unknown(c, 901, 902, 903, 904))
}

// What is remembered is bounded. Leases that were answered stay known.
func TestFewAnsweredLeasesAreRemembered(t *testing.T) {
	t.Parallel()
	c := leases.NewClaims()
	c.Unanswered(c.Begin(), time.Minute)
	stuck := c.Begin()
	for id := range int64(50_000) {
		c.Answered(c.Begin(), []int64{id + 1})
	}
	_, known, ok := c.Search(0)
	require.True(t, ok)
	require.LessOrEqual(t, len(known), 10_000)
	require.Empty(t, unknown(c, 1, 2, 25_000, 49_999, 50_000))
	c.Unanswered(stuck, time.Minute)
	require.Empty(t, unknown(c, 1, 2, 25_000, 49_999, 50_000))
	require.Equal(t, []int64{50_001}, unknown(c, 50_001))

	_, _, ok = c.Search(time.Minute)
	require.False(t, ok)
	c.Answered(c.Begin(), []int64{50_001})
	c.Unanswered(c.Begin(), 2*time.Minute)
	_, known, ok = c.Search(time.Minute)
	require.True(t, ok)
	require.Empty(t, known, "what is earlier than any unknown lease is forgotten")
}

// After the server's clock was set back, leases are earlier than those before. They are
// not searched for, and not remembered.
func TestEarlierLeasesAreNotRemembered(t *testing.T) {
	t.Parallel()
	c := leases.NewClaims()
	c.Answered(c.Begin(), []int64{1_000_000})
	for id := range int64(100) {
		c.Answered(c.Begin(), []int64{id + 1})
	}
	c.Unanswered(c.Begin(), time.Minute)
	_, known, ok := c.Search(0)
	require.True(t, ok)
	require.Empty(t, known)
}
