package janitor_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/janitor"
)

const jobsOfKind = "select count(*) from jobq.job where kind = $1"

// eventuallyJobs waits until there are so many jobs of a kind, or more.
func (f *fixture) eventuallyJobs(kind string, atLeast int) {
	f.Helper()
	require.Eventually(f, func() bool { return f.number(jobsOfKind, kind) >= atLeast }, patience, 5*time.Millisecond)
}

// lookedAgain waits until the janitor has looked at all schedules: one that is due
// every second has fired twice since.
func (f *fixture) lookedAgain() {
	f.Helper()
	f.exec("select jobq.schedule_set('clock', 'clock', every => '1 s')")
	f.eventuallyJobs("clock", f.number(jobsOfKind, "clock")+2)
}

// triggered makes inserts of jobs of a kind run a statement first.
func (f *fixture) triggered(kind, statement string) {
	f.Helper()
	f.exec("create function public.mine() returns trigger language plpgsql as $$ begin " + statement + "; return new; end $$")
	f.exec("create trigger mine before insert on jobq.pending for each row when (new.kind = '" + kind + "') execute function public.mine()")
	f.Cleanup(func() { f.exec("drop function public.mine cascade") })
}

func (f *fixture) untriggered() {
	f.Helper()
	f.exec("drop trigger mine on jobq.pending")
}

const errorOf = "select count(*) from jobq.schedule where name = $1 and error ~ $2"

// eventuallyFails waits until a schedule has that error.
func (f *fixture) eventuallyFails(name, pattern string) {
	f.Helper()
	require.Eventually(f, func() bool { return f.number(errorOf, name, pattern) == 1 }, patience, 5*time.Millisecond, "%s: %s", name, pattern)
}

// A schedule that is set while a janitor leads fires when it is due, and its jobs
// say which tick they are of.
func TestScheduleFires(t *testing.T) {
	t.Parallel()
	f, questions := setUpTraced(t, nil)
	f.start(janitor.Config{ScanInterval: time.Hour})
	f.logged("leadership acquired", 1)
	require.Eventually(t, func() bool { return questions.times("ScheduleFirst") > 0 }, patience, time.Millisecond) // so only word of it helps
	f.exec(`select jobq.schedule_set('second', 'k', every => '1 s', args => '{"a": 1}', queue => 'q', tags => '{t}', metadata => '{"m": 2}')`)
	f.eventuallyJobs("k", 2)
	require.Zero(t, f.number(`select count(*) from jobq.job where not (queue = 'q' and args = '{"a": 1}' and tags = '{t}' and metadata ->> 'm' = '2'
		and metadata ->> 'schedule' = 'second' and (metadata ->> 'tick')::timestamptz = run_at and run_at = date_trunc('second', run_at))`))
	require.Zero(t, f.number("select count(*) from jobq.schedule_tick t where not exists (select from jobq.job j where j.id = t.job_id and j.run_at = t.tick_at)"))
}

// After an outage, the policy says which ticks are made up for: there is no flood of
// jobs. (riverqueue/river#1035)
func TestCatchUp(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	policies := map[string]struct {
		settings string
		want     int
	}{
		"none":      {"catch_up => 'none', catch_up_within => '30 days'", 0},
		"latest":    {"catch_up => 'latest'", 1},
		"too-old":   {"catch_up => 'latest', catch_up_within => '1 s'", 0},
		"all":       {"catch_up => 'all', catch_up_within => '30 days'", 4},
		"few":       {"catch_up => 'all', catch_up_within => '30 days', catch_up_max => 2", 2},
		"in-2-days": {"catch_up => 'all', catch_up_within => '2 days'", 2},
		"paused":    {"catch_up => 'all', catch_up_within => '30 days'", 0},
	}
	for name, policy := range policies {
		// Once a day, twelve hours away from now: whenever this runs, no tick comes meanwhile.
		f.exec(`select jobq.schedule_set($1, $1, cron => '0 ' || extract(hour from now() at time zone 'UTC' + interval '12 h') || ' * * *', `+policy.settings+")", name)
	}
	f.exec("update jobq.schedule set cursor_at = now() - interval '4 days'")
	f.exec("select jobq.schedule_pause('paused')")
	f.start(janitor.Config{})
	f.lookedAgain()
	for name, policy := range policies {
		require.Equal(t, policy.want, f.number(jobsOfKind, name), name)
	}
	f.exec("select jobq.schedule_resume('paused')")
	f.lookedAgain()
	require.Zero(t, f.number(jobsOfKind, "paused"), "what a pause left out is not made up for")
	require.Regexp(t, "ticks of a schedule were left out.*schedule=few", f.log.String())
}

