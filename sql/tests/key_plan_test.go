package tests

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// laneBuffersMax is four times what a claim of 50 jobs from 10 lanes looks at.
const laneBuffersMax = 1_500

// laneBuffers is how many buffers a claim from the queue "keys" looks at, without statistics and with fresh ones.
func (q *queue) laneBuffers() (buffers []int) {
	q.Helper()
	for _, statistics := range []string{"absent", "fresh"} {
		if statistics == "fresh" {
			q.exec("analyze jobq.lease, jobq.lane, jobq.pending")
		}
		buffers = append(buffers, q.claimBuffers())
		q.Logf("statistics %s: %d buffers", statistics, buffers[len(buffers)-1])
	}
	return buffers
}

// claimBuffers is how many buffers a claim from the queue "keys" looks at, under the settings that claims have. It
// undoes the claim.
func (q *queue) claimBuffers() int {
	q.Helper()
	ctx := context.Background()
	conn, err := q.pool.Acquire(ctx)
	require.NoError(q, err)
	defer conn.Release()
	tx, err := conn.Begin(ctx)
	require.NoError(q, err)
	defer func() { require.NoError(q, tx.Rollback(ctx)) }()
	for _, sql := range []string{db.HotSettings, "select set_config('jobq_claim.admitted', '100', true)"} {
		_, err = tx.Exec(ctx, sql)
		require.NoError(q, err)
	}
	claim := "select * from jobq.lane_claim('keys', '{k}', 'w', '1 min', false, true, 0, 0, false)"
	_, err = tx.Exec(ctx, "savepoint first")
	require.NoError(q, err)
	explainBuffers(q.T, tx, claim) // catalogs
	_, err = tx.Exec(ctx, "rollback to first")
	require.NoError(q, err)
	return explainBuffers(q.T, tx, claim)
}

// What a lane holds is looked up in the leases that it names, however many others there are.
func TestLaneClaimAmongManyLeases(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("alter table jobq.lease set (autovacuum_enabled = off)")
	q.exec("insert into jobq.queue (name, key_limit) values ('keys', 5)")
	q.exec("insert into jobq.lane (queue, key) values ('keys', '')")
	q.exec(`insert into jobq.lease (id, claimed_at, expires_at, owner, queue, job_ids)
		select i, now(), now() + interval '1 h', 'w', 'keys', array[i, i + 100000] from generate_series(1, 10000) i`)
	q.exec("insert into jobq.pending (kind, queue, partition_key) select 'k', 'keys', 'key ' || i % 10 from generate_series(1, 100) i")
	q.exec("delete from jobq.lane_hint")
	q.exec(`insert into jobq.lane (queue, key, turn, held_leases, held_slots)
		select 'keys', 'key ' || i, i, array[i * 100 + 1, i * 100 + 2], '{1,2}' from generate_series(0, 9) i`)
	for _, buffers := range q.laneBuffers() {
		require.LessOrEqual(t, buffers, laneBuffersMax)
	}
}

// A key with many jobs of other kinds costs each claim a bounded walk.
func TestLaneClaimPastManyJobsOfOtherKinds(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("alter table jobq.pending set (autovacuum_enabled = off)")
	q.exec("insert into jobq.pending (kind, queue, partition_key) select 'other', 'keys', 'a' from generate_series(1, 100000) i")
	for _, buffers := range q.laneBuffers() {
		require.LessOrEqual(t, buffers, laneBuffersMax)
	}
}

// Of what a lane holds, each lease is looked at once, and without a limit none is.
func TestLaneClaimOfKeysThatHoldMuch(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("alter table jobq.lease set (autovacuum_enabled = off)")
	q.exec(`insert into jobq.lease (id, claimed_at, expires_at, owner, queue, job_ids)
		select i, now(), now() + interval '1 h', 'w', 'keys', array(select j from generate_series(1, 1000) j) from generate_series(1, 1000) i`)
	q.exec("insert into jobq.pending (kind, queue, partition_key) select 'k', 'keys', 'key ' || i % 2 from generate_series(1, 1000) i")
	q.exec("delete from jobq.lane_hint")
	hold := func(leases, slots string) {
		q.exec("delete from jobq.lane")
		q.exec("insert into jobq.lane (queue, key) values ('keys', '')")
		q.exec(`insert into jobq.lane (queue, key, turn, held_leases, held_slots)
			select 'keys', 'key ' || i, i + 1, array_agg(l), array_agg(s) from generate_series(0, 1) i, ` + leases + " l, " + slots + " s group by i")
	}
	hold("generate_series(1, 1000)", "generate_series(1, 1)")
	for _, buffers := range q.laneBuffers() {
		require.LessOrEqual(t, buffers, laneBuffersMax, "without a limit")
	}
	q.exec("insert into jobq.queue (name, key_limit) values ('keys', 5000)")
	hold("generate_series(1, 2)", "generate_series(1, 1000)")
	for _, buffers := range q.laneBuffers() {
		require.LessOrEqual(t, buffers, laneBuffersMax, "of few leases")
	}
}

