package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/internal/postgres"
	"github.com/jobq-dev/jobq/janitor"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/worker"
)

// startJanitor runs a janitor until the test ends.
func startJanitor(t *testing.T, client *jobq.Client) {
	t.Helper()
	j, err := janitor.New(client, &janitor.Config{ScanInterval: 50 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- j.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
}

func exec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	_, err := pool.Exec(context.Background(), sql, args...)
	require.NoError(t, err)
}

// reap lets a lease expire and takes the job away, before the worker can
// extend it.
func reap(t *testing.T, client *jobq.Client, id int64) {
	t.Helper()
	reapThen(t, client, id, "")
}

// reapThen is reap with statements that follow in its transaction.
func reapThen(t *testing.T, client *jobq.Client, id int64, statements string) {
	t.Helper()
	schema, err := db.NewSchema(client.Schema())
	require.NoError(t, err)
	require.NoError(t, pgx.BeginFunc(context.Background(), client.Pool(), func(tx pgx.Tx) error {
		if err := pgtest.ExpireLeases(context.Background(), tx, id); err != nil {
			return err
		}
		reaped, err := schema.Reap(context.Background(), tx, nil, 10, "test")
		require.Len(t, reaped, 1)
		if err == nil && statements != "" {
			_, err = tx.Exec(context.Background(), statements)
		}
		return err
	}))
}

// A job that runs keeps its lease, with a janitor that would take it at once: it
// waits until its lease has been extended more often than in a whole lease.
func TestLongJobKeepsItsLease(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	startJanitor(t, client)
	keepLeases(t, client, jobq.HeartbeatTicker)
	start(t, client, nil, func(ctx context.Context, job *worker.Job[task]) error {
		return awaitExtended(ctx, client, job, nil)
	})
	job := awaitState(t, client, enqueue(t, client, 1, nil), jobq.StateCompleted)
	require.Zero(t, job.Attempts)
}

// lockRow holds the row of a running job in a transaction of its own until the
// test ends.
func lockRow(t *testing.T, client *jobq.Client, id int64) {
	t.Helper()
	tx, err := client.Pool().Begin(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tx.Rollback(context.Background())) })
	require.NoError(t, pgtest.LockRunning(context.Background(), tx, id))
}

// A handler whose CompleteTx waits for another transaction loses its own lease
// in time, and no other job loses any: the keeper does not wait with it. The one
// that is to lose its lease has a short one.
func TestCompleteTxWaits(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	startJanitor(t, client)
	keepLeases(t, client, jobq.HeartbeatTicker)
	lease := 3 * time.Second
	require.NoError(t, jobtest.ErrorOf(operator.New(client, "test").SetQueue(context.Background(), "short", operator.QueueChange{Lease: &lease})))
	begun, locked, causes := make(chan struct{}, 10), make(chan struct{}), make(chan error, 10)
	start(t, client, &worker.Config{Queues: map[string]worker.QueueConfig{"default": {Slots: 1}, "short": {Slots: 1}}}, func(ctx context.Context, job *worker.Job[task]) error {
		begun <- struct{}{}
		<-locked
		if job.Args.N == 2 {
			return awaitExtended(ctx, client, job, nil)
		}
		err := pgx.BeginFunc(ctx, client.Pool(), func(tx pgx.Tx) error { return job.CompleteTx(ctx, tx) })
		causes <- context.Cause(ctx)
		return err
	})
	waits, other := enqueue(t, client, 1, &jobq.EnqueueOptions{Queue: "short"}), enqueue(t, client, 2, nil)
	receive(t, begun, "the first start")
	receive(t, begun, "the second start")
	lockRow(t, client, waits)
	close(locked)
	require.ErrorIs(t, receive(t, causes, "the end of CompleteTx"), worker.ErrLeaseLost)
	require.Zero(t, awaitState(t, client, other, jobq.StateCompleted).Crashes, "it was taken away")
}