// Five janitors, which are stopped at random, and whose connections break in the
// middle of what they do, make each of thousands of ticks once, and leave none out.
// (timgit/pg-boss#914)
func TestEveryTickOnce(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	const schedules, past, enough = 50, 60, 3600
	f.exec("select jobq.schedule_set('s' || i, 'k', every => '1 s', catch_up => 'all', catch_up_max => 1000) from generate_series(1, $1) i", schedules)
	f.exec("update jobq.schedule set cursor_at = now() - $1 * interval '1 s'", past)
	begun := f.number("select floor(extract(epoch from min(cursor_at)))::bigint from jobq.schedule")
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0)) // #nosec G404 -- a test
	config := f.pool.Config()
	config.ConnConfig.RuntimeParams["application_name"] = "jobq-victim"
	client, err := jobq.NewClient(pgtest.ConnectConfig(t, config), nil)
	require.NoError(t, err)
	victims := *f
	victims.client = client
	stops := make([]func(), 5)
	begin := func(i int) {
		timings := janitor.Config{LeaderTTL: 400 * time.Millisecond, LeaderRenew: 100 * time.Millisecond, LeaderRetry: 20 * time.Millisecond, ScanInterval: 20 * time.Millisecond}
		if i%2 == 1 {
			timings.Mode = janitor.ModeAny
		}
		_, stops[i] = victims.start(timings)
	}
	for i := range stops {
		begin(i)
	}
	ended, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for f.number("select count(*) from jobq.schedule_tick") < enough {
		i := random.IntN(len(stops))
		if random.IntN(2) == 0 {
			f.exec("select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name in ('jobq-victim', 'jobq-schedules') order by random() limit 1")
		} else {
			stops[i]()
			begin(i)
		}
		select {
		case <-ended.Done():
			require.FailNow(t, "too few ticks")
		case <-time.After(time.Duration(random.IntN(40)) * time.Millisecond):
		}
	}
	// A schedule whose many first ticks were rolled back with each kill fires now.
	f.eventually("select count(*) from jobq.schedule where last_tick_at is null", 0)
	for _, stop := range stops {
		stop()
	}
	ticks := f.number("select count(*) from jobq.schedule_tick")
	require.Equal(t, ticks, f.number("select count(*) from jobq.job where kind = 'k'"))
	require.Equal(t, ticks, f.number("select count(distinct (metadata ->> 'schedule', metadata ->> 'tick')) from jobq.job where kind = 'k'"))
	require.Zero(t, f.number(`select count(*) from (
		select schedule from jobq.schedule_tick group by schedule
		having extract(epoch from max(tick_at) - min(tick_at)) + 1 <> count(*)) gaps`), "a tick is missing")
	require.Zero(t, f.number(`select count(*) from jobq.schedule s where not exists (
		select from jobq.schedule_tick t where t.schedule = s.name and t.tick_at = to_timestamp($1 + 1))`, begun), "a schedule did not begin at its first tick")
}

// A trigger of the application's that makes an insert wait for ever keeps no lease
// from being reaped, and no job from being promoted.
func TestTicksHoldUpNoRecovery(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.triggered("slow", "perform pg_sleep(600)")
	f.exec("select jobq.schedule_set('slow', 'slow', every => '1 s')")
	f.start(janitor.Config{ScanInterval: 50 * time.Millisecond}, janitor.TickLimit(time.Hour))
	f.eventually("select count(*) from pg_stat_activity where datname = current_database() and application_name = 'jobq-schedules' and wait_event = 'PgSleep'", 1)
	f.running(3, "-1 s", 25)
	f.scheduled(3, "0")
	f.eventually("select count(*) from jobq.job where state = 'available'", 6)
	require.Equal(t, 1, f.number("select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'"), "the insert waits still")
}

// Whoever has the table of schedules locked, as a migration of the application may,
// keeps no lease from being reaped, and no job from being promoted.
func TestLockOnSchedulesHoldsUpNoRecovery(t *testing.T) {
	t.Parallel()
	for _, mode := range []janitor.Mode{janitor.ModeLeader, janitor.ModeAny} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			ctx := context.Background()
			tx, err := f.pool.Begin(ctx)
			require.NoError(t, err)
			defer func() { require.NoError(t, tx.Rollback(ctx)) }()
			_, err = tx.Exec(ctx, "lock table jobq.schedule")
			require.NoError(t, err)
			f.start(janitor.Config{Mode: mode, ScanInterval: 20 * time.Millisecond})
			f.logged("schedules interrupted", 1) // so the janitor has met the lock
			f.running(3, "-1 s", 25)
			f.scheduled(3, "0")
			f.eventually("select count(*) from jobq.job where state = 'available'", 6)
		})
	}
}

