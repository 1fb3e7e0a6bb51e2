package worker_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
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

// claimCounter counts claims on all connections of a pool.
type claimCounter struct{ claims atomic.Int64 }

func (*claimCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (*claimCounter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (*claimCounter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (c *claimCounter) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	if strings.Contains(data.SQL, "name: JobClaim ") {
		c.claims.Add(1)
	}
}
func (*claimCounter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// awaitRun waits until a handler has said that it runs.
func awaitRun(t *testing.T, ran <-chan struct{}, which ...any) {
	t.Helper()
	select {
	case <-ran:
	case <-time.After(patience):
		require.FailNow(t, "a job lies there, and nobody looks", which...)
	}
}

// pretendFleet makes workers believe from the start that they are many, with
// room for the same jobs.
func pretendFleet(t *testing.T, client *jobq.Client, count int) {
	t.Helper()
	exec(t, client.Pool(), `insert into jobq.worker (id, pid, present, has_room, hostname, version, queues, kinds)
		select 'elsewhere-' || i, 1, false, true, 'elsewhere', 'v', '{"default": 10}', '{task}' from generate_series(1, $1) i`, count)
}

// The notification of one new job makes a few of many idle workers claim, not all.
// They wait for long, each on its own, so that the one that claims first can tell the
// others in time, however busy the machine is; and those that are told do not wait
// any more.
func TestFewClaimForOneJob(t *testing.T) {
	t.Parallel()
	const (
		workers, jobs = 20, 5
		spread        = 20 * time.Second // that of a fleet of 5000
	)
	counter := &claimCounter{}
	config, err := pgxpool.ParseConfig(pgtest.URL(t))
	require.NoError(t, err)
	config.ConnConfig.Tracer = counter
	client, err := jobq.NewClient(pgtest.ConnectConfig(t, config), nil)
	require.NoError(t, err)
	pretendFleet(t, client, 5000)
	ran, fleet := make(chan struct{}, jobs), make([]*worker.Worker, workers)
	for i := range fleet {
		w, err := worker.New(client, &worker.Config{NoJanitor: true, PollInterval: time.Hour, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		worker.SpreadWakeUps(w, spread)
		require.NoError(t, worker.Handle(w, func(context.Context, *worker.Job[task]) error {
			ran <- struct{}{}
			return nil
		}, nil))
		fleet[i] = w
		run(t, w)
	}
	require.Eventually(t, func() bool {
		return !slices.ContainsFunc(fleet, func(w *worker.Worker) bool { return !worker.IsPresent(w) })
	}, patience, 10*time.Millisecond)
	var notification string // the last that all have heard
	enqueueOne := func() {
		_, err := client.Enqueue(context.Background(), task{}, nil)
		require.NoError(t, err)
		awaitRun(t, ran)
		var next string
		require.Eventually(t, func() bool { // all have heard it, and have looked or will not
			next, _ = worker.LastNotification(fleet[0])
			return next != notification && !slices.ContainsFunc(fleet, func(w *worker.Worker) bool {
				heard, still := worker.LastNotification(w)
				return heard != next || !still
			})
		}, patience, 10*time.Millisecond)
		notification = next
	}
	// Nobody is told of what comes before the first of them has said that it waits.
	require.Eventually(t, func() bool {
		_, err := client.Enqueue(context.Background(), task{}, nil)
		require.NoError(t, err)
		awaitRun(t, ran)
		first, _ := worker.LastNotification(fleet[0])
		return first != ""
	}, patience, 10*time.Millisecond)
	enqueueOne() // and what they claim when they start is over
	before := counter.claims.Load()
	for range jobs {
		enqueueOne()
	}
	perJob := float64(counter.claims.Load()-before) / jobs
	t.Logf("%.1f claims a job", perJob)
	require.Less(t, perJob, float64(workers)/2)
}

// Word that a claim after one notification has left nothing keeps nobody from
// claiming after the next, which may have come too late for that claim.
func TestLaterNotificationHolds(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	pretendFleet(t, client, 20)
	ran := make(chan struct{}, 2)
	for range 3 {
		start(t, client, &worker.Config{PollInterval: time.Hour}, func(context.Context, *worker.Job[task]) error {
			ran <- struct{}{}
			return nil
		})
	}
	for round := range 100 {
		for range 2 {
			_, err := client.Enqueue(ctx, task{}, nil)
			require.NoError(t, err)
			<-time.After(rand.N(3 * time.Millisecond)) // #nosec G404 -- the time of a claim and of the notification of its outcome
		}
		for range 2 {
			awaitRun(t, ran, "round %d", round)
		}
	}
}

// A job that a prepared transaction adds without a notification (jobq.notify off) is found by a poll when it is committed.
func TestPreparedJobIsPolled(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	ran := make(chan struct{}, 1)
	start(t, client, &worker.Config{NoJanitor: true, PollInterval: 50 * time.Millisecond}, func(context.Context, *worker.Job[task]) error {
		ran <- struct{}{}
		return nil
	})
	require.Eventually(t, func() bool {
		var waits bool
		err := client.Pool().QueryRow(context.Background(), "select jobq.worker_is_waiting('default')").Scan(&waits)
		return err == nil && waits
	}, patience, 10*time.Millisecond)
	for _, sql := range []string{
		"begin; set local jobq.notify = off; select jobq.enqueue('task', '{}'); prepare transaction 'order'", "commit prepared 'order'",
	} {
		exec(t, client.Pool(), sql)
	}
	awaitRun(t, ran)
}
