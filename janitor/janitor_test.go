package janitor_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/janitor"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// patience ends a test that hangs.
const patience = 2 * time.Minute

// logBuffer is a log that tests read while it is written.
type logBuffer struct {
	mu      sync.Mutex
	content bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.content.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.content.String()
}

// fixture is a database and what tests do with it.
type fixture struct {
	*testing.T
	client *jobq.Client
	pool   *pgxpool.Pool
	log    *logBuffer
}

func setUp(t *testing.T) *fixture {
	t.Helper()
	pool := pgtest.Pool(t)
	client, err := jobq.NewClient(pool, nil)
	require.NoError(t, err)
	f := &fixture{T: t, client: client, pool: pool, log: &logBuffer{}}
	f.daysOfToday()
	return f
}

// daysOfToday makes the partitions those of a database that was migrated today. The template may have been made before midnight.
func (f *fixture) daysOfToday() {
	f.Helper()
	f.exec(`do $$
		declare
			today date := (now() at time zone 'UTC')::date;
			parent text;
		begin
			if to_regclass('jobq.run_' || to_char(today + 3, 'YYYYMMDD')) is null then
				foreach parent in array array['run', 'past_lease', 'attempt'] loop
					perform jobq.partition_add(parent, today + 3);
					execute format('drop table jobq.%s_%s', parent, to_char(today - 1, 'YYYYMMDD'));
				end loop;
			end if;
		end $$`)
}

// start runs a janitor until the test ends, or the function returned is called,
// changed before by the functions given.
func (f *fixture) start(config janitor.Config, changes ...func(*janitor.Janitor)) (*janitor.Janitor, func()) {
	f.Helper()
	config.Logger = slog.New(slog.NewTextHandler(f.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	j, err := janitor.New(f.client, &config)
	require.NoError(f, err)
	for _, change := range changes {
		change(j)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- j.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		require.NoError(f, <-ended)
	})
	f.Cleanup(stop)
	return j, stop
}

// asked counts statements by their names.
type asked struct {
	mu     sync.Mutex
	counts map[string]int
	// beforeFunc is called before each statement.
	beforeFunc func(name string)
}

func (a *asked) sent(sql string) {
	name, ok := strings.CutPrefix(sql, "-- name: ")
	if !ok {
		return
	}
	name = strings.Fields(name)[0]
	a.mu.Lock()
	a.counts[name]++
	a.mu.Unlock()
	if a.beforeFunc != nil {
		a.beforeFunc(name)
	}
}

func (a *asked) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	a.sent(data.SQL)
	return ctx
}

func (a *asked) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (a *asked) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, query := range data.Batch.QueuedQueries {
		a.sent(query.SQL)
	}
	return ctx
}

func (a *asked) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (a *asked) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// times is how often the statement of that name was sent.
func (a *asked) times(name string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.counts[name]
}

// setUpTraced is setUp, with the statements of the janitors watched.
func setUpTraced(t *testing.T, beforeFunc func(name string)) (*fixture, *asked) {
	t.Helper()
	config, err := pgxpool.ParseConfig(pgtest.URL(t))
	require.NoError(t, err)
	plain := pgtest.ConnectConfig(t, config)
	questions := &asked{counts: make(map[string]int), beforeFunc: beforeFunc}
	config = config.Copy()
	config.ConnConfig.Tracer = questions
	client, err := jobq.NewClient(pgtest.ConnectConfig(t, config), nil)
	require.NoError(t, err)
	f := &fixture{T: t, client: client, pool: plain, log: &logBuffer{}}
	f.daysOfToday()
	return f, questions
}

// A janitor with nothing to do asks when there will be, and nothing else; what
// comes up is still done.
func TestIdleAsksLittle(t *testing.T) {
	t.Parallel()
	f, questions := setUpTraced(t, nil)
	f.start(janitor.Config{ScanInterval: 10 * time.Millisecond})
	require.Eventually(t, func() bool { return questions.times("NextDue") > 20 }, patience, time.Millisecond)
	require.Equal(t, 1, questions.times("JobPromote"))
	require.Zero(t, questions.times("LeaseReap"))
	f.exec("insert into jobq.queue (name) values ('q')") // tells nobody
	err := pgtest.InsertRunning(context.Background(), f.pool, 1, pgtest.Columns{"id": "1", "queue": "'q'", "lease_expires_at": "now() - interval '1 s'"})
	require.NoError(t, err)
	f.eventually("select count(*) from jobq.pending where id = 1", 1)
}

func (f *fixture) exec(sql string, args ...any) {
	f.Helper()
	_, err := f.pool.Exec(context.Background(), sql, args...)
	require.NoError(f, err)
}

func (f *fixture) number(sql string, args ...any) (number int) {
	f.Helper()
	require.NoError(f, f.pool.QueryRow(context.Background(), sql, args...).Scan(&number))
	return number
}

func (f *fixture) eventually(sql string, want int) {
	f.Helper()
	require.Eventually(f, func() bool { return f.number(sql) == want }, patience, 5*time.Millisecond, "%s is not %d", sql, want)
}

