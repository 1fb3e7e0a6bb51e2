package jobq_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/janitor"
	"github.com/jobq-dev/jobq/keyring"
	"github.com/jobq-dev/jobq/worker"
)

// waited is what Wait has returned.
type waited struct {
	jobq.Ended
	err error
}

// wait waits for a job in a goroutine of its own.
func wait(ctx context.Context, client *jobq.Client, id int64) <-chan waited {
	answer := make(chan waited, 1)
	go func() {
		ended, err := client.Wait(ctx, id)
		answer <- waited{ended, err}
	}()
	return answer
}

// receive returns what the channel has, which may take its time.
func receive[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case got := <-from:
		return got
	case <-time.After(jobtest.Eventually):
		require.FailNow(t, "nothing came", what)
		panic("not reached")
	}
}

// count is the result of a query for a number.
func count(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) (number int) {
	t.Helper()
	require.NoError(t, pool.QueryRow(context.Background(), sql, args...).Scan(&number))
	return number
}

// awaitCount waits until a query for a number returns this one.
func awaitCount(t *testing.T, pool *pgxpool.Pool, want int, sql string, args ...any) {
	t.Helper()
	require.Eventually(t, func() bool { return count(t, pool, sql, args...) == want }, jobtest.Eventually, jobtest.Tick, sql)
}

const awaitedRows = "select count(*) from jobq.awaited"

// awaitForgotten waits until the database knows of nobody who waits, and the pool is
// idle. A client says so when its last waiter leaves. That one statement may fail; then
// the lease of the client runs out after 30 seconds, and the janitor's statement, called
// here in its place, deletes what is left.
func awaitForgotten(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	require.Eventually(t, func() bool {
		count(t, pool, "select jobq.waiters_forget()::integer")
		known := count(t, pool, awaitedRows) + count(t, pool, "select count(*) from jobq.waiter")
		return known == 0 && pool.Stat().AcquiredConns() == 0
	}, jobtest.Eventually, jobtest.Tick)
}

// listeners counts the connections that listen for ends.
const listeners = "select count(*) from pg_stat_activity where application_name = 'jobq-listen' and datname = current_database()"

// startWorker runs greetings until the test ends.
func startWorker(tb testing.TB, client *jobq.Client, slots int, handler worker.Handler[jobtest.Greeting]) {
	tb.Helper()
	w, err := worker.New(client, &worker.Config{NoJanitor: true, Queues: map[string]worker.QueueConfig{"default": {Slots: slots}}})
	require.NoError(tb, err)
	require.NoError(tb, worker.Handle(w, handler, nil))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		require.NoError(tb, <-ended)
	})
}

