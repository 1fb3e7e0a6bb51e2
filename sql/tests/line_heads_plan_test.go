package tests

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// What is shown of a queue, and what jobq doctor looks at, costs the same however many keys it has, whether they are ready,
// full, or held by a head that has failed: without statistics and with fresh ones.
func TestHeadsOfManyKeys(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	const keys, fewer = 100_000, 20_000
	q := setUp(t)
	for _, table := range []string{"pending", "lane", "lane_head", "lane_hint", "lease"} {
		q.exec("alter table jobq." + table + " set (autovacuum_enabled = off)")
	}
	conn, err := q.pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	exec := func(sql string, args ...any) {
		_, err := conn.Exec(ctx, sql, args...)
		require.NoError(t, err, sql)
	}
	exec("set session_replication_role = replica") // no triggers
	exec(`insert into jobq.queue (name, key_limit, key_order) values ('full', 1, null), ('stops', 1, 'stop'), ('many', 10000, null)`)
	exec(`insert into jobq.pending (kind, queue, partition_key, priority) select 'k' || i % 10, q, 'key ' || i, i % 3
		from unnest('{ready,full,stops}'::text[], array[$1, $2, $2]::integer[]) as of(q, keys), generate_series(1, keys) i`, keys, fewer)
	exec(`insert into jobq.pending (kind, queue, partition_key) select 'k', 'many', 'key ' || i % 100 from generate_series(1, 1000) i`)
	exec(`insert into jobq.pending (kind, queue, priority) select 'k', 'plain', i from generate_series(1, 10000) i`)
	exec(`insert into jobq.lane (queue, key, turn) select 'ready', 'key ' || i, i from generate_series(1, $1::integer) i`, keys)
	exec(`insert into jobq.lane (queue, key, full_limit, looked_at, held_leases, held_slots) select 'full', 'key ' || i, 1, now(), array[i % 1000 + 1], '{1}' from generate_series(1, $1::integer) i`, fewer)
	exec(`insert into jobq.lane (queue, key, full_limit, looked_at) select 'stops', 'key ' || i, 1, now() from generate_series(1, $1::integer) i`, fewer)
	exec(`insert into jobq.lane_head (queue, key, job_id, lease_id) select 'stops', 'key ' || i, 50000000 + i, jobq.lease_day((now() at time zone 'UTC')::date) + i from generate_series(1, $1::integer) i`, fewer)
	exec(`insert into jobq.lane (queue, key, full_limit, looked_at, held_leases, held_slots)
		select 'many', 'key ' || i, 10000, now(), array(select 1 + j % 1000 from generate_series(1, 10000) j), array_fill(1::smallint, '{10000}') from generate_series(0, 99) i`)
	exec(`insert into jobq.lease (id, claimed_at, expires_at, owner, queue, job_ids) select i, now(), now() + interval '1 hour', 'w', 'full', array[i] from generate_series(1, 1000) i`)
	for _, statistics := range []string{"absent", "fresh"} {
		if statistics == "fresh" {
			exec("analyze jobq.pending, jobq.lane, jobq.lane_head, jobq.lease")
		}
		for _, statement := range []struct {
			name, sql, args string
			buffers         int
		}{
			{"QueueList", q.schema.SQL(db.QueueList), "1000", 20_000},
			{"DoctorWaiting", q.schema.SQL(db.DoctorWaiting), "200, '1 minute'", 20_000},
			{"line_heads of ready keys", "select * from jobq.line_heads('ready', $1)", "100", 3_000},
			{"line_heads of full keys", "select * from jobq.line_heads('full', $1)", "100", 3_000},
			{"line_heads of stopped keys", "select * from jobq.line_heads('stops', $1)", "100", 4_000},
			{"line_heads of keys that hold much", "select * from jobq.line_heads('many', $1)", "100", 8_000},
			{"line_heads of priorities", "select * from jobq.line_heads('plain', $1)", "100", 2_000},
		} {
			for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
				exec("set plan_cache_mode = " + mode)
				exec("prepare heads as " + statement.sql)
				execute := "execute heads (" + statement.args + ")"
				buffers := fewestBuffers(statement.buffers, func() int { return explainBuffers(t, conn, execute) })
				t.Logf("statistics %s, %s, %s: %d buffers", statistics, mode, statement.name, buffers)
				require.LessOrEqual(t, buffers, statement.buffers, "statistics %s, %s, %s", statistics, mode, statement.name)
				exec("deallocate heads")
			}
		}
	}
}