// When a row is taken away, that job's context is cancelled with
// ErrLeaseLost, nothing that it says is stored, and the others run on.
func TestLostLease(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, take := range map[string]func(pool *pgxpool.Pool, id int64) error{
		"deleted": func(pool *pgxpool.Pool, id int64) error { return pgtest.DeleteRunning(ctx, pool, "id = $1", id) },
		"other token": func(pool *pgxpool.Pool, id int64) error {
			return pgtest.UpdateRunning(ctx, pool, pgtest.Columns{"lease_token": pgtest.NextToken}, "id = $1", id)
		},
		"other owner": func(pool *pgxpool.Pool, id int64) error {
			return pgtest.UpdateRunning(ctx, pool, pgtest.Columns{"lease_owner": "'thief'"}, "id = $1", id)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := newClient(t)
			keepLeases(t, client, jobq.HeartbeatTicker)
			begun, causes, proceed := make(chan int64, 2), make(chan error, 1), make(chan struct{})
			w := start(t, client, nil, func(ctx context.Context, job *worker.Job[task]) error {
				begun <- job.ID()
				if job.Args.N == 2 {
					<-proceed
					return ctx.Err()
				}
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return job.SaveCheckpoint(context.Background(), "stale")
			})
			stolen := enqueue(t, client, 1, nil)
			receive(t, begun, "the first start")
			kept := enqueue(t, client, 2, nil) // under a lease of its own
			receive(t, begun, "the second start")
			require.NoError(t, take(client.Pool(), stolen))
			require.ErrorIs(t, receive(t, causes, "the cause"), worker.ErrLeaseLost)
			close(proceed)
			awaitState(t, client, kept, jobq.StateCompleted)
			require.NoError(t, w.drain())
			require.EqualValues(t, 1, w.Counts().Completed)
			require.Zero(t, w.Counts().Failed)
			require.Empty(t, attempts(t, client, stolen))
			var touched bool
			require.NoError(t, client.Pool().QueryRow(context.Background(),
				"select exists (select from jobq.job where id = $1 and (checkpoint is not null or finished_at is not null))", stolen).Scan(&touched))
			require.False(t, touched)
		})
	}
}

// A worker that claims a job of its own again, which it had lost without
// knowing, stops the run before: also where an asynchronous standby has
// forgotten the first claim, and the tokens are equal.
func TestClaimsItsLostJobAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		forget string // a statement
		same   bool   // token
	}{
		"reaped":                       {"", false},
		"claim forgotten by a standby": {"truncate jobq.past_lease; select setval('jobq.lease_number_seq', 1, false)", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := newClient(t)
			causes, proceed := make(chan error, 1), make(chan struct{})
			var runs atomic.Int64
			w := start(t, client, &worker.Config{Lease: time.Hour}, func(ctx context.Context, _ *worker.Job[task]) error {
				if runs.Add(1) == 2 {
					<-proceed
					return nil
				}
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return nil
			})
			id := enqueue(t, client, 1, nil)
			require.Eventually(t, func() bool { return runs.Load() == 1 }, patience, time.Millisecond)
			first := awaitState(t, client, id, jobq.StateRunning).LeaseToken
			reapThen(t, client, id, c.forget)
			require.ErrorIs(t, receive(t, causes, "the cause"), worker.ErrLeaseLost)
			require.Eventually(t, func() bool { return runs.Load() == 2 }, patience, time.Millisecond)
			awaitState(t, client, id, jobq.StateRunning) // what the first run has returned is not stored
			close(proceed)
			require.Equal(t, c.same, awaitState(t, client, id, jobq.StateCompleted).LeaseToken == first)
			require.NoError(t, w.drain())
			require.EqualValues(t, 1, w.Counts().Completed)
		})
	}
}

// fencing are leases with which a test checks what is promised for a machine on
// which nobody waits for a processor for longer than half of the kill margin: when
// that was not so, it tries the next, whose kill margin is longer.
var fencing = []time.Duration{9 * time.Second, 18 * time.Second, 30 * time.Second}

func halfMargin(lease time.Duration) time.Duration { return min(lease/6, 5*time.Second) / 2 }

