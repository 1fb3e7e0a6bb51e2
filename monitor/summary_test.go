package monitor_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/monitor"
)

// A summary counts the jobs that match in each state, as the view has them, and sums up what their programs have used.
func TestSummary(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	pool := w.Client.Pool()
	for i, state := range jobq.States() {
		for range i + 1 {
			w.InState(state, jobq.EnqueueOptions{Tags: []string{"sweep1"}})
		}
		w.InState(state, jobq.EnqueueOptions{Tags: []string{"other"}})
	}
	chosen := jobq.Filter{Match: "tag:sweep1"}
	summary, err := w.Monitor.Summary(ctx, chosen)
	require.NoError(t, err)
	want := make(map[jobq.State]int64)
	for _, state := range jobq.States() {
		if count := w.Count("select count(*) from jobq.job where tags @> '{sweep1}' and state = $1", string(state)); count > 0 {
			want[state] = int64(count)
		}
	}
	require.Equal(t, want, summary.States)
	require.EqualValues(t, w.Count("select count(*) from jobq.job where tags @> '{sweep1}'"), summary.Jobs)
	require.Equal(t, summary.Jobs-want[jobq.StateCompleted]-want[jobq.StateFailed]-want[jobq.StateCancelled], summary.Open)
	all, err := w.Monitor.Summary(ctx, jobq.Filter{})
	require.NoError(t, err)
	require.EqualValues(t, w.Count("select count(*) from jobq.job"), all.Jobs)

	_, err = pool.Exec(ctx, `insert into jobq.attempt (job_id, finished_at, started_at, lease_token, outcome, number, worker_id, usage)
		select j.id, now(), now(), j.lease_token + n, 'failed', n, 'w', u.usage::jsonb
		  from jobq.job j, generate_series(1, 2) n, (values ('{"cpu_seconds": 1.5, "max_rss_bytes": 1000}'), ('{"cpu_seconds": "odd"}'), (null)) u(usage)
		  where j.tags @> '{sweep1}' and j.state = 'failed'`)
	require.NoError(t, err)
	_, err = pool.Exec(ctx, `insert into jobq.attempt (job_id, finished_at, started_at, lease_token, outcome, number, worker_id, usage)
		select j.id, now(), now(), j.lease_token + 3, 'failed', 1, 'w', '{"cpu_seconds": 100, "max_rss_bytes": 5000}' from jobq.job j where j.tags @> '{other}'`)
	require.NoError(t, err)
	failed := want[jobq.StateFailed]
	usage, err := w.Monitor.Usage(ctx, chosen)
	require.NoError(t, err)
	require.Equal(t, monitor.SummaryUsage{Runs: 4 * failed, CPUTime: time.Duration(failed) * 3 * time.Second, MaxRSSBytes: 1000}, usage)

	for _, match := range []string{"tag:none", "state:available tag:none"} {
		none, err := w.Monitor.Summary(ctx, jobq.Filter{Match: match})
		require.NoError(t, err)
		require.Equal(t, &monitor.Summary{States: map[jobq.State]int64{}}, none)
	}
	_, err = w.Monitor.Summary(ctx, jobq.Filter{Match: "state:fialed"})
	require.ErrorIs(t, err, jobq.ErrInvalid)
}

// The rate is that of the shortest span in which enough have ended, and the open jobs take as long as it says.
func TestSummaryRate(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	// count jobs of a tag that have ended, one every so many seconds, the last one just now.
	ended := func(tag string, count int, every float64) {
		for range count {
			w.InState(jobq.StateFailed, jobq.EnqueueOptions{Tags: []string{tag}})
		}
		_, err := w.Client.Pool().Exec(ctx, `update jobq.run r set finished_at = now() - n.place * $2::float8 * interval '1 s'
			from (select x.id, row_number() over (order by x.id desc) as place from jobq.run x where x.tags = array[$1]) n where n.id = r.id`, tag, every)
		require.NoError(t, err)
		for range 10 {
			jobtest.Enqueue(t, w.Client, &jobq.EnqueueOptions{Tags: []string{tag}})
		}
	}
	for _, test := range []struct {
		count int
		every float64
		rate  float64
	}{{25, 1, 1}, {25, 20, 0.05}, {5, 3000, 1.0 / 3000}, {1, 30, 0}, {3, 100_000, 0}} {
		tag := fmt.Sprint(test)
		ended(tag, test.count, test.every)
		summary, err := w.Monitor.Summary(ctx, jobq.Filter{Tag: tag})
		require.NoError(t, err)
		require.EqualValues(t, 10, summary.Open)
		// The test may take a while: the rate becomes lower, and not higher.
		require.LessOrEqual(t, summary.EndedPerSecond, test.rate*1.001, tag)
		require.Equal(t, test.rate > 0, summary.EndedPerSecond > 0, tag)
		if test.rate > 0 {
			require.InEpsilon(t, 10/summary.EndedPerSecond, summary.Left.Seconds(), 0.001)
		} else {
			require.Zero(t, summary.Left)
		}
	}
}
