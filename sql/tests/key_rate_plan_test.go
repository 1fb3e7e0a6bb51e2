package tests

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// setUpThrottled is a queue "keys" with a rate, of which very many keys are as the SQL of their lanes says, and ten are ready. One of
// the many has a long line.
func setUpThrottled(t *testing.T, lanes string) *queue {
	t.Helper()
	keys, line := 20_000, 50_000
	if os.Getenv(scaleVariable) == "1" {
		keys, line = 100_000, 1_000_000
	}
	q := setUp(t)
	q.withoutAutovacuum()
	q.exec("insert into jobq.queue (name, key_rate_jobs, key_rate_period, key_rate_burst) values ('keys', 1, '1 hour', 2)")
	q.exec("insert into jobq.pending (id, kind, queue, partition_key) select i, 'k', 'keys', 'throttled ' || i from generate_series(1, $1::integer) i", keys)
	q.exec("insert into jobq.pending (id, kind, queue, partition_key) select 2000000 + i, 'k', 'keys', 'throttled 1' from generate_series(1, $1::integer) i", line)
	q.exec("insert into jobq.pending (id, kind, queue, partition_key) select 4000000 + i, 'k', 'keys', 'ready ' || i % 10 from generate_series(1, 100) i")
	q.exec("truncate jobq.lane_hint")
	q.exec("insert into jobq.lane (queue, key) values ('keys', '')")
	q.exec(`insert into jobq.lane (queue, key, rate_ready_at, rate_step_us, rate_burst, throttled_until)
		select 'keys', 'throttled ' || i, `+lanes+` from generate_series(1, $1::integer) i`, keys)
	q.exec("insert into jobq.lane (queue, key, turn) select 'keys', 'ready ' || i, nextval('jobq.lane_turn_seq') from generate_series(0, 9) i")
	return q
}

// A claim costs the same however many keys are throttled, are due, were throttled by another rate, or have nothing waiting
// and their rate used up. With as many that are due as it looks at, it costs as much as these.
func TestLaneClaimBesideManyThrottledKeys(t *testing.T) {
	t.Parallel()
	const hour = "3600000000"
	for name, c := range map[string]struct {
		lanes   string
		buffers int
	}{
		"throttled":       {"now() + interval '2 h' + i * interval '1 ms', " + hour + ", 2, now() + interval '1 h' + i * interval '1 ms'", laneBuffersMax},
		"due":             {"now() + interval '30 min', " + hour + ", 2, now() - i * interval '1 s'", 8 * laneBuffersMax},
		"of a slower one": {"now() + interval '9 h', 2 * " + hour + ", 2, now() + interval '1 h'", 8 * laneBuffersMax},
		"of a faster one": {"now() + interval '2 s', 1000000, 2, now() + interval '1 s'", 8 * laneBuffersMax},
		"empty":           {"now() + interval '2 h', " + hour + ", 2, null", laneBuffersMax},
		"empty, and due":  {"now() - interval '2 h', " + hour + ", 2, null", 2 * laneBuffersMax},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := setUpThrottled(t, c.lanes)
			for _, buffers := range q.laneBuffers() {
				require.LessOrEqual(t, buffers, c.buffers)
			}
			claim := keyed("w", 5)
			claim.Queue, claim.Claim.Queue = "keys", "keys"
			for key := range perKey(q.exchange(claim).Keyed) {
				require.Contains(t, key, "ready", "they have the first turns")
			}
		})
	}
}

// Other statements that meet throttled keys cost the same however many there are, as in TestPlansOfMuchHistory.
func TestPlansBesideManyThrottledKeys(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUpThrottled(t, "now() + interval '2 h', 3600000000, 2, now() + interval '1 h'")
	const batch, inHand = 6_000, 3_000
	cases := []historyCase{
		{"LanePrune", db.LanePrune, "'', '', 0, 100", 2 * inHand, ""},
		{"LanePrune of hints", db.LanePrune, "'', '', 0, 100", inHand, "insert into jobq.lane_hint (queue, key) select 'keys', 'throttled ' || i from generate_series(1, 1000) i"},
		{"QueueList", db.QueueList, "1000", batch, ""},
		{"KeyList", db.KeyList, "10000, 'keys', 1000, '', 100", batch, ""},
		{"DoctorWaiting", db.DoctorWaiting, "200, '1 minute'", 2 * batch, ""},
		{"WhyList", db.WhyList, "7", inHand, ""},
	}
	conn, err := q.pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	q.runCases(conn, cases, func() { q.exec("analyze jobq.pending, jobq.lane, jobq.lane_hint") })
}