// skipStarved ends a test that has checked nothing, with any of the leases.
func skipStarved(t *testing.T) {
	t.Helper()
	t.Skipf("NOT CHECKED: with each of the leases %v somebody waited for a processor for longer than half of the kill margin", fencing)
}

// watchWaits watches for how long this process waits for a processor.
func watchWaits(t *testing.T) (longest func() time.Duration) {
	t.Helper()
	var waited atomic.Int64
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go func() {
		for last := time.Now(); ctx.Err() == nil; {
			<-time.After(5 * time.Millisecond)
			now := time.Now()
			waited.Store(max(waited.Load(), int64(now.Sub(last))))
			last = now
		}
	}()
	return func() time.Duration { return time.Duration(waited.Load()) }
}

// A worker that cannot reach the database stops its jobs before their leases
// end by the database's clock, which is also that of this machine.
func TestFencesItself(t *testing.T) {
	t.Parallel()
	for _, lease := range fencing {
		waited := watchWaits(t)
		stopped, leaseEnd := fenceItself(t, lease)
		t.Logf("stopped %s before the end of a lease of %s, and waited for a processor for %s at most", leaseEnd.Sub(stopped), lease, waited())
		if waited() < halfMargin(lease) {
			require.Less(t, stopped, leaseEnd, "stopped after the lease had ended")
			return
		}
	}
	skipStarved(t)
}

// fenceItself returns when a handler was stopped whose worker cannot reach the
// database any more, and when its lease ends.
func fenceItself(t *testing.T, lease time.Duration) (stopped, leaseEnd time.Time) {
	t.Helper()
	server := pgtest.StartProxy(t, pgtest.URL(t))
	direct, err := jobq.NewClient(pgtest.Connect(t, server.DirectURL), nil)
	require.NoError(t, err)
	client, err := jobq.NewClient(pgtest.Connect(t, server.URL), nil)
	require.NoError(t, err)
	begun, stoppedAt := make(chan struct{}, 1), make(chan time.Time, 1)
	w := start(t, client, &worker.Config{Lease: lease, DrainTimeout: -1}, func(ctx context.Context, _ *worker.Job[task]) error {
		begun <- struct{}{}
		<-ctx.Done()
		stoppedAt <- time.Now()
		return nil
	})
	id := enqueue(t, direct, 1, nil)
	receive(t, begun, "the start")
	server.Swallow()
	stopped = receive(t, stoppedAt, "the stop")
	job, err := direct.Get(context.Background(), id)
	require.NoError(t, err)
	require.Equal(t, jobq.StateRunning, job.State)
	server.Close()
	_ = w.drain() // it could not tell the database anything
	return stopped, *job.LeaseExpiresAt
}

// A result that comes after another worker has taken over is refused: also
// when it is the same worker that claimed the job again.
func TestLateCompletionIsRefused(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	tokens, proceed := make(chan int64, 2), []chan struct{}{make(chan struct{}), make(chan struct{})}
	w := start(t, client, &worker.Config{Lease: time.Hour}, func(_ context.Context, job *worker.Job[task]) error {
		tokens <- job.LeaseToken()
		<-proceed[job.Attempt()-1]
		return job.SetResult(job.Attempt())
	})
	id := enqueue(t, client, 1, nil)
	first := receive(t, tokens, "the first run")
	reap(t, client, id)
	require.Greater(t, receive(t, tokens, "the second run"), first)
	close(proceed[0]) // the first ends while the second runs
	require.Eventually(t, func() bool { return w.Counts().Lost == 1 }, patience, time.Millisecond)
	job, err := client.Get(context.Background(), id)
	require.NoError(t, err)
	require.Equal(t, jobq.StateRunning, job.State)
	close(proceed[1])
	job = awaitState(t, client, id, jobq.StateCompleted)
	require.JSONEq(t, "2", string(job.Result))
	require.Equal(t, 1, job.Attempts)
	require.Equal(t, 1, job.Crashes)
}