// A claim without a limit of the keys costs what it takes and no more, however many keys wait behind those
// that it takes from, have hints, or were emptied before.
func TestLaneClaimWithoutALimit(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("alter table jobq.pending set (autovacuum_enabled = off)")
	q.exec("alter table jobq.lane set (autovacuum_enabled = off)")
	q.exec("alter table jobq.lane_hint set (autovacuum_enabled = off)")
	q.exec("insert into jobq.pending (kind, queue, partition_key) select 'k', 'keys', 'key ' || i % 20000 from generate_series(1, 60000) i")
	for _, buffers := range q.laneBuffers() {
		require.LessOrEqual(t, buffers, 6_000, "all of them are hints")
	}
	q.exec("truncate jobq.lane_hint")
	q.exec("insert into jobq.lane (queue, key, turn) select 'keys', 'key ' || i % 20000, nextval('jobq.lane_turn_seq') from generate_series(1, 20000) i")
	for _, buffers := range q.laneBuffers() {
		require.LessOrEqual(t, buffers, 6_000, "all of them have a lane")
	}
}

// When a queue gets a limit of its keys, each claim notes a bounded part of what runs.
func TestLaneNoteIsBounded(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("alter table jobq.lease set (autovacuum_enabled = off)")
	q.exec("insert into jobq.queue (name, key_limit) values ('keys', 5)")
	q.exec(`insert into jobq.lease (id, claimed_at, expires_at, owner, queue, job_ids)
		select i, now(), now() + interval '1 h', 'w', 'keys', array(select j from generate_series(1, 500) j) from generate_series(1, 1000) i`)
	q.exec("insert into jobq.pending (kind, queue, partition_key) values ('k', 'keys', 'a')")
	q.exec("insert into jobq.lane (queue, key, unheld) values ('keys', '', 0)")
	for _, buffers := range q.laneBuffers() {
		require.LessOrEqual(t, buffers, 12_000, "1,000 of 500,000 jobs")
	}
}

// In a queue whose keys run in order, a claim looks at the head of a key and not at what is behind it, nor at the
// other heads, however many they are.
func TestLaneClaimInOrder(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	for _, table := range []string{"pending", "lane", "lane_head"} {
		q.exec("alter table jobq." + table + " set (autovacuum_enabled = off)")
	}
	q.exec("insert into jobq.queue (name, key_limit, key_order) values ('keys', 1, 'stop')")
	q.exec("insert into jobq.lane (queue, key) values ('keys', '')")
	q.exec("insert into jobq.pending (kind, queue, partition_key) select 'k', 'keys', 'key ' || i % 10 from generate_series(1, 200000) i")
	q.exec("truncate jobq.lane_hint")
	q.exec("insert into jobq.lane (queue, key, turn) select 'keys', 'key ' || i, i + 1 from generate_series(0, 9) i")
	q.exec("insert into jobq.lane (queue, key, full_limit, looked_at) select 'keys', 'full ' || i, 1, now() from generate_series(1, 20000) i")
	q.exec("insert into jobq.lane_head (queue, key, job_id, lease_id) select 'keys', 'full ' || i, 1000000 + i, i from generate_series(1, 20000) i")
	q.exec("insert into jobq.lane_head (queue, key, job_id, lease_id) select 'keys', 'key ' || i, 199000 + i, 1 from generate_series(0, 4) i")
	for _, buffers := range q.laneBuffers() {
		require.LessOrEqual(t, buffers, laneBuffersMax)
	}
}