// running puts jobs into running, each with a lease that ends then.
func (f *fixture) running(count int, expires string, maxAttempts int) {
	f.Helper()
	require.NoError(f, pgtest.InsertRunning(context.Background(), f.pool, count, pgtest.Columns{
		"lease_expires_at": "now() + interval '" + expires + "'", "max_attempts": strconv.Itoa(maxAttempts),
	}))
}

// finished puts jobs into the history, which completed so long ago, and their args
// into jobq.payload if they are apart.
func (f *fixture) finished(count int, age string, apart bool) {
	f.Helper()
	columns := pgtest.Columns{"finished_at": "now() - interval '" + age + "'"}
	if apart {
		columns["args_apart"], columns["args"] = "true", "null"
	}
	require.NoError(f, pgtest.InsertFinished(context.Background(), f.pool, count, columns))
	if apart {
		f.exec("insert into jobq.payload (job_id, args) select id, '{}' from jobq.job where args is null")
	}
}

// Expired leases are reaped, all of them though a batch holds fewer, each
// counted once, and the log says how many. Leases that live are left alone.
func TestReap(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.running(250, "-1 s", 25)
	f.running(3, "1 hour", 25)
	f.start(janitor.Config{ReapBatch: 100, ScanInterval: time.Hour})
	f.eventually("select count(*) from jobq.pending where attempts = 1 and crashes = 1", 250)
	require.Equal(t, 3, f.number("select count(*) from jobq.job where state = 'running'"))
	require.Equal(t, 250, f.number("select count(*) from jobq.attempt where outcome = 'lost' and error = 'lease expired: worker dead stopped responding'"))
	require.Equal(t, 250, f.number("select sum(lost) from jobq.stats"))
	require.Eventually(t, func() bool {
		return strings.Contains(f.log.String(), `msg="released stale running jobs" janitor=leader count=250`)
	}, patience, time.Millisecond)
}

// A lease that ends long before the next scan is reaped when it ends.
func TestReapAtExpiry(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.running(1, "500 ms", 25)
	f.start(janitor.Config{ScanInterval: time.Hour})
	f.eventually("select count(*) from jobq.pending", 1)
	require.Equal(t, 1, f.number("select count(*) from jobq.pending p join jobq.attempt a on a.job_id = p.id where a.finished_at - a.started_at >= interval '500 ms'"))
}

// A job that has killed as many workers as it has attempts has failed.
func TestPoisonJobEnds(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.running(1, "-1 s", 1)
	f.start(janitor.Config{})
	f.eventually("select count(*) from jobq.job where state = 'failed' and attempts = 1 and crashes = 1", 1)
}

// Many reapers at once, with no lock between them, reap each job once.
func TestConcurrentReapersCountOnce(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.running(500, "-1 s", 25)
	schema, err := db.NewSchema("jobq")
	require.NoError(t, err)
	var group errgroup.Group
	for range 8 {
		group.Go(func() error {
			for {
				reaped, err := schema.Reap(context.Background(), f.pool, nil, 7, "test")
				if err != nil || len(reaped) == 0 {
					return err
				}
			}
		})
	}
	require.NoError(t, group.Wait())
	f.eventually("select count(*) from jobq.pending where attempts = 1", 500)
	require.Equal(t, 500, f.number("select count(*) from jobq.attempt"))
}

// A scheduled job starts when it is due, also when the janitor sleeps for a
// later one: it is woken.
func TestPromote(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	_, stop := f.start(janitor.Config{ScanInterval: time.Hour})
	require.Eventually(t, func() bool { return strings.Contains(f.log.String(), "leadership acquired") }, patience, time.Millisecond)
	f.exec("select jobq.enqueue('later', run_at => now() + interval '1 hour')")
	f.exec("select jobq.enqueue('soon', run_at => now() + interval '300 ms')")
	f.eventually("select count(*) from jobq.job where state = 'available' and kind = 'soon'", 1)
	require.Equal(t, 1, f.number("select count(*) from jobq.job where state = 'scheduled' and kind = 'later'"))
	stop()

	// Without a leader nothing starts; the next one catches up.
	f.exec("select jobq.requeue(id) from jobq.job where kind = 'later'")
	f.scheduled(1, "0 s")
	require.Equal(t, 1, f.number("select count(*) from jobq.job where state = 'scheduled' and kind = 'due'"))
	f.start(janitor.Config{Mode: janitor.ModeAny, ScanInterval: 20 * time.Millisecond})
	f.eventually("select count(*) from jobq.job where state = 'available' and kind = 'due'", 1)
}

// Of two janitors one leads; when its connection is ended, there is a leader
// again.
func TestLeadership(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	first, _ := f.start(janitor.Config{})
	require.Eventually(t, first.Leading, patience, time.Millisecond)
	second, stopSecond := f.start(janitor.Config{})
	for range 3 {
		require.False(t, second.Leading())
		before := strings.Count(f.log.String(), "leadership acquired")
		f.exec("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'jobq-janitor' and datname = current_database()")
		require.Eventually(t, func() bool { return strings.Count(f.log.String(), "leadership acquired") == before+1 }, patience, time.Millisecond)
		if second.Leading() {
			break
		}
	}
	stopSecond()
	require.Eventually(t, first.Leading, patience, time.Millisecond)
}

