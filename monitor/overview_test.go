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
	require.Len(t, queues, 6, "what has completed alone makes no queue worth a look")
	for _, queue := range queues {
		counts := map[string]int64{
			"q available": queue.Available, "q scheduled": queue.Scheduled, "q waiting": queue.Waiting, "q running": queue.Running,
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

// A span without a minute in it, or with too many, and an id that no job has are refused.
func TestRefusedSpans(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	m := monitor.New(jobtest.Client(t))
	for _, span := range []time.Duration{-time.Hour, 0, time.Minute - 1, 11 * 365 * 24 * time.Hour} {
		_, err := m.Stats(ctx, span)
		require.ErrorIs(t, err, jobq.ErrInvalid)
		require.ErrorContains(t, err, "stats: invalid value: span must be 1m0s to 87600h0m0s")
		_, err = m.Minutes(ctx, span)
		require.ErrorIs(t, err, jobq.ErrInvalid)
	}
	_, err := m.Minutes(ctx, 8*24*time.Hour)
	require.ErrorContains(t, err, "span must be 1m0s to 168h0m0s, not 192h0m0s")
	for _, span := range []time.Duration{time.Minute, 7 * 24 * time.Hour} {
		_, err := m.Minutes(ctx, span)
		require.NoError(t, err)
	}
	_, err = m.Attempts(ctx, 0)
	require.ErrorIs(t, err, jobq.ErrInvalid)
}

// Of a job with very many recorded runs the latest are listed, oldest first.
func TestAttemptsAreBounded(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	id := jobtest.Enqueue(t, w.Client, nil)
	w.End(w.Claim("default", 1)[0], "failed", true)
	_, err := w.Client.Pool().Exec(ctx, `insert into jobq.attempt (job_id, lease_token, number, outcome, worker_id, started_at, finished_at)
		select a.job_id, a.lease_token + n, a.number, a.outcome, a.worker_id, a.started_at, a.finished_at
			from jobq.attempt a, generate_series(1, 1200) n where a.job_id = $1`, id)
	require.NoError(t, err)
	runs, err := w.Monitor.Attempts(ctx, id)
	require.NoError(t, err)
	require.Len(t, runs, 1000)
	require.EqualValues(t, 999, runs[999].LeaseToken-runs[0].LeaseToken)
	var latest int64
	require.NoError(t, w.Client.Pool().QueryRow(ctx, "select max(lease_token) from jobq.attempt").Scan(&latest))
	require.Equal(t, latest, runs[999].LeaseToken)
}
