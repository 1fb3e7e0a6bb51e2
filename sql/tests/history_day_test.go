package tests

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whether a day must stay is a few look-ups in indexes, with statistics and
// without: however many jobs the day has, and whatever of them has ended on its
// own row.
func TestDayNeededReadsNoDay(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	const jobs, few = 30_000, 30
	for name, onRow := range map[string]string{"plain": "false", "some of each": "i % 100 < 2", "each": "true"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			q.withoutAutovacuum()
			_, err := q.queries.PartitionAdd(ctx, "run", -20)
			require.NoError(t, err)
			var day string
			require.NoError(t, q.pool.QueryRow(ctx, "select ((now() at time zone 'UTC')::date - 20)::text").Scan(&day))
			q.exec(`insert into jobq.run (id, lease_id, slot, state, finished_at, run_at, created_at, priority, attempts, max_attempts, crashes, args_apart, queue, kind)
				select i, jobq.lease_day($1::text::date) + i / 100, i % 100 + 1, case when `+onRow+` then (case when i % 2 = 0 then 'completed' else 'failed' end)::jobq.job_state end,
				  case when `+onRow+` then now() - interval '19 days' - i * interval '1 ms' end, now(), now(), 0, 0, 25, 0, false, 'q', 'k'
				from generate_series(1, $2::integer) i`, day, jobs)
			conn, err := q.pool.Acquire(ctx)
			require.NoError(t, err)
			defer conn.Release()
			for _, statistics := range []string{"absent", "fresh"} {
				if statistics == "fresh" {
					q.exec("vacuum analyze jobq.run_" + day[:4] + day[5:7] + day[8:])
				}
				buffers := 0
				for range 2 { // the first one reads catalogs
					buffers = explainBuffers(t, conn, fmt.Sprintf("select jobq.day_needed('run', '%s')", day))
				}
				t.Logf("statistics %s: %d buffers", statistics, buffers)
				require.LessOrEqual(t, buffers, few, statistics)
			}
		})
	}
}
