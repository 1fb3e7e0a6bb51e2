package monitor_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/monitor"
)

// What an operator sees at a glance agrees with what there is.
func TestOverview(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	for _, state := range jobq.States() {
		w.InState(state, jobq.EnqueueOptions{Queue: "q " + string(state)})
	}
	queues, err := w.Monitor.Queues(ctx)
	require.NoError(t, err)
	require.Len(t, queues, 5, "what has completed alone makes no queue worth a look")
	for _, queue := range queues {
		counts := map[string]int64{
			"q available": queue.Available, "q scheduled": queue.Scheduled, "q running": queue.Running,
			"q failed": queue.Failed, "q cancelled": queue.Cancelled,
		}
		require.EqualValues(t, 1, counts[queue.Name], queue.Name)
		require.Equal(t, queue.Available > 0, queue.HeadRunAt != nil, queue.Name)
	}
	failures, err := w.Monitor.Failures(ctx, monitor.FailureQuery{Span: time.Hour})
	require.NoError(t, err)
	require.Len(t, failures.Groups, 1)
	require.Equal(t, "no luck", failures.Groups[0].Error)
	minutes, err := w.Monitor.Minutes(ctx, time.Hour)
	require.NoError(t, err)
	require.Len(t, minutes, 3)
	session, err := w.Monitor.Session(ctx)
	require.NoError(t, err)
	require.True(t, session.MayAct)
	require.False(t, session.ReadOnly)
	require.Positive(t, session.NextExpiry)
	require.Positive(t, session.NextDue)
	leader, err := w.Monitor.Leader(ctx)
	require.NoError(t, err)
	require.Nil(t, leader, "no janitor runs")
}