// An insert that takes too long is ended and tried again later; the others go on.
func TestSlowTicks(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.triggered("slow", "perform pg_sleep(600)")
	f.exec("select jobq.schedule_set('slow', 'slow', every => '1 s')")
	f.exec("select jobq.schedule_set('fast', 'fast', every => '1 s')")
	f.start(janitor.Config{}, janitor.TickLimit(20*time.Millisecond))
	f.eventuallyJobs("fast", 2)
	f.eventuallyFails("slow", "statement timeout.*57014")
	fired := f.number(jobsOfKind, "fast")
	f.eventuallyJobs("fast", fired+2)
	f.untriggered()
	f.eventuallyJobs("slow", 1)
	f.eventually("select count(*) from jobq.schedule where error is not null or failures > 0", 0)
}

// When the ticks to catch up with are too many for one statement, it makes fewer at
// once: after a long outage, a schedule does not try the same for ever.
func TestManySlowTicks(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	const ticks = 100
	f.triggered("slow", `perform set_config('mine.inserts', (coalesce(nullif(current_setting('mine.inserts', true), ''), '0')::integer + 1)::text, true);
		if current_setting('mine.inserts')::integer > 20 then perform pg_sleep(600); end if`) // that many at once are too slow
	f.exec("select jobq.schedule_set('slow', 'slow', every => '1 h', catch_up => 'all', catch_up_max => $1, catch_up_within => '30 days')", ticks)
	f.exec("update jobq.schedule set cursor_at = now() - interval '10 days'")
	f.start(janitor.Config{}, janitor.TickLimit(500*time.Millisecond))
	f.eventuallyJobs("slow", ticks)
	f.eventually("select count(*) from jobq.schedule where error is null and failures = 0 and due_at > now()", 1)
	require.Zero(t, f.number("select count(*) from jobq.schedule_tick t where not exists (select from jobq.job j where j.id = t.job_id and j.run_at = t.tick_at)"))
	require.Equal(t, f.number("select count(*) from jobq.schedule_tick"), f.number("select count(*) from jobq.job"))
}

// An insert that is refused since somebody has a lock that it needs is tried again,
// and stops no other.
func TestLockedRefusal(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	ctx := context.Background()
	f.exec("create table public.counter (n integer)")
	f.Cleanup(func() { f.exec("drop table public.counter") })
	f.exec("insert into public.counter values (0)")
	f.triggered("counted", "update public.counter set n = n + 1")
	tx, err := f.pool.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "update public.counter set n = 7")
	require.NoError(t, err)
	f.exec("select jobq.schedule_set('counted', 'counted', every => '1 s')")
	f.exec("select jobq.schedule_set('free', 'free', every => '1 s')")
	f.start(janitor.Config{})
	f.eventuallyFails("counted", "lock timeout.*55P03")
	f.eventuallyJobs("free", f.number(jobsOfKind, "free")+2)
	require.Zero(t, f.number(jobsOfKind, "counted"))
	require.NoError(t, tx.Rollback(ctx))
	f.eventuallyJobs("counted", 1)
	f.eventually("select count(*) from jobq.schedule where error is not null", 0)
}

// A session that has the janitor's lock and does nothing stops schedules only until
// another janitor sees that they are overdue.
func TestStrangerStopsNoSchedule(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.takeLock("stranger", db.LockJanitor)
	f.exec("select jobq.schedule_set('s', 'k', every => '1 s')")
	f.start(janitor.Config{LeaderTTL: 200 * time.Millisecond, LeaderRenew: 100 * time.Millisecond, LeaderRetry: 20 * time.Millisecond, ScanInterval: 20 * time.Millisecond})
	f.eventuallyJobs("k", 2)
	require.NotContains(t, f.log.String(), "leadership acquired")
}

// Schedules that somebody has locked, more than one look finds, stop none of the
// others; and they fire when they are free.
func TestManyLockedSchedules(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	ctx := context.Background()
	const locked = 250
	f.exec("select jobq.schedule_set('locked' || i, 'locked', every => '1 s') from generate_series(1, $1) i", locked)
	f.exec("select jobq.schedule_set('z', 'free', every => '1 s')")
	tx, err := f.pool.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "select from jobq.schedule where name <> 'z' for update")
	require.NoError(t, err)
	f.start(janitor.Config{})
	f.eventuallyJobs("free", 3)
	require.Zero(t, f.number(jobsOfKind, "locked"))
	require.NoError(t, tx.Rollback(ctx))
	require.Eventually(t, func() bool {
		return f.number("select count(*) from jobq.schedule where name <> 'z' and last_job_id is not null") == locked
	}, patience, 10*time.Millisecond)
	f.eventuallyJobs("free", f.number(jobsOfKind, "free")+2)
}

