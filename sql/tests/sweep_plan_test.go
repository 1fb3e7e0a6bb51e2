package tests

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// A step looks at its blocks and at what belongs to their jobs, however large the day, whatever the planner knows, and whatever
// those before have deleted; with 300,000 jobs in a day, 20,000 queues that have a retention, and 120 days.
func TestSweepStepsAreBounded(t *testing.T) {
	t.Parallel()
	const jobs, blocks, leases = 300_000, 16, 1000
	q := setUp(t)
	q.withoutAutovacuum()
	q.exec("set synchronous_commit = off")
	q.exec(`select jobq.partition_add(parent, (now() at time zone 'UTC')::date - ago)
		from unnest(array['run', 'past_lease', 'attempt']) parent, generate_series(10, 170) ago where ago = 10 or ago > 91`)
	q.exec("insert into jobq.queue (name, retention) select 'q' || i, '90 days' from generate_series(1, 20000) i")
	q.exec(`
		with d as (
		  select jobq.lease_day((now() at time zone 'UTC')::date - 10) as low, ((now() at time zone 'UTC')::date - 10)::timestamp at time zone 'UTC' as at
		), l as (
		  insert into jobq.past_lease (id, claimed_at, owner, ended) select d.low + i, d.at, 'w', array_fill(7, array[100]) from d, generate_series(1, $1 / 100) i
		), a as (
		  insert into jobq.attempt (job_id, finished_at, started_at, lease_token, outcome, number, worker_id)
		    select i, d.at + interval '1 min', d.at, d.low, 'lost', 1, 'w' from d, generate_series(1, $1) i
		)
		insert into jobq.run (id, lease_id, slot, created_at, priority, attempts, max_attempts, crashes, args_apart, queue, kind, args)
		  select i, d.low + 1 + i / 100, i % 100 + 1, d.at, 0, 0, 25, 0, i % 100 = 0, case when i % 10 = 0 then 'q' || 1 + i / 10 % 20000 else 'other' end, 'k', '{}' from d, generate_series(1, $1 - 100) i`, jobs)
	conn, err := q.pool.Acquire(context.Background())
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Exec(context.Background(), "prepare sweep as "+q.schema.SQL(db.HistorySweep))
	require.NoError(t, err)
	for _, statistics := range []string{"absent", "fresh"} {
		if statistics == "fresh" {
			q.exec("analyze")
		}
		q.exec("delete from jobq.sweep")
		highest, steps := map[string]int{}, 0
		for {
			var phase string
			require.NoError(t, q.pool.QueryRow(context.Background(), `select coalesce(max(case when next_block is not null then 'blocks' when next_lease is not null then 'leases' end), 'begin') from jobq.sweep`).Scan(&phase))
			if steps++; phase == "begin" && steps > 1 {
				break
			}
			if buffers := explainBuffers(t, conn, fmt.Sprintf("execute sweep(%d, %d)", blocks, leases)); steps > 3 || phase != "blocks" { // the first ones read catalogs
				highest[phase] = max(highest[phase], buffers)
			}
			if statistics == "absent" && steps == 40 { // the rest of the day is for the other
				break
			}
		}
		t.Logf("statistics %s: %d steps, at most %v buffers", statistics, steps, highest)
		require.Less(t, highest["blocks"], 40_000, statistics)
		require.Less(t, highest["leases"], 20_000, statistics)
	}
	require.Equal(t, (jobs-100)/10, q.number("select count(*) from jobq.run"))
	require.Zero(t, q.number("select count(*) from jobq.sweep_lease"))
}
