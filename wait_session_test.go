package jobq_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/internal/postgres"
	"github.com/jobq-dev/jobq/worker"
)

// statements counts those that a pool sends, in all and by their names.
type statements struct {
	mu    sync.Mutex
	all   int
	names map[string]int
}

// TraceQueryStart notes a statement.
func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	name, isNamed := strings.CutPrefix(data.SQL, "-- name: ")
	name, _, _ = strings.Cut(name, " ")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all++
	if isNamed {
		s.names[name]++
	}
	return ctx
}

// TraceQueryEnd does nothing.
func (s *statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (s *statements) count(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names[name]
}

func (s *statements) total() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

// tracedClient is a client that counts its statements.
func tracedClient(tb testing.TB, url string, config *jobq.Config) (*jobq.Client, *statements) {
	tb.Helper()
	settings, err := pgxpool.ParseConfig(url)
	require.NoError(tb, err)
	sent := &statements{names: make(map[string]int)}
	settings.ConnConfig.Tracer = sent
	client, err := jobq.NewClient(pgtest.ConnectConfig(tb, settings), config)
	require.NoError(tb, err)
	return client, sent
}

// Ten thousand that wait in one process have one connection that listens, and while
// nothing ends, at most one statement a second looks at jobs. All hear of the end, and
// of many ends at once there is one look for hundreds.
func TestManyWait(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	const many = 10_000
	client, sent := tracedClient(t, pgtest.URL(t), nil)
	pool := client.Pool()
	params := make([]jobq.EnqueueParams, many)
	for i := range params {
		params[i].Args = jobtest.Greeting{Name: "world"}
	}
	enqueued, err := client.EnqueueMany(ctx, params)
	require.NoError(t, err)
	var completed atomic.Int64
	var waiting sync.WaitGroup
	for _, job := range enqueued {
		waiting.Go(func() {
			if ended, err := client.Wait(ctx, job.ID); err == nil && ended.State == jobq.StateCompleted {
				completed.Add(1)
			}
		})
	}
	awaitCount(t, pool, many, awaitedRows)
	require.Equal(t, 1, count(t, pool, "select count(*) from jobq.waiter"))
	awaitCount(t, pool, 1, listeners)

	looks, begun := sent.count("EndRead"), time.Now()
	awaited := sent.count("Await")
	require.Eventually(t, func() bool { return sent.count("Await") > awaited }, jobtest.Eventually, jobtest.Tick) // its lease, after ten seconds
	time2 := int(time.Since(begun)/time.Second) + 1
	require.LessOrEqual(t, sent.count("EndRead")-looks, time2+2*many/1000, "in %s; some of the first looks may have been on their way", time.Since(begun))
	require.Equal(t, 1, count(t, pool, listeners))

	looks = sent.count("EndRead")
	startWorker(t, client, 100, func(context.Context, *worker.Job[jobtest.Greeting]) error { return nil })
	done := make(chan struct{})
	go func() {
		waiting.Wait()
		close(done)
	}()
	receive(t, done, "all ends")
	require.EqualValues(t, many, completed.Load())
	t.Logf("%d looks for %d ends", sent.count("EndRead")-looks, many)
	awaitForgotten(t, pool)
}

// Waits for jobs that have ended open no connection to listen; one for a job that has not
// opens one.
func TestWaitForEndedJobs(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	settings, err := pgxpool.ParseConfig(pgtest.URL(t))
	require.NoError(t, err)
	var opened atomic.Int64 // connections that are to listen
	settings.BeforeConnect = func(_ context.Context, config *pgx.ConnConfig) error {
		if config.RuntimeParams["application_name"] == "jobq-listen" {
			opened.Add(1)
		}
		return nil
	}
	client, err := jobq.NewClient(pgtest.ConnectConfig(t, settings), nil)
	require.NoError(t, err)
	t.Cleanup(func() { awaitForgotten(t, client.Pool()) })
	id := jobtest.Enqueue(t, client, nil)
	_, err = client.Cancel(ctx, id)
	require.NoError(t, err)
	for range 20 {
		ended, err := client.Wait(ctx, id)
		require.NoError(t, err)
		require.Equal(t, jobq.StateCancelled, ended.State)
	}
	require.Zero(t, opened.Load())
	id = jobtest.Enqueue(t, client, nil)
	answer := wait(ctx, client, id)
	awaitCount(t, client.Pool(), 1, awaitedRows)
	require.Positive(t, opened.Load())
	_, err = client.Cancel(ctx, id)
	require.NoError(t, err)
	require.Equal(t, jobq.StateCancelled, receive(t, answer, "the end").State)
}

// Behind a pooler, where nothing is notified, jobs are found by looking; nobody
// announces anything, and nobody listens.
func TestWaitWithoutNotifications(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client, sent := tracedClient(t, pgtest.URL(t), &jobq.Config{Sessions: jobq.SessionsShared})
	id := jobtest.Enqueue(t, client, nil)
	answer := wait(ctx, client, id)
	require.Eventually(t, func() bool { return sent.count("EndRead") > 2 }, jobtest.Eventually, jobtest.Tick)
	_, err := client.Cancel(ctx, id)
	require.NoError(t, err)
	require.Equal(t, jobq.StateCancelled, receive(t, answer, "the end").State)
	require.Zero(t, sent.count("Await"))
	require.Zero(t, sent.count("AwaitEnd"))
}

// Where the pool leads through a pooler and the client has a direct connection for
// notifications, waits are announced, and one connection listens.
func TestWaitOnADirectConnection(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	direct := pgtest.URL(t)
	listen, err := pgxpool.ParseConfig(direct)
	require.NoError(t, err)
	pooled := pgtest.StartPgBouncer(t, direct, map[string]string{"pool_mode": "transaction"}).URL(t, direct)
	client, err := jobq.NewClient(pgtest.Connect(t, pooled), &jobq.Config{Listen: listen})
	require.NoError(t, err)
	require.NoError(t, client.Check(ctx))
	pool := pgtest.Connect(t, direct)
	t.Cleanup(func() { awaitForgotten(t, pool) })
	for range 2 { // the second one knows that notifications arrive
		id := jobtest.Enqueue(t, client, nil)
		answer := wait(ctx, client, id)
		awaitCount(t, pool, 1, awaitedRows+" where job_id = $1", id)
		_, err = client.Cancel(ctx, id)
		require.NoError(t, err)
		require.Equal(t, jobq.StateCancelled, receive(t, answer, "the end").State)
	}
}

// A way to listen must have been made by pgxpool, and lead to the pool's database.
func TestRefusedListen(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	_, err := jobq.NewClient(pool, &jobq.Config{Listen: &pgxpool.Config{}})
	require.ErrorContains(t, err, "pgxpool.ParseConfig")
	listen, err := pgxpool.ParseConfig(pgtest.URL(t))
	require.NoError(t, err)
	client, err := jobq.NewClient(pool, &jobq.Config{Listen: listen})
	require.NoError(t, err)
	require.NotSame(t, listen, client.Listen())
	require.ErrorContains(t, client.Check(context.Background()), "does not lead to the pool's database")
}

// While the server is away, who waits goes on to wait; what ends afterwards is heard of,
// although the server has forgotten who waits. Who no longer wants to leaves.
func TestWaitOutlivesTheServer(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server, err := postgres.Start(ctx, postgres.Config{Durable: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(ctx)) })
	require.NoError(t, pgtest.Migrate(ctx, server.URL("postgres"), "jobq"))
	client, err := jobq.NewClient(pgtest.Connect(t, server.URL("postgres")), nil)
	require.NoError(t, err)
	t.Cleanup(func() { awaitForgotten(t, client.Pool()) })
	id := jobtest.Enqueue(t, client, nil)
	answer := wait(ctx, client, id)
	impatient, cancel := context.WithCancel(ctx)
	other := wait(impatient, client, id)
	awaitCount(t, client.Pool(), 1, awaitedRows)
	require.NoError(t, server.Kill())
	cancel()
	require.ErrorIs(t, receive(t, other, "its own end").err, context.Canceled)
	require.NoError(t, server.Relaunch(ctx))
	require.Eventually(t, func() bool {
		var rows int
		return client.Pool().QueryRow(ctx, awaitedRows).Scan(&rows) == nil && rows == 1
	}, jobtest.Eventually, jobtest.Tick, "announced anew")
	_, err = client.Cancel(ctx, id)
	require.NoError(t, err)
	require.Equal(t, jobq.StateCancelled, receive(t, answer, "the end").State)
}

// What the database refuses is the error of whoever waits; a deadline is ErrTimeout.
func TestWaitErrors(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	empty, err := jobq.NewClient(pgtest.Connect(t, pgtest.EmptyURL(t)), nil)
	require.NoError(t, err)
	_, err = empty.Wait(ctx, 1)
	require.ErrorIs(t, err, jobq.ErrNotMigrated)
	_, err = empty.EnqueueAndWait(ctx, jobtest.Greeting{}, nil)
	require.ErrorIs(t, err, jobq.ErrNotMigrated)

	client := jobtest.Client(t)
	t.Cleanup(func() { awaitForgotten(t, client.Pool()) })
	_, err = client.EnqueueAndWait(ctx, jobtest.Greeting{}, &jobq.EnqueueOptions{MaxAttempts: -1})
	require.ErrorIs(t, err, jobq.ErrInvalid)
	id := jobtest.Enqueue(t, client, nil)
	ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err = client.Wait(ctx, id)
	require.ErrorIs(t, err, jobq.ErrTimeout)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}