// Wait returns how a job ends, in each way that there is, whether it ends before or
// while somebody waits, and whatever becomes of it before.
func TestWait(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	pool := w.Client.Pool()
	type end struct {
		do   func(id int64)
		want waited
	}
	claim := func(int64) { require.Len(t, w.Claim("default", 1), 1) }
	for name, test := range map[string]end{
		"completed": {func(id int64) { w.Complete(w.Claim("default", 1)[0]) }, waited{Ended: jobq.Ended{State: jobq.StateCompleted, Result: json.RawMessage(`{"done": true}`)}}},
		"failed":    {func(id int64) { w.End(w.Claim("default", 1)[0], "failed", true) }, waited{Ended: jobq.Ended{State: jobq.StateFailed, Error: "no luck"}}},
		"completed at the second attempt": {func(id int64) {
			w.End(w.Claim("default", 1)[0], "failed", false)
			w.Complete(w.Claim("default", 1)[0])
		}, waited{Ended: jobq.Ended{State: jobq.StateCompleted, Result: json.RawMessage(`{"done": true}`)}}},
		"cancelled": {func(id int64) { _, err := w.Client.Cancel(ctx, id); require.NoError(t, err) }, waited{Ended: jobq.Ended{State: jobq.StateCancelled}}},
		"cancelled while it ran": {func(id int64) {
			claimed := w.Claim("default", 1)
			_, err := w.Client.Cancel(ctx, id)
			require.NoError(t, err)
			w.End(claimed[0], "cancelled", false)
		}, waited{Ended: jobq.Ended{State: jobq.StateCancelled}}},
		"deleted": {func(id int64) { require.NoError(t, jobtest.Delete(w.Client, id)) }, waited{err: jobq.ErrNotFound}},
	} {
		before := jobtest.Enqueue(t, w.Client, nil)
		test.do(before)
		id := jobtest.Enqueue(t, w.Client, nil)
		answer := wait(ctx, w.Client, id)
		awaitCount(t, pool, 1, awaitedRows+" where job_id = $1", id)
		test.do(id)
		for id, got := range map[int64]waited{before: receive(t, wait(ctx, w.Client, before), name), id: receive(t, answer, name)} {
			require.ErrorIs(t, got.err, test.want.err, name)
			require.Equal(t, id, got.ID, name)
			require.Equal(t, test.want.State, got.State, name)
			require.Equal(t, string(test.want.Result), string(got.Result), name)
			require.Equal(t, test.want.Error, got.Error, name)
			require.Equal(t, test.want.err == nil, !got.FinishedAt.IsZero(), name)
		}
	}
	_, err := w.Client.Wait(ctx, 1_000_000)
	require.ErrorIs(t, err, jobq.ErrNotFound)
	require.EqualError(t, err, "wait for job 1000000: there has never been such a job here")

	// Requeued before anybody has seen that it had ended: the wait goes on. Method: the
	// end and the requeue are one transaction.
	id := jobtest.Enqueue(t, w.Client, nil)
	claim(id)
	answer := wait(ctx, w.Client, id)
	awaitCount(t, pool, 1, awaitedRows+" where job_id = $1", id)
	require.NoError(t, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "update jobq.run set state = 'failed', finished_at = now() where id = $1", id)
		require.NoError(t, err)
		_, err = tx.Exec(ctx, "select jobq.requeue($1)", id)
		return err
	}))
	w.Complete(w.Claim("default", 1)[0])
	require.Equal(t, jobq.StateCompleted, receive(t, answer, "requeued").State)

	// All that waited have gone, and nothing is left.
	awaitForgotten(t, pool)
	awaitCount(t, pool, 0, listeners)
}

// What a client has announced, and cannot take back when its last waiter leaves, is gone
// once its lease is over and the janitor comes. Method: its last statement meets a lock,
// and its connection is cut.
func TestWaitLeavesNothingForever(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Pool(t) // of the janitor, and of what is done here
	client, sent := tracedClient(t, pool.Config().ConnString(), nil)
	id := jobtest.Enqueue(t, client, nil)
	impatient, leave := context.WithCancel(ctx)
	answer := wait(impatient, client, id)
	awaitCount(t, pool, 1, awaitedRows)
	tx, err := pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(ctx) }()
	_, err = tx.Exec(ctx, "select from jobq.waiter for update")
	require.NoError(t, err)
	leave()
	require.ErrorIs(t, receive(t, answer, "its own end").err, context.Canceled)
	require.Eventually(t, func() bool {
		_, err := pool.Exec(ctx, `select pg_terminate_backend(a.pid) from pg_stat_activity a
			where a.datname = current_database() and exists (select from pg_locks l where l.pid = a.pid and not l.granted)`)
		return err == nil && sent.count("AwaitEnd") > 0 && client.Pool().Stat().AcquiredConns() == 0
	}, jobtest.Eventually, jobtest.Tick)
	jobtest.AwaitWaiting(t, pool, 0)
	require.NoError(t, tx.Rollback(ctx))

	require.Equal(t, 1, count(t, pool, awaitedRows+" a join jobq.waiter w on w.id = a.waiter_id where w.expires_at <= now() + interval '30 s'"))
	_, err = pool.Exec(ctx, "update jobq.waiter set expires_at = now() - interval '1 s'") // as if 30 seconds had gone
	require.NoError(t, err)
	watched, err := jobq.NewClient(pool, nil)
	require.NoError(t, err)
	j, err := janitor.New(watched, &janitor.Config{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	run, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- j.Run(run) }()
	awaitCount(t, pool, 0, awaitedRows)
	awaitCount(t, pool, 0, "select count(*) from jobq.waiter")
	stop()
	require.NoError(t, <-ended)
}

