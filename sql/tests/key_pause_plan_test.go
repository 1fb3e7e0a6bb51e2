package tests

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// The statements that meet paused keys cost the same however many there are, as in TestPlansOfMuchHistory. They have a database
// of their own, since rows that a plan test takes back stay in the way of those after it.
func TestPlansBesideManyPausedKeys(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.withoutAutovacuum()
	q.exec("insert into jobq.queue (name, key_limit) values ('keys', 1)")
	q.exec("insert into jobq.pending (id, kind, queue, partition_key) select i, 'k', 'keys', 'paused ' || i from generate_series(1, 20000) i")
	q.exec("insert into jobq.pending (id, kind, queue, partition_key) select 20000 + i, 'k', 'keys', 'ready ' || i % 10 from generate_series(1, 100) i")
	q.exec("truncate jobq.lane_hint")
	q.exec("insert into jobq.lane (queue, key) select 'keys', 'paused ' || i from generate_series(1, 20000) i union all select 'keys', ''")
	q.exec("insert into jobq.lane (queue, key, turn) select 'keys', 'ready ' || i, nextval('jobq.lane_turn_seq') from generate_series(0, 9) i")
	q.exec(`insert into jobq.paused_key (queue, key, paused_at, paused_by)
		select 'keys', 'paused ' || i, now() - interval '2 days' - i * interval '1 s', 'ann' from generate_series(1, 20000) i`)
	const batch, inHand = 6_000, 3_000
	admitted := "select set_config('jobq_claim.admitted', '100', true)"
	cases := []historyCase{
		{"LaneClaim", db.LaneClaim, "'keys', '{k}', 'w', '1 min', false, true, 0, 0, false, 10", inHand, admitted},
		{"LanePrune", db.LanePrune, "'', '', 0, 100", 2 * inHand, ""},
		{"WorkWaits", db.WorkWaits, "true, '{other}', '{keys}'", 4 * batch, ""}, // looks at 1,000 keys
		{"QueueList", db.QueueList, "1000", batch, ""},
		{"KeyList", db.KeyList, "10000, 'keys', 1000, '', 100", batch, ""},
		{"DoctorPaused", db.DoctorPaused, "'1 day'", 100, ""},
		{"DoctorWaiting", db.DoctorWaiting, "200, '1 minute'", 2 * batch, ""},
		{"WhyList", db.WhyList, "7", inHand, ""},
		{"KeyAct", db.KeyAct, "'ann', 'key_pause', 'keys', 'ready 1', null", inHand, ""},
		{"KeyAct of a resume", db.KeyAct, "'ann', 'key_resume', 'keys', 'paused 7', null", inHand, ""},
	}
	conn, err := q.pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	q.runCases(conn, cases, func() { q.exec("analyze jobq.pending, jobq.lane, jobq.lane_hint, jobq.paused_key") })
}

// Why a job waits whose key has many others before it, of which many were paused since the last claim, costs a bounded look at these.
func TestWhyBesideManyPauses(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	for _, table := range []string{"lane", "lane_hint", "paused_key"} {
		q.exec("alter table jobq." + table + " set (autovacuum_enabled = off)")
	}
	q.exec(`insert into jobq.worker (id, pid, hostname, version, queues, kinds, kind_slots) values ('w', 1, 'h', 'v', '{"q": 10}', '{k}', '{}')`)
	q.exec("insert into jobq.pending (id, kind, queue, partition_key) overriding system value values (1, 'k', 'q', 'last')")
	q.exec("insert into jobq.lane (queue, key, turn) select 'q', 'key ' || i, i from generate_series(1, 20000) i union all select 'q', 'last', 20001")
	for _, pauses := range []int{100, 19_900} { // since the last claim
		q.exec("delete from jobq.lane where queue = 'q' and turn between 1 and 20000 - $1 - 500", pauses) // so that the others are fewer than are counted
		q.exec("truncate jobq.lane_hint, jobq.paused_key")
		q.exec("select jobq.act_key('me', 'key_pause', 'q', 'key ' || 20001 - i, null) from generate_series(1, $1::integer) i", pauses)
		for _, statistics := range []string{"absent", "fresh"} {
			buffers := fewestBuffers(1500, func() int { return explainBuffers(t, q.pool, "select * from jobq.why(1)") })
			t.Logf("%d pauses, statistics %s: %d buffers", pauses, statistics, buffers)
			require.LessOrEqual(t, buffers, 1500, "%d pauses, statistics %s", pauses, statistics)
			q.exec("analyze jobq.lane, jobq.lane_hint, jobq.paused_key")
		}
		before := q.number("select coalesce(sum((facts ->> 'keys_before')::integer), -1) from jobq.why(1)")
		if pauses == 100 {
			require.Equal(t, 500, before)
		} else {
			require.Equal(t, -1, before, "how many get their turns before is not known")
		}
	}
}
