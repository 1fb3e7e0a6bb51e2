package worker

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/worker/internal/clock"
	"github.com/jobq-dev/jobq/worker/internal/leases"
	"github.com/jobq-dev/jobq/worker/internal/waking"
)

// patienceForIdle ends a test that hangs.
const patienceForIdle = 2 * time.Minute

// statements keeps the names of statements that are sent.
type statements struct {
	mu    sync.Mutex
	names []string
}

func (s *statements) sent(sql string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names = append(s.names, strings.Fields(strings.TrimPrefix(sql, "-- name: "))[0])
}

func (s *statements) take() (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names, s.names = s.names, nil
	return names
}

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	s.sent(data.SQL)
	return ctx
}

func (s *statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (s *statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, query := range data.Batch.QueuedQueries {
		s.sent(query.SQL)
	}
	return ctx
}

func (s *statements) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (s *statements) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// A heartbeat of an idle worker is one statement. It finds whether a job waits in the queue, and renews the announcement that
// the worker waits.
func TestHeartbeatOfAnIdleWorker(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(pgtest.URL(t))
	require.NoError(t, err)
	sent := &statements{}
	config.ConnConfig.Tracer = sent
	pool := pgtest.ConnectConfig(t, config)
	client, err := jobq.NewClient(pool, nil)
	require.NoError(t, err)
	w, err := New(client, &Config{PollInterval: time.Hour, NoJanitor: true, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	w.beatEvery = 25 * time.Second
	require.NoError(t, Handle(w, func(context.Context, *Job[testJob]) error { return nil }, nil))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	defer func() {
		cancel()
		require.NoError(t, <-ended)
	}()
	q := w.queues["default"]
	standing := func() bool { _, _, ok := q.announcer.Standing(); return ok }
	require.Eventually(t, func() bool { return w.present.Load() && q.load.isAtRest() && standing() }, patienceForIdle, time.Millisecond)
	q.announcer.Renewed(clock.SinceBoot(), 30*time.Second, false) // as long as it may be, as after a minute
	require.Eventually(t, func() bool { return standing() && q.load.isAtRest() }, patienceForIdle, time.Millisecond)

	require.Zero(t, q.announcer.Renewal(10*time.Second), "the next heartbeat is in time")
	require.Eventually(t, func() bool { return slices.Equal([]string{"default"}, w.beatRequest().announced) }, patienceForIdle, time.Millisecond)
	require.Eventually(t, func() bool { return q.load.isAtRest() && standing() }, patienceForIdle, time.Millisecond)
	before := clock.SinceBoot()
	require.Eventually(t, func() bool { // a look at the queue may have begun just then
		sent.take()
		require.NoError(t, w.register(ctx))
		return slices.Equal([]string{"WorkerBeat"}, sent.take())
	}, patienceForIdle, time.Millisecond, "nothing else is sent")
	require.GreaterOrEqual(t, time.Duration(q.emptyAt.Load()), before)
	var isWaiting bool
	require.NoError(t, pool.QueryRow(ctx, "select jobq.worker_is_waiting('default')").Scan(&isWaiting))
	require.True(t, isWaiting)

	_, err = pool.Exec(ctx, "insert into jobq.pending (kind, queue) values ('of nobody', 'default')")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return q.load.isAtRest() && standing() }, patienceForIdle, time.Millisecond)
	empty := q.emptyAt.Load()
	require.NoError(t, w.register(ctx))
	require.Equal(t, empty, q.emptyAt.Load(), "a job waits there")

	require.Eventually(t, func() bool { return len(w.beatRequest().announced) == 1 }, patienceForIdle, time.Millisecond)
	w.draining.Store(true)
	request := w.beatRequest()
	require.Empty(t, request.looked)
	require.Empty(t, request.announced, "inserts would notify for as long as the worker drains")
}

// After an announcement was answered, the queue looks at what is due by then, and not at what was due when it was answered:
// meanwhile, a notification may have come.
func TestNotificationBesideAnAnnouncement(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Pool(t)
	schema, err := db.NewSchema("")
	require.NoError(t, err)
	w := &Worker{spreader: waking.NewSpreader(), queries: schema.Queries(pool)}
	q := newQueue(w, "default", 1, newShared("default", time.Hour))
	a := &q.announcing
	defer a.calls.Wait()
	answer := func() {
		a.last = <-a.underWay
		a.underWay = nil
	}
	a.announce(ctx, q)
	answer()
	first := a.last.round
	q.announcer.Renewed(clock.SinceBoot(), time.Hour, false) // so that nothing else is due
	_, _, standing := q.announcer.Standing()
	require.True(t, standing)
	a.underWay = make(chan announced, 1)
	a.underWay <- announced{round: first} // of a call that only renewed
	q.announcer.Rung()
	answer()
	require.Eventually(t, func() bool {
		a.announce(ctx, q)
		return a.underWay != nil
	}, patienceForIdle, time.Millisecond)
	answer()
	require.Greater(t, a.last.round, first, "it has looked which transactions are open")
}

type testJob struct{}

func (testJob) Kind() string { return "test" }

// A poll is put off while heartbeats find that no job waits, and not for longer. They cannot tell where jobs may have a partition
// key.
func TestHeartbeatsPutPollsOff(t *testing.T) {
	t.Parallel()
	w := &Worker{spreader: waking.NewSpreader(), config: Config{PollInterval: time.Hour}}
	q := newQueue(w, "default", 1, newShared("default", time.Hour))
	ctx := context.Background()
	polls := func() bool {
		q.load.keysNow = false
		poll := time.NewTimer(0)
		defer poll.Stop()
		q.await(ctx, ctx, poll, time.Hour)
		return q.load.keysNow
	}
	require.True(t, polls(), "no heartbeat has looked")
	q.emptyAt.Store(int64(clock.SinceBoot()))
	require.False(t, polls())
	q.settings.Store(leases.Settings{HasKeys: true})
	require.True(t, polls())
	q.settings.Store(leases.Settings{})
	q.emptyAt.Store(int64(clock.SinceBoot() - time.Hour - 1))
	require.True(t, polls(), "too long ago")
}

// While the database does not answer an announcement, the queue claims jobs and stores their results all the same.
func TestWorksBesideASlowAnnouncement(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Pool(t)
	client, err := jobq.NewClient(pool, nil)
	require.NoError(t, err)
	_, err = pool.Exec(ctx, `create or replace function jobq.wait_announce(of_queue text, seconds bigint) returns boolean
		language sql as 'select pg_sleep(3600) is null'`) // announceTimeout ends each try
	require.NoError(t, err)
	w, err := New(client, &Config{PollInterval: 10 * time.Millisecond, NoJanitor: true, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	ran := make(chan struct{}, 1)
	require.NoError(t, Handle(w, func(context.Context, *Job[testJob]) error {
		ran <- struct{}{}
		return nil
	}, nil))
	runCtx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(runCtx) }()
	defer func() {
		cancel()
		require.NoError(t, <-ended)
	}()
	for range 100 { // each would wait for up to 4 s
		_, err := client.Enqueue(ctx, testJob{}, nil)
		require.NoError(t, err)
		select {
		case <-ran:
		case <-time.After(patienceForIdle):
			require.FailNow(t, "a job lies there, and nobody looks")
		}
	}
}

// A wake-up that assist has taken, and can do nothing with, is left to run.
func TestAssistLosesNoWakeUp(t *testing.T) {
	t.Parallel()
	w := &Worker{spreader: waking.NewSpreader(), solitude: newSolitude()}
	w.solitude.held = true // nothing is claimed for now
	q := newQueue(w, "default", 1, newShared("default", time.Hour))
	signal(q.wake)
	signal(q.many)
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		q.assist(context.Background(), context.Background(), over)
	}()
	select {
	case <-q.ended:
	case <-time.After(patienceForIdle):
		require.FailNow(t, "run sleeps on")
	}
	close(over)
	<-ended
	require.Empty(t, q.wake)
}