// What is wrong with a schedule is kept in its row until it works again, is told
// once, and stops no other.
func TestErrorStays(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.triggered("refused", "raise 'not today'")
	f.exec("select jobq.schedule_set('refused', 'refused', every => '1 s', catch_up => 'none')")
	f.exec("select jobq.schedule_set('rare', 'refused', every => '3 s', catch_up_within => '1 s')") // a second try is too late
	f.exec("select jobq.schedule_set('nowhere', 'k', cron => '* * * * *', time_zone => 'Mars/Olympus')")
	f.exec("select jobq.schedule_set('garbled', 'k', cron => 'every monday')")
	f.exec("select jobq.schedule_set('never', 'k', cron => '0 0 30 2 *')")
	f.start(janitor.Config{})
	for name, want := range map[string]string{
		"refused": "not today.*P0001", "nowhere": `time zone "Mars/Olympus": unknown`, "garbled": "must have 5 fields", "never": "never fires",
	} {
		f.eventuallyFails(name, want)
	}
	f.eventually("select count(*) from jobq.schedule where name = 'refused' and failures > 1", 1)
	f.lookedAgain()
	require.Equal(t, 1, f.number(errorOf, "refused", "not today"), "although others fired since")
	f.eventually("select count(*) from jobq.schedule where name = 'rare' and cursor_at > error_at and failures = 0 and error ~ 'not today'", 1)
	require.Len(t, f.logged(`msg="schedule failed" janitor=leader schedule=refused`, 1), 1)
	f.untriggered()
	f.exec("select jobq.schedule_set('nowhere', 'k', cron => '* * * * *', time_zone => 'Europe/Berlin')")
	f.eventuallyJobs("refused", 1)
	f.eventually("select count(*) from jobq.schedule where name in ('refused', 'nowhere') and error is not null", 0)
	require.Equal(t, 2, f.number("select count(*) from jobq.schedule where name in ('garbled', 'never') and error is not null"))
}

// What people change takes effect with its commit.
func TestScheduleChanges(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.start(janitor.Config{ScanInterval: time.Hour})
	f.logged("leadership acquired", 1)
	f.exec("select jobq.schedule_set('s', 'first', every => '1 s')")
	f.eventuallyJobs("first", 1)

	f.exec("select jobq.schedule_pause('s', 'for now', 'ann')")
	paused := f.number(jobsOfKind, "first")
	f.lookedAgain()
	require.Equal(t, paused, f.number(jobsOfKind, "first"))
	f.exec("select jobq.schedule_run('s')")
	require.Equal(t, paused+1, f.number(jobsOfKind, "first"), "by hand also when it is paused")
	f.exec("select jobq.schedule_set('s', 'second', every => '1 s')")
	f.lookedAgain()
	require.Zero(t, f.number(jobsOfKind, "second"), "it stays paused")
	f.exec("select jobq.schedule_resume('s')")
	f.eventuallyJobs("second", 1)

	before := f.number("select revision + (select count(*) from jobq.audit) from jobq.schedule where name = 's'")
	f.exec("select jobq.schedule_set('s', 'second', every => '1 s')")
	require.Equal(t, before, f.number("select revision + (select count(*) from jobq.audit) from jobq.schedule where name = 's'"), "it is so already")

	f.exec("select jobq.schedule_remove('s')")
	removed := f.number(jobsOfKind, "second")
	f.lookedAgain()
	require.Equal(t, removed, f.number(jobsOfKind, "second"))
}

// While the job of the tick before is unfinished, a tick with overlap skip adds none.
func TestOverlap(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.start(janitor.Config{})
	f.exec("select jobq.schedule_set('s', 'k', every => '1 s', overlap => 'skip')")
	f.eventually("select least(count(*), 2) from jobq.schedule_tick where schedule = 's' and job_id is null", 2)
	require.Equal(t, 1, f.number(jobsOfKind, "k"))
	f.exec("update jobq.pending set position = null, run_at = now() + interval '1 hour' where kind = 'k'") // a retry is unfinished, too
	f.eventually("select least(count(*), 4) from jobq.schedule_tick where schedule = 's' and job_id is null", 4)
	require.Equal(t, 1, f.number(jobsOfKind, "k"))
	f.exec("select jobq.cancel(id) from jobq.job where kind = 'k'")
	f.eventually("select count(*) from jobq.pending where kind = 'k'", 1)
}