// A job with a real worker, from the enqueue to the typed result, or the typed error.
func TestEnqueueAndWait(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	t.Cleanup(func() { awaitForgotten(t, client.Pool()) })
	startWorker(t, client, 4, func(_ context.Context, job *worker.Job[jobtest.Greeting]) error {
		switch name := job.Args.Name; name {
		case "nobody":
			return nil
		case "the devil":
			return worker.Discard(errors.New("not him"))
		case "nul":
			return job.SetResult("\x00")
		case "long":
			return job.SetResult(jobtest.LongText(2 << 20))
		default:
			return job.SetResult(map[string]string{"said": "hello " + name})
		}
	})
	var said struct{ Said string }
	ended, err := client.EnqueueAndWait(ctx, jobtest.Greeting{Name: "world"}, nil)
	require.NoError(t, err)
	require.NoError(t, ended.Decode(&said))
	require.Equal(t, "hello world", said.Said)
	result, err := jobq.WaitResult[map[string]string](ctx, client, ended.ID)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"said": "hello world"}, result)
	_, err = jobq.WaitResult[int](ctx, client, ended.ID)
	require.ErrorContains(t, err, "decode result of job 1: ")

	ended, err = client.EnqueueAndWait(ctx, jobtest.Greeting{Name: "nobody"}, nil)
	require.NoError(t, err)
	require.Nil(t, ended.Result)
	require.NoError(t, ended.Decode(&said))
	require.Equal(t, "hello world", said.Said, "there is nothing to store")

	for name, want := range map[string]string{
		"the devil": "not him",
		"nul":       "result could not be stored: ",
		"long":      "result could not be stored: result must be at most 1048576 bytes",
	} {
		ended, err = client.EnqueueAndWait(ctx, jobtest.Greeting{Name: name}, &jobq.EnqueueOptions{MaxAttempts: 1})
		require.NoError(t, err, name)
		require.Equal(t, jobq.StateFailed, ended.State, name)
		_, err = jobq.WaitResult[string](ctx, client, ended.ID)
		failed := new(jobq.NotCompletedError)
		require.ErrorAs(t, err, &failed, name)
		require.Equal(t, ended, failed.Ended, name)
		require.ErrorContains(t, err, fmt.Sprintf("job %d is failed: %s", ended.ID, want), name)
	}

	// With a unique key, one waits for the other's job.
	options := &jobq.EnqueueOptions{UniqueKey: "u", Queue: "elsewhere"}
	holder, err := client.Enqueue(ctx, jobtest.Greeting{}, options)
	require.NoError(t, err)
	again := make(chan waited, 1)
	go func() {
		ended, err := client.EnqueueAndWait(ctx, jobtest.Greeting{}, options)
		again <- waited{ended, err}
	}()
	awaitCount(t, client.Pool(), 1, awaitedRows+" where job_id = $1", holder.ID)
	_, err = client.Cancel(ctx, holder.ID)
	require.NoError(t, err)
	require.Equal(t, jobq.StateCancelled, receive(t, again, "the holder's end").State)

	// A context that ends leaves the job as it is, and says which that is.
	ctx, cancel := context.WithCancelCause(ctx)
	gone := errors.New("the user has left")
	go func() {
		ended, err := client.EnqueueAndWait(ctx, jobtest.Greeting{}, &jobq.EnqueueOptions{Queue: "elsewhere"})
		again <- waited{ended, err}
	}()
	awaitCount(t, client.Pool(), 1, awaitedRows+" where job_id > $1", holder.ID)
	cancel(gone)
	left := receive(t, again, "its own end")
	require.ErrorIs(t, left.err, gone)
	require.Equal(t, jobq.StateAvailable, jobtest.State(t, client, left.ID))
}

