package janitor_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/janitor"
	"github.com/jobq-dev/jobq/monitor"
)

var modes = []janitor.Mode{janitor.ModeLeader, janitor.ModeAny}

// scheduled adds jobs that have been due for that long.
func (f *fixture) scheduled(count int, late string) {
	f.Helper()
	f.exec("insert into jobq.pending (kind, run_at) select 'due', now() + interval '1 hour' from generate_series(1, $1::integer)", count)
	f.exec("update jobq.pending set run_at = now() - $1::interval where position is null", late)
}

// session is a connection beside the pool, with a name of its own.
func (f *fixture) session(application string) *pgx.Conn {
	f.Helper()
	config := f.pool.Config().ConnConfig.Copy()
	config.RuntimeParams["application_name"] = application
	conn, err := pgx.ConnectConfig(context.Background(), config)
	require.NoError(f, err)
	f.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// takeLock takes one of jobq's advisory locks, as any role may.
func (f *fixture) takeLock(application string, role db.LockRole) *pgx.Conn {
	f.Helper()
	schema, err := db.NewSchema("jobq")
	require.NoError(f, err)
	class, object := schema.AdvisoryKey(role)
	thief := f.session(application)
	_, err = thief.Exec(context.Background(), "select pg_advisory_lock($1, $2)", class, object)
	require.NoError(f, err)
	return thief
}

// logged waits until the log has a line that matches, and returns what the
// groups of the pattern match in all such lines.
func (f *fixture) logged(pattern string, count int) [][]string {
	f.Helper()
	expression := regexp.MustCompile(pattern)
	var found [][]string
	require.Eventually(f, func() bool {
		found = expression.FindAllStringSubmatch(f.log.String(), -1)
		return len(found) >= count
	}, patience, 5*time.Millisecond, "%s in %s", pattern, f.log)
	return found
}

// A backlog of due jobs that never ends, since more come due before each step,
// does not keep an expired lease from being reaped. Each step is committed.
func TestBacklogLeavesReapingAlone(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			var f *fixture
			var steps, over atomic.Int32
			f, _ = setUpTraced(t, func(name string) {
				if name == "JobPromote" && over.Load() == 0 {
					if steps.Add(1) == 3 { // the first reap was before
						f.running(1, "-1 s", 25)
					}
					f.scheduled(1500, "1 s") // more than a step takes
				}
			})
			defer over.Store(1)
			f.start(janitor.Config{Mode: mode, ScanInterval: 5 * time.Millisecond})
			f.eventually("select count(*) from jobq.attempt where outcome = 'lost'", 1)
			require.Positive(t, f.number("select count(*) from jobq.pending where kind = 'due' and position is null"), "the backlog is still there")
			over.Store(1)
			f.eventually("select count(*) from jobq.pending where position is null", 0)
			require.LessOrEqual(t, f.number("select max(n) from (select count(*) as n from jobq.pending where kind = 'due' group by xmin::text) x"), 1000,
				"jobs that one transaction has promoted")
		})
	}
}

// loseCancels loses the first requests of janitors to cancel a chore's statement,
// as when one comes before the statement does.
func (f *fixture) loseCancels() {
	f.Helper()
	config := f.pool.Config()
	config.BeforeConnect = func(_ context.Context, config *pgx.ConnConfig) error {
		if config.RuntimeParams["application_name"] != "jobq-chores" {
			return nil
		}
		var dials atomic.Int32
		dial := config.DialFunc
		config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			if number := dials.Add(1); number == 2 || number == 3 { // the first is the connection itself
				return nil, errors.New("lost")
			}
			return dial(ctx, network, address)
		}
		return nil
	}
	var err error
	f.client, err = jobq.NewClient(pgtest.ConnectConfig(f.T, config), nil)
	require.NoError(f, err)
}