// When a stale result travels with that of the same worker's next run of the
// job, one of them counts as stored, and not both.
func TestStaleResultBesideTheNext(t *testing.T) {
	t.Parallel()
	counts := worker.Account(t, newClient(t), [][2]int64{{1, 2}, {2, 1}, {1, 1}, {3, 1}}, []int64{1, 2})
	require.EqualValues(t, 2, counts.Completed)
	require.EqualValues(t, 2, counts.Lost)
}

// A worker outlives its database: what ended meanwhile is stored or run again,
// and new jobs are heard of as before.
func TestDatabaseGoesAway(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server, err := postgres.Start(ctx, postgres.Config{Durable: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(ctx)) })
	require.NoError(t, pgtest.Migrate(ctx, server.URL("postgres"), "jobq"))
	client, err := jobq.NewClient(pgtest.Connect(t, server.URL("postgres")), nil)
	require.NoError(t, err)
	startJanitor(t, client)
	begun, proceed := make(chan int, 10), make(chan struct{})
	start(t, client, &worker.Config{Lease: 10 * time.Second, PollInterval: time.Hour}, func(_ context.Context, job *worker.Job[task]) error {
		begun <- job.Args.N
		if job.Args.N == 1 {
			<-proceed
		}
		return nil
	})
	during := enqueue(t, client, 1, nil)
	receive(t, begun, "the start")
	require.NoError(t, server.Kill())
	close(proceed) // it ends while there is no database
	require.NoError(t, server.Relaunch(ctx))
	awaitState(t, client, during, jobq.StateCompleted)
	require.Eventually(t, func() bool { // the listener is back
		var listening bool
		err := client.Pool().QueryRow(ctx, "select exists (select from pg_stat_activity where application_name = 'jobq-listen')").Scan(&listening)
		return err == nil && listening
	}, patience, 10*time.Millisecond)
	awaitState(t, client, enqueue(t, client, 2, nil), jobq.StateCompleted)
}

// expire lets a lease be over, for all of its jobs.
func expire(ctx context.Context, client *jobq.Client, token int64) error {
	return pgtest.UpdateRunning(ctx, client.Pool(), pgtest.Columns{"lease_expires_at": "now() - interval '1 s'"}, "lease_token = $1", token)
}

// A mix of everything, with several workers and two janitors: in the end each
// job is in exactly one place, and has not had more attempts than it may.
func TestEverythingAtOnce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	const jobs = 600
	startJanitor(t, client)
	startJanitor(t, client)
	handler := func(ctx context.Context, job *worker.Job[task]) error {
		switch job.Args.N % 7 {
		case 0:
			return fmt.Errorf("failure %d", job.Attempt())
		case 1:
			panic("panic")
		case 2:
			return worker.Snooze(time.Millisecond * time.Duration(job.LeaseToken()%2))
		case 3: // loses its lease now and then
			if job.Attempt() == 1 {
				return errors.Join(expire(ctx, client, job.LeaseToken()), job.SaveCheckpoint(ctx, 1))
			}
		}
		return nil
	}
	for range 3 {
		start(t, client, &worker.Config{PollInterval: 20 * time.Millisecond}, handler)
	}
	var ids []int64
	for i := range jobs {
		ids = append(ids, enqueue(t, client, i, &jobq.EnqueueOptions{MaxAttempts: 3, BackoffBase: time.Millisecond, BackoffMax: 5 * time.Millisecond}))
	}
	var group errgroup.Group
	group.Go(func() error {
		for i := 2; i < jobs; i += 7 { // the snoozing ones end only so
			if _, err := client.Cancel(ctx, ids[i]); err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(t, group.Wait())
	require.Eventually(t, func() bool {
		var left int
		err := client.Pool().QueryRow(ctx, "select count(*) from jobq.job where finished_at is null").Scan(&left)
		return err == nil && left == 0
	}, 2*patience, 10*time.Millisecond)
	var total, distinct, tooMany int
	require.NoError(t, client.Pool().QueryRow(ctx, "select count(*), count(distinct id), count(*) filter (where attempts > max_attempts) from jobq.job").
		Scan(&total, &distinct, &tooMany))
	require.Equal(t, jobs, total)
	require.Equal(t, jobs, distinct)
	require.Zero(t, tooMany)
}
