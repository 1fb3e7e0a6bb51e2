package worker_test

import (
	"bytes"
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/worker"
)

// wakeUpsVariable is how many single inserts TestNoLostWakeUps makes.
const wakeUpsVariable = "JOBQ_WAKE_UPS"

// Workers that never poll find every job of writers that insert one by one, at
// random moments, while they go idle and busy and idle again. Were one wake-up
// lost, its job would lie there when all is still. One worker alone; one whose writers
// rest now and then, so that it ends to claim without news; and a few that believe to be many,
// and so leave jobs to each other.
func TestNoLostWakeUps(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		workers int
		rest    bool
	}{"alone": {1, false}, "with rests": {1, true}, "of many": {3, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := newClient(t)
			if test.workers > 1 {
				pretendFleet(t, client, 20)
			}
			testWakeUps(t, client, test.workers, test.rest)
		})
	}
}

func testWakeUps(t *testing.T, client *jobq.Client, workers int, rest bool) {
	t.Helper()
	total := 4000
	if wanted := os.Getenv(wakeUpsVariable); wanted != "" {
		var err error
		total, err = strconv.Atoi(wanted)
		require.NoError(t, err)
	}
	const writers = 4
	var (
		rests      sync.RWMutex // all writers rest while it is locked
		rested     atomic.Bool  // enough
		added, ran atomic.Int64
	)
	rested.Store(!rest)
	var w *worker.Worker
	for range workers {
		w = newWorker(t, client, worker.Config{PollInterval: time.Hour})
		require.NoError(t, worker.Handle(w, func(context.Context, *worker.Job[task]) error {
			ran.Add(1)
			return nil
		}, nil))
		run(t, w)
	}
	var writing sync.WaitGroup
	for writer := range writers {
		random := rand.New(rand.NewPCG(uint64(writer), 0)) // #nosec G404 -- repeatable
		writing.Go(func() {
			for i := 0; i < total/writers || !rested.Load(); i++ {
				rests.RLock()
				rests.RUnlock() //nolint:staticcheck // it only waits
				tx, err := client.Pool().Begin(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				_, err = client.EnqueueTx(context.Background(), tx, task{i}, nil)
				if random.IntN(20) == 0 { // long enough for the worker to go idle
					<-time.After(time.Duration(random.IntN(20)) * time.Millisecond)
				}
				if err == nil {
					err = tx.Commit(context.Background())
				}
				if err != nil {
					t.Error(err)
					return
				}
				added.Add(1)
			}
		})
	}
	if !rested.Load() {
		restNowAndThen(t, w, &rests)
		rested.Store(true)
	}
	writing.Wait()
	require.Eventually(t, func() bool { return ran.Load() == added.Load() }, patience, time.Millisecond,
		"%d of %d ran: wake-ups were lost", ran.Load(), added.Load())
}

// restNowAndThen lets writers rest until a worker has begun twice to claim without news, and has ended
// that twice. In between, an announcement can end.
func restNowAndThen(t *testing.T, w *worker.Worker, rests *sync.RWMutex) {
	t.Helper()
	for range 2 {
		require.Eventually(t, func() bool { return worker.IsPaced(w) }, patience, time.Millisecond)
		<-time.After(1500 * time.Millisecond)
		rests.Lock()
		require.Eventually(t, func() bool { return !worker.IsPaced(w) }, patience, time.Millisecond)
		rests.Unlock()
	}
}

// While jobs come fast one by one, a worker claims without news and lets its announcement end, so
// that inserts do not notify. When they come slowly again, it announces that it waits, and finds
// also a job whose transaction has looked before and commits after that.
func TestClaimsWithoutNews(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	w := newWorker(t, client, worker.Config{PollInterval: time.Hour})
	worker.ShortenAnnouncements(w, time.Second)
	ran := map[int]chan struct{}{1: make(chan struct{}, 1), 2: make(chan struct{}, 1), 3: make(chan struct{}, 1)}
	require.NoError(t, worker.Handle(w, func(_ context.Context, job *worker.Job[task]) error {
		if ran, ok := ran[job.Args.N]; ok {
			ran <- struct{}{}
		}
		return nil
	}, nil))
	run(t, w)
	isAnnounced := func(queryRow func(context.Context, string, ...any) pgx.Row) (is bool) {
		require.NoError(t, queryRow(ctx, "select coalesce(pg_sequence_last_value('jobq.waiting_seq') >= extract(epoch from clock_timestamp()), false)").Scan(&is))
		return is
	}
	isWaiting := func() bool { return isAnnounced(client.Pool().QueryRow) }
	require.Eventually(t, isWaiting, patience, time.Millisecond)

	stopWriting := write(t, client)
	late, err := client.Pool().Begin(ctx) // its insert does not notify
	require.NoError(t, err)
	defer func() { _ = late.Rollback(ctx) }()
	require.Eventually(t, func() bool {
		if !worker.IsPaced(w) || isWaiting() {
			return false
		}
		inserted, err := late.Begin(ctx)
		require.NoError(t, err)
		_, err = client.EnqueueTx(ctx, inserted, task{1}, nil)
		require.NoError(t, err)
		if isAnnounced(inserted.QueryRow) {
			require.NoError(t, inserted.Rollback(ctx))
			return false
		}
		require.NoError(t, inserted.Commit(ctx))
		return true
	}, patience, 10*time.Millisecond, "the announcement ends")
	enqueue(t, client, 2, nil)
	awaitRun(t, ran[2], "without news")
	stopWriting()
	require.Eventually(t, func() bool { return isWaiting() && worker.IsAtRest(w) }, patience, time.Millisecond, "again, and no look back is due")
	require.NoError(t, late.Commit(ctx))
	awaitRun(t, ran[1], "the late one")
	enqueue(t, client, 3, nil)
	awaitRun(t, ran[3], "with a notification")
}

// The first job with a partition key of a queue that has had none runs, though no worker waits
// that would be notified of it.
func TestFirstKeyWhileClaimingWithoutNews(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	w := newWorker(t, client, worker.Config{PollInterval: time.Hour})
	ran := make(chan struct{}, 1)
	require.NoError(t, worker.Handle(w, func(_ context.Context, job *worker.Job[task]) error {
		if job.Args.N == 1 {
			ran <- struct{}{}
		}
		return nil
	}, nil))
	run(t, w)
	write(t, client)
	require.Eventually(t, func() bool { return worker.IsPaced(w) }, patience, time.Millisecond)
	enqueue(t, client, 1, &jobq.EnqueueOptions{PartitionKey: "a"})
	awaitRun(t, ran)
}

// write adds jobs one by one, without a rest, until what it returns is called or the test ends.
func write(t *testing.T, client *jobq.Client) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var writing sync.WaitGroup
	for range 2 {
		writing.Go(func() {
			for ctx.Err() == nil {
				if _, err := client.Enqueue(context.Background(), task{}, nil); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	stop = func() {
		cancel()
		writing.Wait()
	}
	t.Cleanup(stop)
	return stop
}

// A worker that begins to wait while another's announcement holds looks for
// itself which transactions did not see one: the other may have other kinds.
func TestLooksAtItsOwnAnnouncement(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	tx, err := client.Pool().Begin(ctx)
	require.NoError(t, err)
	_, err = client.EnqueueTx(ctx, tx, task{}, nil)
	require.NoError(t, err)
	exec(t, client.Pool(), "select jobq.wait_announce('default', 25)") // the other's

	ran := make(chan struct{}, 2)
	start(t, client, &worker.Config{PollInterval: time.Hour}, func(context.Context, *worker.Job[task]) error {
		ran <- struct{}{}
		return nil
	})
	require.Eventually(t, func() bool {
		var listens bool
		require.NoError(t, client.Pool().QueryRow(ctx, `select exists (select from pg_stat_activity
			where datname = current_database() and application_name = 'jobq-listen' and query ~ 'advisory_lock')`).Scan(&listens))
		return listens
	}, patience, time.Millisecond, "and so has looked for what came before it listened")
	_, err = client.Enqueue(ctx, task{}, nil)
	require.NoError(t, err)
	awaitRun(t, ran, "the first")
	<-time.After(500 * time.Millisecond) // until it sleeps
	require.NoError(t, tx.Commit(ctx))
	awaitRun(t, ran, "the one that came unnoticed")
}

// An insert that has left the notification to another transaction, and commits long after it, is found without a poll.
func TestFindsWhatTheBellRefused(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	ran := make(chan int, 2)
	w := start(t, client, &worker.Config{PollInterval: time.Hour}, func(_ context.Context, job *worker.Job[task]) error {
		ran <- job.Args.N
		return nil
	})
	require.Eventually(t, func() bool { return worker.IsPresent(w.Worker) && worker.IsAtRest(w.Worker) }, patience, time.Millisecond)
	insert := func(n int) pgx.Tx { // as far as its commit has to wait for others
		tx, err := client.Pool().Begin(ctx)
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback(ctx) })
		_, err = client.EnqueueTx(ctx, tx, task{n}, nil)
		require.NoError(t, err)
		_, err = tx.Exec(ctx, "set constraints all immediate")
		require.NoError(t, err)
		return tx
	}
	ringer, refused := insert(1), insert(2)
	require.NoError(t, ringer.Commit(ctx))
	require.Equal(t, 1, receive(t, ran, "the one that notified"))
	require.Eventually(t, func() bool { return worker.IsAtRest(w.Worker) }, patience, time.Millisecond)
	require.NoError(t, refused.Commit(ctx))
	require.Equal(t, 2, receive(t, ran, "the other one"))
}

// newUnnotifiedClient is a client whose workers hear no notifications, as behind a
// pooler, and a pool that has no such trouble. The "pooler" is a pg_notify in the place of
// PostgreSQL's own that does nothing.
func newUnnotifiedClient(t *testing.T) (*jobq.Client, *pgxpool.Pool) {
	t.Helper()
	pool := pgtest.Pool(t)
	exec(t, pool, "alter function pg_catalog.pg_notify(text, text) rename to pg_notify_away")
	exec(t, pool, "create function pg_catalog.pg_notify(text, text) returns void language sql as 'select null::void'")
	client, err := jobq.NewClient(pgtest.Connect(t, pool.Config().ConnString()), nil)
	require.NoError(t, err)
	return client, pool
}

// A worker that hears no notifications does not make those who insert send any.
func TestAnnouncesNothingWithoutNotifications(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client, pool := newUnnotifiedClient(t)
	w := start(t, client, &worker.Config{PollInterval: 10 * time.Millisecond}, func(context.Context, *worker.Job[task]) error { return nil })
	require.Eventually(t, func() bool {
		exec(t, pool, "select setval('jobq.waiting_seq', 1)")
		if !worker.IsUnnotified(w.Worker) {
			return false
		}
		for range 2 { // it is idle before the second
			awaitState(t, client, enqueue(t, client, 1, nil), jobq.StateCompleted)
		}
		var announced int64
		err := pool.QueryRow(ctx, "select last_value from jobq.waiting_seq").Scan(&announced)
		return err == nil && announced == 1
	}, patience, 100*time.Millisecond)
}

// A worker whose next session hears notifications is woken by inserts again,
// without a poll.
func TestNotificationsArriveAgain(t *testing.T) {
	t.Parallel()
	client, pool := newUnnotifiedClient(t)
	ran := make(chan struct{}, 1)
	w := start(t, client, &worker.Config{PollInterval: time.Hour}, func(context.Context, *worker.Job[task]) error {
		ran <- struct{}{}
		return nil
	})
	require.Eventually(t, func() bool { return worker.IsUnnotified(w.Worker) }, patience, 10*time.Millisecond)
	exec(t, pool, "select setval('jobq.waiting_seq', 1)") // what it has announced before is over
	exec(t, pool, "drop function pg_catalog.pg_notify")
	exec(t, pool, "alter function pg_catalog.pg_notify_away(text, text) rename to pg_notify")
	exec(t, pool, "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'jobq-listen' and datname = current_database()")
	require.Eventually(t, func() bool { return !worker.IsUnnotified(w.Worker) }, patience, 10*time.Millisecond)
	enqueue(t, client, 0, nil)
	awaitRun(t, ran)
}

// A worker that stays idle for longer than its announcement holds renews it
// without a poll, so that an insert still wakes it.
func TestRenewsItsAnnouncement(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	w := newWorker(t, client, worker.Config{PollInterval: time.Hour})
	worker.ShortenAnnouncements(w, time.Second)
	ran := make(chan struct{}, 1)
	require.NoError(t, worker.Handle(w, func(context.Context, *worker.Job[task]) error {
		ran <- struct{}{}
		return nil
	}, nil))
	run(t, w)
	enqueue(t, client, 0, nil)
	awaitRun(t, ran, "the first")
	var first int64
	require.Eventually(t, func() bool { // it listens and has announced that it waits
		err := client.Pool().QueryRow(context.Background(), `select coalesce((select pg_sequence_last_value('jobq.waiting_seq')
			from pg_stat_activity where datname = current_database() and application_name = 'jobq-listen' and query ~ 'advisory_lock'), 0)`).Scan(&first)
		return err == nil && first > 0
	}, patience, time.Millisecond)
	require.Eventually(t, func() bool {
		var over bool
		err := client.Pool().QueryRow(context.Background(), "select extract(epoch from clock_timestamp()) > $1::bigint + 3", first).Scan(&over)
		return err == nil && over
	}, patience, 10*time.Millisecond, "what it has announced first is over")
	enqueue(t, client, 1, nil)
	awaitRun(t, ran, "the one after")
}

// A drain while the worker announces that it waits is no trouble with the database.
func TestDrainWhileAnnouncing(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	tx, err := client.Pool().Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(ctx) }()
	_, err = tx.Exec(ctx, "alter sequence jobq.waiting_seq cache 1") // whoever announces, waits
	require.NoError(t, err)
	var log bytes.Buffer
	w, err := worker.New(client, &worker.Config{NoJanitor: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	require.NoError(t, worker.Handle(w, func(context.Context, *worker.Job[task]) error { return nil }, nil))
	r := run(t, w)
	require.Eventually(t, func() bool {
		var waits bool
		err := client.Pool().QueryRow(ctx, `select exists (select from pg_stat_activity
			where datname = current_database() and wait_event_type = 'Lock' and query like '%WaitAnnounce%')`).Scan(&waits)
		return err == nil && waits
	}, patience, time.Millisecond)
	require.NoError(t, r.drain())
	require.NotContains(t, log.String(), "database call failed")
}
