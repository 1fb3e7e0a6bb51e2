package monitor_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
)

// Pausing, resuming and the lease of a queue show in the list of queues.
func TestQueues(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	jobtest.Enqueue(t, client, &jobq.EnqueueOptions{Queue: "busy"})
	jobtest.Enqueue(t, client, &jobq.EnqueueOptions{Queue: "busy", Delay: time.Hour})
	acted, err := operator.New(client, "ana").PauseQueue(ctx, "paused", "smtp is down")
	require.NoError(t, err)
	require.True(t, acted.Changed)
	acted, err = operator.New(client, "test").PauseQueue(ctx, "paused", "")
	require.NoError(t, err)
	require.False(t, acted.Changed)
	lease, tooShort := 5*time.Second, time.Millisecond
	require.NoError(t, jobtest.ErrorOf(operator.New(client, "test").SetQueue(ctx, "busy", operator.QueueChange{Lease: &lease})))
	require.ErrorIs(t, jobtest.ErrorOf(operator.New(client, "test").SetQueue(ctx, "busy", operator.QueueChange{Lease: &tooShort})), jobq.ErrInvalid)

	queues, err := monitor.New(client).Queues(ctx)
	require.NoError(t, err)
	require.Len(t, queues, 2)
	require.NotNil(t, queues[0].HeadRunAt)
	queues[0].HeadRunAt = nil
	require.Equal(t, monitor.Queue{Name: "busy", Available: 1, AvailableMax: jobq.CountMax, Scheduled: 1, QueueSettings: monitor.QueueSettings{
		Lease: 5 * time.Second, ExtendEvery: 1667 * time.Millisecond,
		Heartbeat: jobq.HeartbeatTicker, Redelivery: jobq.RedeliveryTail, AgeAfter: jobq.DefaultAgeAfter,
	}}, queues[0])
	require.Equal(t, "paused", queues[1].Name)
	require.Equal(t, "ana", queues[1].PausedBy)
	require.Equal(t, "smtp is down", queues[1].PauseReason)
	require.NotNil(t, queues[1].PausedAt)

	acted, err = operator.New(client, "test").ResumeQueue(ctx, "paused")
	require.NoError(t, err)
	require.True(t, acted.Changed)
	acted, err = operator.New(client, "test").ResumeQueue(ctx, "paused")
	require.NoError(t, err)
	require.False(t, acted.Changed)
}

// Above the bound of the exact count, a queue says about how many jobs are available, once the
// planner has statistics; below it, and without statistics, nothing is guessed.
func TestQueuesEstimateTheBacklog(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	exec := func(sql string) {
		_, err := client.Pool().Exec(ctx, sql)
		require.NoError(t, err)
	}
	queues := func() map[string]monitor.Queue {
		list, err := monitor.New(client).Queues(ctx)
		require.NoError(t, err)
		byName := make(map[string]monitor.Queue)
		for _, queue := range list {
			byName[queue.Name] = queue
		}
		return byName
	}
	exec("alter table jobq.pending set (autovacuum_enabled = false)")
	exec("insert into jobq.pending (kind, queue) select 'k', 'big' from generate_series(1, 15000)")
	require.Zero(t, queues()["big"].AvailableEstimate, "without statistics")
	exec("insert into jobq.pending (kind, queue) select 'k', 'few' from generate_series(1, 9000)")
	exec("analyze jobq.pending")
	list := queues()
	require.EqualValues(t, jobq.CountMax, list["big"].Available)
	require.InEpsilon(t, 15000, list["big"].AvailableEstimate, 0.1)
	require.Zero(t, list["few"].AvailableEstimate)

	exec("insert into jobq.pending (kind, queue) select 'k', 'few' from generate_series(1, 3000)")
	exec("analyze jobq.pending")
	list = queues()
	require.InEpsilon(t, 15000, list["big"].AvailableEstimate, 0.1)
	require.InEpsilon(t, 12000, list["few"].AvailableEstimate, 0.1)
}

// The list of queues is not compiled (JIT), which would take two seconds beside a large backlog.
func TestQueuesAreNotCompiled(t *testing.T) {
	t.Parallel()
	client := jobtest.Client(t)
	jobtest.Enqueue(t, client, nil)
	pgtest.RefuseJIT(t, client.Pool())
	queues, err := monitor.New(client).Queues(context.Background())
	require.NoError(t, err)
	require.Len(t, queues, 1)
	var on bool
	require.NoError(t, client.Pool().QueryRow(context.Background(), "select bool_and(current_setting('jit') = 'on') from generate_series(1, 10)").Scan(&on))
	require.True(t, on, "the setting ends with the transaction")
}

// A pause or resume says whether there was a sign of a queue of that name, for
// names are misspelt. What is not known is paused all the same.
func TestQueueKnown(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	jobtest.Enqueue(t, client, &jobq.EnqueueOptions{Queue: "waits"})
	jobtest.Enqueue(t, client, &jobq.EnqueueOptions{Queue: "later", Delay: time.Hour})
	require.NoError(t, jobtest.ErrorOf(operator.New(client, "test").SetQueue(ctx, "set", operator.QueueChange{Lease: new(2 * time.Minute)})))
	_, err := client.Pool().Exec(ctx, `insert into jobq.worker (id, pid, hostname, version, queues, kinds)
		values ('w', 1, 'h', 'v', '{"served": 1}', '{}')`)
	require.NoError(t, err)
	err = pgtest.InsertRunning(ctx, client.Pool(), 1, pgtest.Columns{"queue": "'runs'"})
	require.NoError(t, err)
	_, err = client.Pool().Exec(ctx, `with rolled as (insert into jobq.stat (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
			values (now() - interval '29 days', 'monthly', 'k', 1, 0, 0, 0, 0, 1, 0))
		insert into jobq.stat_delta (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
			values (now(), 'ended', 'k', 1, 0, 0, 0, 0, 1, 0)`)
	require.NoError(t, err)
	err = pgtest.InsertFinished(ctx, client.Pool(), 1, pgtest.Columns{"finished_at": "now() - interval '40 days'", "state": "'failed'", "queue": "'failed'"})
	require.NoError(t, err)
	for queue, known := range map[string]bool{
		"waits": true, "later": true, "set": true, "served": true, "runs": true, "monthly": true, "ended": true, "failed": true, "emial": false,
	} {
		asked, err := monitor.New(client).QueueKnown(ctx, queue)
		require.NoError(t, err)
		require.Equal(t, known, asked, queue)
		resumed, err := operator.New(client, "test").ResumeQueue(ctx, queue)
		require.NoError(t, err)
		require.Equal(t, operator.QueueActed{Known: known}, resumed, queue)
		paused, err := operator.New(client, "test").PauseQueue(ctx, queue, "")
		require.NoError(t, err)
		require.Positive(t, paused.AuditID)
		require.Equal(t, operator.QueueActed{AuditID: paused.AuditID, Changed: true, Known: known}, paused, queue)
	}
	paused, err := operator.New(client, "test").PauseQueue(ctx, "emial", "")
	require.NoError(t, err)
	require.Equal(t, operator.QueueActed{Known: true}, paused, "a pause is a setting")
}