// A chore that does not end ends at its own limit. Meanwhile jobs are recovered,
// other chores are done after it, and the leader leads; the log names the chore.
func TestStuckChore(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			f.loseCancels()
			f.exec(`create or replace function jobq.partition_add(parent text, day date) returns boolean language sql as 'select pg_sleep(3600); select false'`)
			f.exec("select jobq.partition_prune('" + pgtest.History + "')") // is there
			f.exec("insert into jobq.event (at, type, source) values (now() - interval '10 days', 'error', 'old')")
			_, stop := f.start(janitor.Config{Mode: mode, ScanInterval: 5 * time.Millisecond})
			f.eventually("select count(*) from pg_stat_activity where datname = current_database() and query like '%PartitionAdd%' and state = 'active' and pid <> pg_backend_pid()", 1)
			f.running(1, "-1 s", 25)
			f.exec("select jobq.enqueue('soon', run_at => clock_timestamp() + interval '1 ms')")
			f.eventually("select count(*) from jobq.attempt where outcome = 'lost'", 1)
			f.eventually("select count(*) from jobq.pending where position is null", 0)
			require.NotContains(t, f.log.String(), "chore failed")
			stop() // though the chore goes on; nothing of it stays behind that would keep the next janitor from its chores

			f.start(janitor.Config{Mode: mode, ScanInterval: 5 * time.Millisecond}, janitor.ChoreTimes(100*time.Millisecond, time.Millisecond, 0))
			rests := f.logged(`msg="chore failed" .*chore="keep partitions" .*statement timeout.* again_in=(\S+)`, 4)
			require.Equal(t, "1ms 2ms 4ms 8ms", strings.Join([]string{rests[0][1], rests[1][1], rests[2][1], rests[3][1]}, " "))
			f.eventually("select count(*) from jobq.event where source = 'old'", 0)
			require.Positive(t, f.number("select count(*) from jobq.event where type = 'error' and message like 'keep partitions: %statement timeout%'"))
			require.NotContains(t, f.log.String(), "leadership lost")
			require.NotContains(t, f.log.String(), "janitor interrupted")
		})
	}
}

// While somebody reads the history for long, the day that is to be dropped
// waits: the log says for whom, the tries become rarer, and jobs finish.
func TestReaderHoldsUpAChore(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.exec("select jobq.partition_add('" + pgtest.History + "', ((now() - interval '20 days') at time zone 'UTC')::date)")
	reader := f.session("nightly dump")
	_, err := reader.Exec(context.Background(), "begin; select count(*) from jobq.job")
	require.NoError(t, err)
	f.start(janitor.Config{}, janitor.ChoreTimes(0, 4*time.Millisecond, 0))
	lines := f.logged(`msg="chore failed" .*chore="drop old days" .*holder_pid=(\d+) holder_application="nightly dump" `+
		`holder_transaction_since=\S+ holder_query_since=\S+ again_in=(\S+)`, 4)
	for i, want := range []string{"4ms", "8ms", "16ms", "32ms"} {
		require.Equal(t, fmt.Sprint(reader.PgConn().PID()), lines[i][1])
		require.Equal(t, want, lines[i][2])
	}
	f.exec("select jobq.cancel(jobq.enqueue('k'))") // writes to the history
	require.NotContains(t, f.log.String(), "dropped an old day")
	_, err = reader.Exec(context.Background(), "rollback")
	require.NoError(t, err)
	f.logged("dropped an old day", 1)
}

// What a chore waits for a lock of a whole table it waits for briefly: others
// wait behind it. And it is bounded by the server, which keeps the connection.
func TestChoresHaveShortLimits(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.exec("create table public.seen (lock_timeout text, statement_timeout text, idle text)")
	f.exec(`create or replace function jobq.partition_prune(parent text) returns text language plpgsql as $$ begin
		insert into public.seen values (current_setting('lock_timeout'), current_setting('statement_timeout'), current_setting('idle_in_transaction_session_timeout'));
		return null; end $$`)
	f.start(janitor.Config{})
	f.eventually("select count(*) from (select distinct lock_timeout, statement_timeout, idle from seen) s where (lock_timeout, statement_timeout, idle) = ('100ms', '30s', '30s')", 1)
}

