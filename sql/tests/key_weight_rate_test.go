package tests

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A key whose rate is used up in the middle of its turn gets the rest of it as soon as it is due, and others go on meanwhile.
func TestWeightsBesideARate(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.set(`{"key_rate_jobs": 1, "key_rate_period": "1 h", "key_rate_burst": 2}`)
	q.weigh("a", 3)
	q.enqueueKeyed("a", 20)
	q.enqueueKeyed("b", 20)
	claim := func() string {
		jobs := q.exchange(keyed("w", 1)).Keyed
		require.Len(t, jobs, 1)
		return jobs[0].PartitionKey
	}
	for claim() != "a" { //nolint:revive // until a turn of a has begun
	}
	require.Equal(t, "a", claim(), "the second of three")
	require.Equal(t, "b", claim())
	q.exec("update jobq.lane set throttled_until = now() - interval '1 s', rate_ready_at = now() - interval '1 day' where key = 'a'")
	require.Equal(t, "a", claim(), "the third")
	require.Equal(t, 1, q.number("select count(*) from jobq.lane where key = 'a' and due is null and due_turn is null"), "its turn is over")
}