// A clock that was set forward, and back again, stops no schedule; and what was
// fired meanwhile is not fired again.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.exec("select jobq.schedule_set('s', 'k', every => '1 s')")
	f.exec("update jobq.schedule set cursor_at = now() + interval '1 day', due_at = now() + interval '1 day'")
	f.exec("insert into jobq.schedule_tick select 's', date_trunc('second', now()) + i * interval '1 s' from generate_series(0, 3) i")
	f.start(janitor.Config{})
	f.eventuallyJobs("k", 2)
	require.Contains(t, f.log.String(), "the clock was set back")
	require.Zero(t, f.number("select count(*) from jobq.job j where kind = 'k' and j.run_at <= (select min(tick_at) + interval '3 s' from jobq.schedule_tick)"))
}

// A tick that came after the clock was set back, and before a janitor has seen that,
// is not lost.
func TestTickBeforeRewind(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.exec("select jobq.schedule_set('s', 'k', cron => to_char(now() at time zone 'UTC', 'FMMI FMHH24 * * *'))") // daily, and last within this minute
	f.exec("update jobq.schedule set created_at = now() - interval '1 day', cursor_at = now() + interval '2 hours', due_at = now() + interval '22 hours'")
	f.start(janitor.Config{})
	f.eventuallyJobs("k", 1)
	f.exec("update jobq.schedule set cursor_at = now() + interval '2 hours', due_at = now() + interval '22 hours'")
	f.start(janitor.Config{Mode: janitor.ModeAny}) // it looks at all when it begins
	f.eventually("select count(*) from jobq.schedule where cursor_at < now() and due_at > now()", 1)
	require.Equal(t, 1, f.number(jobsOfKind, "k"), "once")
}

// A tick is fired after its moment, by a timer and not by polling, and does not
// drift. (bensheldon/good_job#1543)
func TestPunctualTicks(t *testing.T) {
	t.Parallel()
	const ticks = 5
	f, questions := setUpTraced(t, nil)
	f.start(janitor.Config{ScanInterval: time.Hour})
	f.exec("select jobq.schedule_set('s', 'k', every => '1 s')")
	f.eventuallyJobs("k", ticks)
	looks, fires := questions.times("ScheduleLook"), questions.times("ScheduleFire")
	require.Zero(t, f.number("select count(*) from jobq.job where created_at < run_at or run_at <> date_trunc('second', run_at)"))
	require.LessOrEqual(t, looks, 2*fires+5, "a look for a tick, and now and then one that was early")
	require.Equal(t, 1, questions.times("ScheduleRewind"))
	t.Logf("ticks were late by %d ms in the middle", f.number("select percentile_disc(0.5) within group (order by extract(epoch from created_at - run_at) * 1000)::integer from jobq.job"))
}

// With no schedule, a janitor asks what it asked before, and has no other connection.
func TestNoScheduleCostsNothing(t *testing.T) {
	t.Parallel()
	f, questions := setUpTraced(t, nil)
	f.start(janitor.Config{ScanInterval: time.Millisecond})
	require.Eventually(t, func() bool { return questions.times("NextDue") >= 20 }, patience, time.Millisecond)
	require.Positive(t, questions.times("ScheduleFirst"))
	require.LessOrEqual(t, questions.times("ScheduleFirst"), questions.times("NextDue")+1)
	for _, name := range []string{"ScheduleLook", "ScheduleFire", "ScheduleRewind"} {
		require.Zero(t, questions.times(name), name)
	}
	require.Zero(t, f.number("select count(*) from pg_stat_activity where datname = current_database() and application_name = 'jobq-schedules'"))
	f.exec("select jobq.schedule_set('s', 'k', every => '1 s')")
	f.eventuallyJobs("k", 1)
	f.exec("select jobq.schedule_remove('s')")
	f.exec("select jobq.schedule_set('later', 'k', every => '366 d')")
	f.exec("select jobq.schedule_remove('later')")
}

// Anybody may notify. However often they do, the janitor looks at schedules about
// once a second, while there is none.
func TestNotificationsOfSchedulesCostLittle(t *testing.T) {
	t.Parallel()
	f, questions := setUpTraced(t, nil)
	f.start(janitor.Config{ScanInterval: time.Hour})
	f.logged("leadership acquired", 1)
	began := time.Now()
	for questions.times("ScheduleFirst") < 5 { // one of them before it led
		f.exec("select pg_notify(jobq.channel('schedule'), '')")
	}
	require.Greater(t, time.Since(began), 2*time.Second, "the first look may come at once")
}
