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
// lost, its job would lie there when all is still. One worker alone; and a few
// that believe to be many, and so leave jobs to each other.
func TestNoLostWakeUps(t *testing.T) {
	t.Parallel()
	for name, workers := range map[string]int{"alone": 1, "of many": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := newClient(t)
			if workers > 1 {
				pretendFleet(t, client, 20)
			}
			testWakeUps(t, client, workers)
		})
	}
}

func testWakeUps(t *testing.T, client *jobq.Client, workers int) {
	t.Helper()
	total := 4000
	if wanted := os.Getenv(wakeUpsVariable); wanted != "" {
		var err error
		total, err = strconv.Atoi(wanted)
		require.NoError(t, err)
	}
	const writers = 4
	var ran atomic.Int64
	for range workers {
		start(t, client, &worker.Config{PollInterval: time.Hour}, func(context.Context, *worker.Job[task]) error {
			ran.Add(1)
			return nil
		})
	}
	var writing sync.WaitGroup
	for writer := range writers {
		random := rand.New(rand.NewPCG(uint64(writer), 0)) // #nosec G404 -- repeatable
		writing.Go(func() {
			for i := range total / writers {
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
			}
		})
	}
	writing.Wait()
	require.Eventually(t, func() bool { return ran.Load() == int64(total/writers*writers) }, patience, time.Millisecond,
		"%d of %d ran: wake-ups were lost", ran.Load(), total)
}

// A worker that begins to wait while another's announcement holds looks for
// itself which transactions did not see one: the other may have other queues.
func TestLooksAtItsOwnAnnouncement(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	tx, err := client.Pool().Begin(ctx)
	require.NoError(t, err)
	_, err = client.EnqueueTx(ctx, tx, task{}, nil)
	require.NoError(t, err)
	exec(t, client.Pool(), "select setval('jobq.waiting_seq', extract(epoch from now())::bigint + 25)") // the other's

	ran := make(chan struct{}, 2)
	start(t, client, &worker.Config{PollInterval: time.Hour}, func(context.Context, *worker.Job[task]) error {
		ran <- struct{}{}
		return nil
	})
	require.Eventually(t, func() bool {
		var listens bool
		require.NoError(t, client.Pool().QueryRow(ctx, `select exists (select from pg_stat_activity
			where datname = current_database() and application_name = 'jobq-listen' and query ~ 'pg_advisory')`).Scan(&listens))
		return listens
	}, patience, time.Millisecond, "and so has looked for what came before it listened")
	_, err = client.Enqueue(ctx, task{}, nil)
	require.NoError(t, err)
	awaitRun(t, ran, "the first")
	<-time.After(500 * time.Millisecond) // until it sleeps
	require.NoError(t, tx.Commit(ctx))
	awaitRun(t, ran, "the one that came unnoticed")
}

// newUnnotifiedClient is a client whose workers hear no notifications, as behind a
// pooler, and a pool that has no such trouble. The "pooler" is a pg_notify that
// does nothing.
func newUnnotifiedClient(t *testing.T) (*jobq.Client, *pgxpool.Pool) {
	t.Helper()
	pool := pgtest.Pool(t)
	exec(t, pool, "create function public.pg_notify(text, text) returns void language sql as 'select null::void'")
	config := pool.Config()
	config.ConnConfig.RuntimeParams["search_path"] = "public, pg_catalog"
	client, err := jobq.NewClient(pgtest.ConnectConfig(t, config), nil)
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
	exec(t, pool, "drop function public.pg_notify")
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
			from pg_stat_activity where datname = current_database() and application_name = 'jobq-listen' and query ~ 'pg_advisory'), 0)`).Scan(&first)
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
	w, err := worker.New(client, &worker.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
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
