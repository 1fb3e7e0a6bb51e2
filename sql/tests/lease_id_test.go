package tests

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Ids of leases do not go down when the clock is set back by at most two days, and are never negative. After a clock that was
// further ahead, the day of an id is the clock's again, and the number in the id does not repeat.
func TestLeaseIDsGrowWhenTheClockGoesBack(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	ahead := func(days int) { // the clock was so far ahead
		q.exec("select setval('jobq.lease_day_seq', (clock_timestamp() at time zone 'UTC')::date - date '2026-01-01' + $1::integer)", days)
	}
	dayOfNext := func() int { // in days from now
		return q.number("select (jobq.lease_id_next() >> 40) - ((clock_timestamp() at time zone 'UTC')::date - date '2026-01-01')")
	}
	require.Zero(t, dayOfNext())
	numbers := make(map[int]bool)
	for _, test := range []struct{ ahead, want int }{{0, 0}, {1, 1}, {2, 2}, {3, 0}, {0, 0}, {-1, 0}, {-100, 0}, {10_000, 0}} {
		ahead(test.ahead)
		for range 2 {
			require.Equal(t, test.want, dayOfNext(), "latest day %d ahead", test.ahead)
			number := q.number("select jobq.lease_id_next() & ((1::bigint << 40) - 1)")
			require.False(t, numbers[number])
			numbers[number] = true
		}
	}
	require.GreaterOrEqual(t, q.number("select jobq.lease_id_next()"), 0)
}
