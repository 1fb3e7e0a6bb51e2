package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/worker"
)

// claimsWaiting counts the worker's sessions that wait for the lock on pending, and
// working those that have not done what they were sent.
const (
	claimsWaiting = `select count(*) from pg_locks l join pg_stat_activity a using (pid)
		where l.relation = 'jobq.pending'::regclass and not l.granted and a.application_name = 'jobq-worker'`
	working = `select count(*) from pg_stat_activity where datname = current_database() and application_name = 'jobq-worker' and state <> 'idle'`
)

// loseClaim has a worker behind the proxy claim a new job and lose the answer: it breaks
// the connections when the claim has committed. It says whether it was a claim that was
// lost, and not, say, the wish to prepare one.
func loseClaim(t *testing.T, proxy *pgtest.Proxy, direct *jobq.Client, n int) (id int64, lost bool) {
	t.Helper()
	ctx := context.Background()
	count := func(sql string) (count int) {
		require.NoError(t, direct.Pool().QueryRow(ctx, sql).Scan(&count))
		return count
	}
	tx, err := direct.Pool().Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(ctx) }()
	_, err = tx.Exec(ctx, "lock table jobq.pending in exclusive mode")
	require.NoError(t, err)
	require.NoError(t, tx.QueryRow(ctx, "select jobq.enqueue('task', args => jsonb_build_object('n', $1::integer))", n).Scan(&id))
	require.Eventually(t, func() bool { return count(claimsWaiting) > 0 }, patience, 5*time.Millisecond, "nobody claims")
	proxy.SwallowAnswers()
	require.NoError(t, tx.Commit(ctx))
	require.Eventually(t, func() bool { return count(working) == 0 }, patience, 5*time.Millisecond, "the claim does not end")
	job, err := direct.Get(ctx, id)
	require.NoError(t, err)
	proxy.Heal()
	proxy.Cut()
	return id, job.State == jobq.StateRunning
}

// A job whose claim has committed, and whose worker has not heard of it, is given back
// as soon as the database answers again, without waiting for the end of its lease, and
// loses no attempt. What the worker does hold, it keeps.
func TestClaimWithoutAnswerIsGivenBack(t *testing.T) {
	t.Parallel()
	proxy := pgtest.StartProxy(t, pgtest.URL(t))
	direct, err := jobq.NewClient(pgtest.Connect(t, proxy.DirectURL), nil)
	require.NoError(t, err)
	client, err := jobq.NewClient(pgtest.Connect(t, proxy.URL), nil)
	require.NoError(t, err)
	begun, proceed := make(chan int64, 1), make(chan struct{})
	const held = -1
	w := start(t, client, &worker.Config{
		Lease: time.Hour, PollInterval: 20 * time.Millisecond, Queues: map[string]worker.QueueConfig{"default": {Slots: 2}},
	}, func(_ context.Context, job *worker.Job[task]) error {
		begun <- job.ID()
		if job.Args.N == held {
			<-proceed
		}
		return nil
	})
	first := enqueue(t, direct, held, nil)
	require.Equal(t, first, receive(t, begun, "the job that is held all along"))

	for try := 0; ; try++ {
		require.Less(t, try, 50, "no claim has lost its answer")
		id, lost := loseClaim(t, proxy, direct, 1)
		require.Equal(t, id, receive(t, begun, "the job"))
		job := awaitState(t, direct, id, jobq.StateCompleted)
		if lost {
			require.Zero(t, job.Attempts)
			break
		}
	}
	last := enqueue(t, direct, held, nil)
	require.Equal(t, last, receive(t, begun, "the job that is claimed afterwards"))
	require.True(t, worker.LookForUnanswered(w.Worker), "the server may still be at a claim")
	close(proceed)
	for _, id := range []int64{first, last} {
		require.Zero(t, awaitState(t, direct, id, jobq.StateCompleted).Attempts)
	}
	require.Empty(t, attempts(t, direct, last))
	require.Zero(t, w.Counts().Lost)
}
