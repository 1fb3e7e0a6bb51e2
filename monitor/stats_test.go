package monitor_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/monitor"
)

// The sums agree with what ended, before the janitor has rolled them up,
// afterwards, and in between.
func TestStatsAgree(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	random := rand.New(rand.NewPCG(3, 4)) // #nosec G404 -- a test
	var want monitor.QueueStats
	want.Queue = "default"
	for i := range 80 {
		jobtest.Enqueue(t, w.Client, &jobq.EnqueueOptions{MaxAttempts: 2})
		job := w.Claim("default", 1)[0]
		last := job.Attempts == 1
		switch random.IntN(6) {
		case 0, 1:
			w.Complete(job)
			want.Completed++
		case 2:
			w.End(job, []string{"failed", "timed_out"}[i%2], false)
			if want.Retried++; last {
				want.Retried--
				want.Failed++
			}
		case 3:
			w.Lose()
			want.Lost++
			if want.Retried++; last {
				want.Retried--
				want.Failed++
			}
		case 4:
			w.End(job, []string{"released", "snoozed"}[i%2], false)
		case 5:
			_, err := w.Client.Cancel(ctx, job.ID)
			require.NoError(t, err)
			w.End(job, []string{"cancelled", "released", "snoozed"}[i%3], false)
			want.Cancelled++
		}
		if i%20 == 7 {
			_, err := w.Queries.StatRollUp(ctx, int32(i)) // #nosec G115 -- small
			require.NoError(t, err)
		}
	}
	for range 2 {
		stats, err := w.Monitor.Stats(ctx, time.Hour)
		require.NoError(t, err)
		require.Len(t, stats, 1)
		require.Positive(t, stats[0].RunTime)
		require.Positive(t, stats[0].WaitTime)
		stats[0].RunTime, stats[0].WaitTime = 0, 0
		require.Equal(t, want, stats[0])
		minutes, err := w.Monitor.KindMinutes(ctx, time.Hour)
		require.NoError(t, err)
		byKind := monitor.QueueStats{Queue: "default"}
		for _, m := range minutes {
			require.Equal(t, "greeting", m.Kind)
			byKind.Completed += m.Completed
			byKind.Failed += m.Failed
			byKind.Retried += m.Retried
			byKind.Lost += m.Lost
			byKind.Cancelled += m.Cancelled
		}
		require.Equal(t, want, byKind)
		for _, state := range []jobq.State{jobq.StateCompleted, jobq.StateFailed, jobq.StateCancelled} {
			require.EqualValues(t, map[jobq.State]int64{jobq.StateCompleted: want.Completed, jobq.StateFailed: want.Failed, jobq.StateCancelled: want.Cancelled}[state],
				w.Count("select count(*) from jobq.job where state::text = $1", string(state)), state)
		}
		_, err = w.Queries.StatRollUp(ctx, 10_000)
		require.NoError(t, err)
	}
	require.Zero(t, w.Count("select count(*) from jobq.stat_delta"))
}
