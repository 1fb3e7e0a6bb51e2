package tests

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// lostWorker says that a worker is lost.
func (q *queue) lostWorker(worker string) (audit, jobs, locked int) {
	q.Helper()
	require.NoError(q, q.pool.QueryRow(context.Background(), "select audit, jobs, locked from jobq.act_lost('ann', $1, 'preempted')", worker).Scan(&audit, &jobs, &locked))
	return audit, jobs, locked
}

// An operator says that a worker is lost: from that moment its writes are refused, and a reaper puts its jobs back, at the head and
// without an attempt, also those that would have failed for good and those of which another loss would make a suspect. The run is in
// the history, with the reason. Other workers keep theirs, and the kind has not crashed.
func TestLostWorker(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.exec("insert into jobq.queue (name, redelivery, redelivery_delay, reset_on_reap) values ('default', 'tail', '1 hour', true)")
	q.exec("select jobq.enqueue('k', priority => 7 + i, max_attempts => 1 + i) from generate_series(0, 2) i")
	q.exec("update jobq.pending set checkpoint = '7', crashes = (priority = 8)::integer")
	const places = "select jsonb_agg(jsonb_build_array(p.id, p.position, p.attempts, p.crashes, p.run_at) order by p.id)::text from jobq.pending p"
	before := q.text(places)
	jobs := q.claimAhead("lost-1", 3, 2)
	require.Len(t, jobs, 3)
	other := q.text("select jobq.enqueue('k')::text")
	require.Len(t, q.claim("other-2", 1), 1)
	audit, count, locked := q.lostWorker("lost-1")
	require.Positive(t, audit)
	require.Equal(t, []int{3, 0}, []int{count, locked})
	require.NotEqual(t, "ok", q.extend("lost-1", at(jobs[0]), time.Hour))
	for name, write := range writes {
		require.False(t, write(q, at(jobs[0]), "lost-1"), name)
	}
	audit, count, _ = q.lostWorker("lost-1")
	require.Equal(t, []int{0, 0}, []int{audit, count}, "there is nothing left to do")

	reaped, err := q.schema.Reap(ctx, q.pool, nil, 100, "test")
	require.NoError(t, err)
	require.Len(t, reaped, 3)
	spared := 0
	for _, job := range reaped {
		require.EqualValues(t, "available", job.State)
		require.Zero(t, job.Alone)
		if job.Spared {
			spared++
		}
	}
	require.Equal(t, 2, spared, "the third had not begun")
	require.Equal(t, before, q.text(places), "they are as they were")
	require.Equal(t, 2, q.number("select count(*) from jobq.pending where checkpoint is null"), "the queue wants partial work of what ran gone")
	require.Equal(t, 2, q.number("select count(*) from jobq.attempt where outcome = 'lost' and worker_id = 'lost-1' and error = 'worker lost-1 is lost, says ann: preempted'"))
	require.Equal(t, 2, q.number("select count(*) from jobq.event where type = 'stalled' and message like '%is lost, says ann%'"))
	crashed, err := q.queries.Quarantine(ctx, reaped, "test")
	require.NoError(t, err)
	require.Empty(t, crashed)
	require.Zero(t, q.number("select count(*) from jobq.kind"), "the kind has not crashed")
	require.Equal(t, 1, q.number("select count(*) from jobq.job where state = 'running' and id = $1::bigint", other))
	require.Equal(t, "lost lost-1 preempted 3", q.text("select concat_ws(' ', action, target, note, done) from jobq.audit"))
	require.ErrorContains(t, q.refusal("select * from jobq.undo('ann', 1)"), "start another worker")
}

// A lease that somebody has locked is not waited for: the host may have vanished in a transaction. The next call takes it.
func TestLostWorkerWithALockedLease(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.exec("select jobq.enqueue('k') from generate_series(1, 2)")
	first := q.claim("lost-1", 1)[0]
	q.claim("lost-1", 1)
	tx, err := q.pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(ctx) }()
	_, err = tx.Exec(ctx, "select from jobq.lease where id = $1 for update", first.LeaseToken)
	require.NoError(t, err)
	_, jobs, locked := q.lostWorker("lost-1")
	require.Equal(t, []int{1, 1}, []int{jobs, locked})
	require.NoError(t, tx.Rollback(ctx))
	audit, jobs, locked := q.lostWorker("lost-1")
	require.Equal(t, []int{1, 0}, []int{jobs, locked})
	require.Positive(t, audit)
	require.Zero(t, q.number("select count(*) from jobq.act_lost('ann', 'nobody', null)"), "there is no such worker")
	for call, want := range map[string]string{
		"select jobq.act_lost('ann', null, null)":                  "worker must be 1 to 255",
		"select jobq.act_lost('ann', 'a', repeat('x', 1025))":      "note must be",
		"select jobq.act_lost(repeat('x', 256), 'lost-1', 'gone')": "actor must be",
	} {
		require.ErrorContains(t, q.refusal(call), want)
	}
}