// The lock of a leader that has stopped is not held for ever: the server ends
// its session. The setting is shortened here on the leader's own session.
func TestServerEndsASilentLeader(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	schema, err := db.NewSchema("jobq")
	require.NoError(t, err)
	conn, err := f.pool.Acquire(context.Background())
	require.NoError(t, err)
	defer conn.Release()
	class, object := schema.AdvisoryKey(db.LockJanitor)
	locked, err := schema.Queries(conn).JanitorLock(context.Background(), class, object)
	require.NoError(t, err)
	require.True(t, locked)
	_, err = conn.Exec(context.Background(), "set idle_session_timeout = 300")
	require.NoError(t, err)
	j, _ := f.start(janitor.Config{})
	require.False(t, j.Leading())
	require.Eventually(t, j.Leading, patience, time.Millisecond)
}

// Days are made ahead, what the default partition caught stays there until it
// is past retention, old days go, and large args go before them.
func TestPartitions(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.exec("drop table " + f.partition(pgtest.History, 0))
	f.finished(1, "0", false)
	f.exec("select jobq.partition_add('" + pgtest.History + "', ((now() - interval '20 days') at time zone 'UTC')::date)")
	f.exec("select jobq.partition_add('attempt', ((now() - interval '20 days') at time zone 'UTC')::date)")
	f.finished(1, "20 days", true)
	f.finished(1, "30 days", false)
	require.Equal(t, 2, f.number("select count(*) from jobq."+pgtest.History+"_default"))

	f.start(janitor.Config{})
	f.eventually("select count(*) from jobq.payload", 0)
	f.eventually("select count(*) from jobq.job", 1)
	f.eventually("select count(*) from jobq."+pgtest.History+"_default", 1)
	f.eventually("select count(*) from pg_inherits where inhparent = 'jobq."+pgtest.History+"'::regclass", 4) // three days and the default
	f.eventually("select count(*) from pg_inherits where inhparent = 'jobq.attempt'::regclass", 5)            // four days and the default
	require.Equal(t, 2, strings.Count(f.log.String(), "dropped an old day"))
}

// partition is the name of the partition of a day.
func (f *fixture) partition(parent string, daysAhead int) (name string) {
	f.Helper()
	require.NoError(f, f.pool.QueryRow(context.Background(),
		"select format('jobq.%s_%s', $1::text, to_char((now() at time zone 'UTC')::date + $2::int, 'YYYYMMDD'))", parent, daysAhead).Scan(&name))
	return name
}

// Rolling up changes no sum, while finishers append.
func TestStatsRollUp(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	schema, err := db.NewSchema("jobq")
	require.NoError(t, err)
	const appends = 300
	done := make(chan struct{})
	var group errgroup.Group
	group.Go(func() error {
		defer close(done)
		for i := range appends {
			_, err := f.pool.Exec(context.Background(), `insert into jobq.stat_delta
				(minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
				values (date_trunc('minute', now()) - $1 * interval '1 minute', $2, 'k', 1, 0, 0, 0, 0, 0.5, 0)`, i%3, fmt.Sprint("q", i%2))
			if err != nil {
				return err
			}
		}
		return nil
	})
	for range 2 {
		group.Go(func() error {
			for {
				if _, err := schema.Queries(f.pool).StatRollUp(context.Background(), 50); err != nil {
					return err
				}
				select {
				case <-done:
					return nil
				default:
				}
			}
		})
	}
	require.NoError(t, group.Wait())
	require.Equal(t, appends, f.number("select sum(completed) from jobq.stats"))
	require.Equal(t, 6, f.number("select count(*) from jobq.stats"))
}

// Workers that are long silent and hold nothing are forgotten.
func TestDeadWorkers(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	for _, id := range []string{"gone", "dead", "alive"} {
		f.exec("insert into jobq.worker (id, pid, hostname, version, queues, kinds, heartbeat_at) values ($1, 1, 'h', 'v', '{}', '{}', now() - $2::interval)",
			id, map[string]string{"gone": "1 hour", "dead": "1 hour", "alive": "1 s"}[id])
	}
	f.running(1, "1 hour", 25) // owned by "dead"
	f.start(janitor.Config{})
	f.eventually("select count(*) from jobq.worker", 2)
	require.Zero(t, f.number("select count(*) from jobq.worker where id = 'gone'"))
}

// However many sums there are to fold, they are folded without a pause.
func TestRollsUpABacklog(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.exec(`insert into jobq.stat_delta (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
		select date_trunc('minute', now()), 'q', 'k', 1, 0, 0, 0, 0, 0, 0 from generate_series(1, 25000)`)
	f.start(janitor.Config{})
	require.Eventually(t, func() bool { return f.number("select count(*) from jobq.stat_delta") == 0 }, patience, 5*time.Millisecond)
	require.Equal(t, 25_000, f.number("select completed from jobq.stat"))
}