// The head of a key is looked up by its id, also where the statistics say that no two jobs have the same key, and very many of one
// have come since: its line is never walked.
func TestLaneClaimOfAHeadWithOldStatistics(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	for _, table := range []string{"pending", "lane", "lane_head"} {
		q.exec("alter table jobq." + table + " set (autovacuum_enabled = off)")
	}
	q.exec("insert into jobq.queue (name, key_limit, key_order) values ('keys', 1, 'hold')")
	q.exec("insert into jobq.lane (queue, key) values ('keys', '')")
	q.exec("insert into jobq.pending (kind, queue, partition_key) select 'k', 'keys', 'key ' || i from generate_series(1, 200000) i")
	q.exec("analyze jobq.pending")
	q.exec("insert into jobq.pending (kind, queue, partition_key) select 'k', 'keys', 'long' from generate_series(1, 100000) i")
	q.exec("truncate jobq.lane_hint")
	q.exec("insert into jobq.lane (queue, key, turn) values ('keys', 'long', 1)")
	q.exec("insert into jobq.lane_head (queue, key, job_id, lease_id) select 'keys', 'long', max(id), 1 from jobq.pending where partition_key = 'long'")
	buffers := q.claimBuffers()
	t.Logf("%d buffers", buffers)
	require.LessOrEqual(t, buffers, laneBuffersMax)
}

// One key is at its limit and has very many jobs in the line, beside a thousand small keys. The claims cost no more for
// that, take all jobs of the small keys, and of the large one as many as end.
func TestLaneClaimBesideALongFullKey(t *testing.T) {
	t.Parallel()
	const keys, each, limit = 1_000, 2, 3
	length := 200_000
	if os.Getenv(scaleVariable) == "1" {
		length = 1_000_000
	}
	q := setUp(t)
	for _, table := range []string{"pending", "lane", "lane_hint"} {
		q.exec("alter table jobq." + table + " set (autovacuum_enabled = off)")
	}
	q.exec("insert into jobq.queue (name, key_limit) values ('keys', $1)", limit)
	q.exec("insert into jobq.pending (kind, queue, partition_key) select 'k', 'keys', 'large' from generate_series(1, $1::integer)", length)
	claim := func(over ...db.KeyedJob) db.Exchanged {
		exchange := ended(keyed("w", 100), over...)
		exchange.Queue, exchange.Claim.Queue = "keys", "keys"
		return q.exchange(exchange)
	}
	// rest claims for as long as another claim would find more.
	rest := func(over ...db.KeyedJob) (jobs []db.KeyedJob) {
		for more := true; more; over = nil {
			answer := claim(over...)
			jobs, more = append(jobs, answer.Keyed...), answer.KeysMore
		}
		return jobs
	}
	first := rest()
	require.Equal(t, map[string]int{"large": limit}, perKey(first))
	q.exec("insert into jobq.pending (kind, queue, partition_key) select 'k', 'keys', 'small ' || i % $1 from generate_series(1, $1 * $2::integer) i", keys, each)
	var over []db.KeyedJob
	for taken := 0; taken < keys*each; taken += 100 {
		over = claim(over...).Keyed
		require.Len(t, over, 100)
		require.NotContains(t, perKey(over), "large")
		if taken == 500 { // its lanes are ready, and some have been served
			for _, buffers := range q.laneBuffers() {
				require.LessOrEqual(t, buffers, 4*laneBuffersMax, "of 100 keys")
			}
		}
	}
	require.Empty(t, rest(over...))
	for _, buffers := range q.laneBuffers() {
		require.LessOrEqual(t, buffers, laneBuffersMax, "all are full or empty")
	}
	told := ended(db.Exchange{Owner: "w", Queue: "keys"}, first[0], first[1])
	require.Len(t, q.exchange(told).Completed, 2)
	for _, buffers := range q.laneBuffers() {
		require.LessOrEqual(t, buffers, laneBuffersMax, "two places are free")
	}
	require.Equal(t, map[string]int{"large": 2}, perKey(rest()), "as many as have ended")
	q.exec("insert into jobq.lane_hint (queue, key) values ('keys', 'large')")
	for _, buffers := range q.laneBuffers() {
		require.LessOrEqual(t, buffers, laneBuffersMax, "a look at the full key")
	}
	require.Empty(t, rest())
	require.Equal(t, length-limit-2, q.number("select count(*) from jobq.pending where queue = 'keys'"))
}