// The server ends a step of recovery, too, by itself: it may be that nobody is
// left who would ask for it.
func TestRecoveryHasLimits(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			f.exec("create table public.seen (lock_timeout text, statement_timeout text)")
			f.exec(`create function see() returns trigger language plpgsql as $$ begin
				insert into public.seen values (current_setting('lock_timeout'), current_setting('statement_timeout'));
				return null; end $$`)
			f.exec("create trigger see after insert on jobq.attempt for each row execute function see()")
			f.running(1, "-1 s", 25)
			f.start(janitor.Config{Mode: mode})
			f.eventually("select count(*) from seen where (lock_timeout, statement_timeout) = ('2s', '25s')", 1)
		})
	}
}

// What has the chores' lock while a janitor starts, such as a statement that a
// killed one has left behind, delays the chores for as long and not for one of
// their periods; and the log says who has it, unless that is soon over.
func TestChoresWaitBriefly(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		for application, says := range map[string]string{
			"the thief":   `level=WARN msg="chores wait for the session that has their lock"`,
			"jobq-chores": `level=INFO msg="chores wait for another janitor's"`,
		} {
			t.Run(string(mode)+" "+application, func(t *testing.T) {
				t.Parallel()
				f := setUp(t)
				holder := f.takeLock(application, db.LockChores)
				f.exec("drop table " + f.partition(pgtest.History, 3))
				f.start(janitor.Config{Mode: mode}, janitor.ChoreTimes(500*time.Millisecond, time.Millisecond, 0))
				f.logged(says+fmt.Sprintf(` .*holder_pid=%d holder_application="?%s`, holder.PgConn().PID(), application), 1)
				blamed := 0
				if application != "jobq-chores" {
					blamed = 1
				}
				f.eventually("select count(*) from jobq.event where message like 'chores wait%("+application+",%'", blamed)
				require.NoError(t, holder.Close(context.Background()))
				f.eventually("select count(*) from pg_inherits where inhparent = 'jobq."+pgtest.History+"'::regclass", 5)
				require.Equal(t, 1, strings.Count(f.log.String(), "chores wait"), "it is told once")
			})
		}
	}
}

// Anybody may take the janitor's lock. Then the work is done without it, after
// a bound, and the log says who has it; also when the thief has the lock of
// those who help out, too.
func TestStolenLock(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		for _, stolen := range [][]db.LockRole{{db.LockJanitor}, {db.LockJanitor, db.LockRescue}} {
			t.Run(fmt.Sprint(mode, len(stolen)), func(t *testing.T) {
				t.Parallel()
				f := setUp(t)
				var thief *pgx.Conn
				for i := range stolen { // the janitor's last
					thief = f.takeLock("the thief", stolen[len(stolen)-1-i])
				}
				f.running(150, "-1 s", 25)
				f.scheduled(1200, "1 s")
				var told events
				j, _ := f.start(janitor.Config{
					Mode: mode, ScanInterval: 20 * time.Millisecond, OnEvent: told.add,
					LeaderTTL: 100 * time.Millisecond, LeaderRenew: 50 * time.Millisecond, LeaderRetry: 20 * time.Millisecond,
				})
				f.eventually("select count(*) from jobq.attempt where outcome = 'lost'", 150)
				f.eventually("select count(*) from jobq.pending where position is null", 0)
				holder := f.logged(`level=WARN msg="work is overdue: doing it beside the session that has the janitor's lock" janitor=\w+ `+
					`overdue=\S+ holder_pid=(\d+) holder_application="the thief"`, 1)[0][1]
				require.Equal(t, fmt.Sprint(thief.PgConn().PID()), holder)
				f.eventually("select least(count(*), 1) from jobq.event where type = 'error' and message like '%session "+holder+" (the thief, %) has the lock'", 1)
				require.False(t, j.Leading())
				// It goes on so without waiting for the bound each time.
				f.running(1, "-1 s", 25)
				f.eventually("select count(*) from jobq.attempt where outcome = 'lost'", 151)
			})
		}
	}
}