// A wait that begins in the same moment as the end, wherever in it, returns. Method: the
// end is a transaction, and the wait begins before its statement, before its commit, and
// after that; and the announcement is held up, too, so that the end is committed between
// the first look and the announcement.
func TestWaitMeetsTheEnd(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"before the statement", "before the commit", "between look and announcement", "after the commit"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			w := jobtest.NewWorker(t)
			pool := w.Client.Pool()
			t.Cleanup(func() { awaitForgotten(t, pool) })
			id := jobtest.Enqueue(t, w.Client, nil)
			require.Len(t, w.Claim("default", 1), 1)
			tx, err := pool.Begin(ctx)
			require.NoError(t, err)
			defer func() { _ = tx.Rollback(ctx) }()
			var answer <-chan waited
			if when == "before the statement" {
				answer = wait(ctx, w.Client, id)
				awaitCount(t, pool, 1, awaitedRows)
			}
			_, err = tx.Exec(ctx, "update jobq.run set state = 'completed', finished_at = now() where id = $1", id)
			require.NoError(t, err)
			switch when {
			case "before the commit":
				answer = wait(ctx, w.Client, id)
				awaitCount(t, pool, 1, awaitedRows)
			case "between look and announcement":
				_, err = tx.Exec(ctx, "lock table jobq.waiter")
				require.NoError(t, err)
				answer = wait(ctx, w.Client, id)
				jobtest.AwaitWaiting(t, pool, 1)
			}
			require.NoError(t, tx.Commit(ctx))
			if answer == nil {
				answer = wait(ctx, w.Client, id)
			}
			require.Equal(t, jobq.StateCompleted, receive(t, answer, when).State)
		})
	}
}

// A client with a Codec waits for plain results. With the wrong keys it tells how the job has ended
// beside ErrUnreadable, and without any it has the result as stored, which does not decode as if it were plain.
func TestWaitEncrypted(t *testing.T) {
	t.Parallel()
	ctx, pool := context.Background(), pgtest.Pool(t)
	clients := make(map[string]*jobq.Client)
	for _, name := range []string{"k1", "k2", ""} {
		config := &jobq.Config{}
		if name != "" {
			keys, err := keyring.New(keyring.Key{Name: name, Secret: []byte(strings.Repeat(name, 16))})
			require.NoError(t, err)
			config.Codec = keys
		}
		client, err := jobq.NewClient(pool, config)
		require.NoError(t, err)
		clients[name] = client
	}
	w, err := worker.New(clients["k1"], &worker.Config{NoJanitor: true, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, worker.Handle(w, func(_ context.Context, job *worker.Job[jobtest.Greeting]) error { return job.SetResult(job.Args) }, nil))
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(working) }()
	defer func() {
		stop()
		require.NoError(t, <-ended)
	}()

	done, err := clients["k1"].EnqueueAndWait(ctx, jobtest.Greeting{Name: "ann"}, nil)
	require.NoError(t, err)
	greeting, err := jobq.WaitResult[jobtest.Greeting](ctx, clients["k1"], done.ID)
	require.NoError(t, err)
	require.Equal(t, "ann", greeting.Name)

	unread, err := clients["k2"].Wait(ctx, done.ID)
	require.ErrorIs(t, err, jobq.ErrUnreadable)
	require.ErrorContains(t, err, `encrypted with key "k1"`)
	require.Equal(t, done.State, unread.State)
	require.Equal(t, done.FinishedAt, unread.FinishedAt)
	key, encrypted := jobq.EncryptedWith(unread.Result)
	require.Equal(t, "k1", key)
	require.True(t, encrypted)

	_, err = jobq.WaitResult[jobtest.Greeting](ctx, clients[""], done.ID)
	require.ErrorIs(t, err, jobq.ErrUnreadable)
	stored, err := clients[""].Wait(ctx, done.ID)
	require.NoError(t, err)
	require.Equal(t, string(unread.Result), string(stored.Result))
}