// Chores depend neither on the leadership nor on their own lock: stolen, they
// are done all the same, only later.
func TestChoresWithoutTheirLocks(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			f.takeLock("the thief", db.LockJanitor)
			f.takeLock("the thief", db.LockChores)
			f.exec("drop table " + f.partition(pgtest.History, 3))
			j, _ := f.start(janitor.Config{Mode: mode}, janitor.ChoreTimes(0, 0, 10*time.Millisecond))
			f.eventually("select count(*) from pg_inherits where inhparent = 'jobq."+pgtest.History+"'::regclass", 5)
			require.False(t, j.Leading())
		})
	}
}

// Jobs whose transactions commit after later ones were promoted are promoted,
// too: those that are a little late, and those that are very late.
func TestPromotesWhatComesLate(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			f.start(janitor.Config{Mode: mode, ScanInterval: 20 * time.Millisecond})
			for _, late := range []string{"0 s", "1 s", "1 hour", "0 s", "1 year", "1 s"} {
				f.scheduled(3, late)
				f.eventually("select count(*) from jobq.pending where position is null", 0)
			}
		})
	}
}

// A due job and an expired lease that somebody has locked do not keep others
// from being recovered, nor from each other.
func TestLockedRowsHoldUpNoOthers(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.running(1, "-1 hour", 25)
	f.scheduled(1, "1 hour")
	ctx := context.Background()
	locked := int64(f.number("select id from jobq.job where state = 'running'"))
	locker := f.session("locker")
	_, err := locker.Exec(ctx, "begin; select from jobq.pending for update")
	require.NoError(t, err)
	require.NoError(t, pgtest.LockRunning(ctx, locker, locked))
	f.start(janitor.Config{ScanInterval: 5 * time.Millisecond})
	for range 3 {
		f.running(1, "-1 s", 25)
		f.exec("select jobq.enqueue('soon', run_at => clock_timestamp() + interval '1 ms')")
		f.eventually("select count(*) from jobq.job where state = 'running'", 1)
		f.eventually("select count(*) from jobq.pending where position is null", 1)
	}
	_, err = locker.Exec(ctx, "rollback")
	require.NoError(t, err)
	f.eventually("select count(*) from jobq.job where state = 'running'", 0)
	f.eventually("select count(*) from jobq.pending where position is null", 0)
}

// A run that somebody has locked while its lease was reaped, as CompleteTx does, is
// taken when it is free, though nothing else makes the janitor look.
func TestLockedRunIsReapedWhenFree(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.running(1, "-1 s", 25)
	ctx := context.Background()
	locker := f.session("locker")
	_, err := locker.Exec(ctx, "begin")
	require.NoError(t, err)
	require.NoError(t, pgtest.LockRuns(ctx, locker, int64(f.number("select id from jobq.job where state = 'running'"))))
	f.start(janitor.Config{ScanInterval: time.Hour})
	f.eventually("select count(*) from jobq.lease where lost_at is not null", 1)
	_, err = locker.Exec(ctx, "rollback")
	require.NoError(t, err)
	f.eventually("select count(*) from jobq.pending where attempts = 1", 1)
	f.eventually("select count(*) from jobq.lease", 0)
}

// A follower blames nobody while the leader does its work.
func TestFollowersAreQuiet(t *testing.T) {
	t.Parallel()
	f, questions := setUpTraced(t, nil)
	config := janitor.Config{
		ScanInterval: 10 * time.Millisecond, LeaderTTL: time.Minute, LeaderRetry: 10 * time.Millisecond,
	}
	leader, _ := f.start(config)
	require.Eventually(t, leader.Leading, patience, time.Millisecond)
	f.start(config)
	f.running(300, "-1 s", 25)
	f.scheduled(3000, "1 s")
	f.eventually("select count(*) from jobq.job where state = 'running'", 0)
	f.eventually("select count(*) from jobq.pending where position is null", 0)
	before := questions.times("JanitorLockTx")
	require.Eventually(t, func() bool { return questions.times("JanitorLockTx") > before+10 }, patience, time.Millisecond)
	require.NotContains(t, f.log.String(), "overdue")
	require.Zero(t, f.number("select count(*) from jobq.event where type = $1", string(monitor.EventError)))
}

// No statement of a janitor may wait for ever: each has a deadline, whether it
// leads, follows, helps out or does chores.
func TestEveryStatementHasADeadline(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			var seen pgtest.Deadlines
			config := f.pool.Config()
			config.ConnConfig.Tracer = &seen
			client, err := jobq.NewClient(pgtest.ConnectConfig(t, config), nil)
			require.NoError(t, err)
			f.client = client
			janitors := janitor.Config{
				Mode: mode, ScanInterval: 5 * time.Millisecond, LeaderTTL: 100 * time.Millisecond, LeaderRenew: 50 * time.Millisecond, LeaderRetry: 5 * time.Millisecond,
			}
			thief := f.takeLock("the thief", db.LockJanitor)
			f.running(1, "-1 s", 25)
			f.start(janitors, janitor.ChoreTimes(0, 0, 5*time.Millisecond))
			f.eventually("select count(*) from jobq.job where state = 'running'", 0)
			f.exec("drop table " + f.partition(pgtest.History, 3))
			f.eventually("select count(*) from pg_inherits where inhparent = 'jobq."+pgtest.History+"'::regclass", 5)
			require.NoError(t, thief.Close(context.Background()))
			f.start(janitors)
			f.scheduled(10, "1 s")
			f.eventually("select count(*) from jobq.pending where position is null", 0)
			without, sent := seen.Without()
			require.Empty(t, without)
			require.Greater(t, sent, 10)
		})
	}
}

// When there is no connection for the chores, the janitor tries once for all of
// them, tells so once, and rests for longer each time. Recovery goes on, and the
// chores are done when there is a connection again.
func TestNoConnectionForChores(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	var refused atomic.Int32
	var healed atomic.Bool
	config := f.pool.Config()
	config.BeforeConnect = func(_ context.Context, config *pgx.ConnConfig) error {
		if config.RuntimeParams["application_name"] != "jobq-chores" || healed.Load() {
			return nil
		}
		refused.Add(1)
		return errors.New("no connections left")
	}
	client, err := jobq.NewClient(pgtest.ConnectConfig(t, config), nil)
	require.NoError(t, err)
	f.client = client
	f.exec("drop table " + f.partition(pgtest.History, 3))
	f.start(janitor.Config{Mode: janitor.ModeAny, ScanInterval: 5 * time.Millisecond}, janitor.ChoreTimes(0, time.Millisecond, 0))
	const rounds = 5
	lines := f.logged(`level=WARN msg="([^"]+)" .*no connections left.* again_in=(\S+)`, rounds)
	for i, want := range []string{"1ms", "2ms", "4ms", "8ms", "16ms"} {
		require.Equal(t, "no connection for chores", lines[i][1])
		require.Equal(t, want, lines[i][2])
	}
	f.scheduled(1, "1 s")
	f.eventually("select count(*) from jobq.pending where position is null", 0)
	healed.Store(true)
	f.eventually("select count(*) from pg_inherits where inhparent = 'jobq."+pgtest.History+"'::regclass", 5)
	told := f.number("select count(*) from jobq.event where message like 'connect for chores: %no connections left%'")
	require.GreaterOrEqual(t, told, rounds)
	require.LessOrEqual(t, told, int(refused.Load()))
	require.NotContains(t, f.log.String(), "chore failed")
}
