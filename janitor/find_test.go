package janitor

import (
	"context"
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
)

// ChoresFind knows all chores that are asked after, by their names.
func TestAskedChoresAreKnown(t *testing.T) {
	t.Parallel()
	j := &Janitor{choreTimes: defaultChoreTimes}
	known := strings.Count(db.ChoresFind, " when '")
	for _, c := range newHousekeeper(j).chores {
		if c.often {
			require.Contains(t, db.ChoresFind, "when '"+c.name+"' then")
			known--
		}
	}
	require.Zero(t, known, "it knows chores that nobody asks after")
}

// Chores are asked after when one of them is due, together with those that will be soon;
// not those that rest after a failure.
func TestChoresShareAQuestion(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ago := func(period time.Duration) time.Time { return now.Add(-period) }
	often := &chore{name: "often", every: 30 * time.Second, often: true, done: ago(30 * time.Second)}
	soon := &chore{name: "soon", every: time.Minute, often: true, done: ago(55 * time.Second)}
	later := &chore{name: "later", every: time.Minute, often: true, done: ago(50 * time.Second)}
	resting := &chore{name: "resting", every: time.Minute, often: true, done: ago(time.Hour), again: now.Add(time.Second)}
	rare := &chore{name: "rare", every: time.Minute, done: ago(time.Hour)}
	h := &housekeeper{janitor: &Janitor{config: Config{Mode: ModeAny}}, chores: []*chore{rare, resting, later, soon, often}}
	require.Equal(t, []*chore{soon, often}, h.askedAfter(now))
	often.done = ago(29 * time.Second)
	require.Empty(t, h.askedAfter(now), "none is due")
}

// The history needs no statistics as long as it has as many rows as when it needed none,
// but for a time.
func TestHistoryStands(t *testing.T) {
	t.Parallel()
	x := &history{seen: 7}
	require.InDelta(t, -1, x.knownRows(time.Hour), 0)
	x.looked(false)
	x.seen = 8 // at the next question
	require.InDelta(t, 7, x.knownRows(time.Hour), 0)
	require.InDelta(t, -1, x.knownRows(time.Nanosecond), 0)
	x.looked(true)
	require.InDelta(t, -1, x.knownRows(time.Hour), 0, "a day may have been left out")
}

// A leader that hears of the first schedule asks for it a sixth as often, and at least
// once a minute, or as often as it scans; others ask as often as before.
func TestFirstScheduleIsAskedForRarely(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		scan    time.Duration
		leading bool
		least   time.Duration
		most    time.Duration
	}{
		{10 * time.Second, true, time.Minute, time.Minute},
		{time.Second, true, 6 * time.Second, 6 * time.Second},
		{5 * time.Minute, true, 5 * time.Minute, 5 * time.Minute},
		{10 * time.Second, false, 8 * time.Second, 10 * time.Second},
	} {
		j := &Janitor{config: Config{ScanInterval: c.scan}}
		require.NoError(t, j.config.complete())
		j.leading.Store(c.leading)
		ticker := newTicker(j)
		before := time.Now()
		ticker.rest()
		require.WithinRange(t, ticker.plan, before.Add(c.least), time.Now().Add(c.most))
	}
}

// names keeps the names of statements.
type names struct {
	mu  sync.Mutex
	all []string
}

func (n *names) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, strings.Fields(strings.TrimPrefix(data.SQL, "-- name: "))[0])
	return ctx
}

func (n *names) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (n *names) take() (all []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	all, n.all = n.all, nil
	return all
}

// The usual look is the one from the start when that is due, and finds what came late;
// but not when either takes long, so that one does not make the other rest.
func TestLooksTogether(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	config, err := pgxpool.ParseConfig(pgtest.URL(t))
	require.NoError(t, err)
	sent := &names{}
	config.ConnConfig.Tracer = sent
	pool := pgtest.ConnectConfig(t, config)
	client, err := jobq.NewClient(pool, nil)
	require.NoError(t, err)
	j, err := New(client, &Config{ScanInterval: time.Hour})
	require.NoError(t, err)
	_, err = pool.Exec(ctx, "insert into jobq.pending (kind, run_at) values ('late', now() + interval '2 hours')")
	require.NoError(t, err)
	_, err = pool.Exec(ctx, "update jobq.pending set run_at = now() - interval '1 hour'")
	require.NoError(t, err)

	for _, c := range []struct {
		leases, start time.Duration
		want          []string
	}{
		{0, 0, []string{"NextDue"}},
		{4 * time.Minute, 0, []string{"DueFirst", "NextDue"}},
		{0, 4 * time.Minute, []string{"DueFirst", "NextDue"}},
	} {
		p := j.newPasses(pool)
		p.due.after = db.DuePlace{RunAt: time.Now()}
		p.due.startAt = time.Now().Add(time.Hour)
		sent.take()
		next, err := p.next(ctx)
		require.NoError(t, err)
		require.Positive(t, next.Ms, "the usual look does not reach it")
		require.Equal(t, []string{"NextDue"}, sent.take())

		p.due.startAt, p.leases.took, p.due.startTook = time.Time{}, c.leases, c.start
		p.leases.at = time.Now().Add(time.Hour) // no scan, which would change what the last one took
		next, err = p.next(ctx)
		require.NoError(t, err)
		require.Equal(t, c.want, sent.take())
		require.Negative(t, next.Ms, "%v", c)
		require.True(t, p.due.after.RunAt.Before(time.Now().Add(-50*time.Minute)), "promotion goes back")
		require.True(t, p.due.startAt.After(time.Now()))
	}
}

// leading is a janitor of a new database with the leader's connection, which the test's end closes.
func leading(t *testing.T, config *Config) (*pgxpool.Pool, *Janitor, *pgx.Conn) {
	t.Helper()
	pool := pgtest.Pool(t)
	client, err := jobq.NewClient(pool, nil)
	require.NoError(t, err)
	j, err := New(client, config)
	require.NoError(t, err)
	conn, err := j.connectLeader(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() { db.Close(conn, db.CloseTimeout) })
	return pool, j, conn
}

// A leader takes what it has heard after each step of recovery, of which a backlog needs
// many: so it hears of the first schedule meanwhile.
func TestBusyLeaderHears(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	_, j, conn := leading(t, &Config{NoReap: true})
	p := j.newPasses(conn)
	p.readFunc = func() { j.readBuffered(conn, p.due.notified) }
	p.step = func(ctx context.Context, _ func(context.Context, session) error) (bool, error) {
		_, err := conn.Exec(ctx, "select pg_notify(jobq.channel('schedule'), '')")
		return false, err
	}
	require.NoError(t, p.recover(ctx))
	require.Len(t, j.ticker.wake, 1)
}

// 300,000 notifications come during a step, on both channels. The leader keeps few of them, and looks at schedules and
// at jobs that are overdue, since it may have been told of these.
func TestLeaderKeepsFewNotifications(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool, j, conn := leading(t, &Config{NoReap: true})
	p := j.newPasses(conn)
	p.due.after.RunAt, p.due.startAt = time.Now(), time.Now().Add(time.Hour) // nothing is known to be before it
	p.readFunc = func() {
		require.LessOrEqual(t, db.NotificationsKept(conn), 1000)
		j.readBuffered(conn, p.due.notified)
	}
	p.step = func(ctx context.Context, _ func(context.Context, session) error) (bool, error) {
		_, err := pool.Exec(ctx, `select count(pg_notify(jobq.channel(t), i::text))
			from generate_series(1, 150000) i, unnest('{due, schedule}'::text[]) t`)
		require.NoError(t, err)
		_, err = conn.Exec(ctx, "select 1")
		return false, err
	}
	require.NoError(t, p.recover(ctx))
	require.Len(t, j.ticker.wake, 1)
	require.True(t, p.due.behind)
}

// Notifications that come all the time do not keep the leader from telling the server that it lives.
func TestLeaderRenewsBesideNotifications(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	pool, j, conn := leading(t, &Config{ScanInterval: time.Minute, LeaderTTL: 2 * time.Second, LeaderRenew: time.Second, LeaderRetry: time.Second})
	var sending sync.WaitGroup
	sending.Go(func() {
		for ctx.Err() == nil {
			_, _ = pool.Exec(ctx, "select pg_notify(jobq.channel('due'), '9e9'), pg_sleep(0.01)") // due long after the planned wake-up
		}
	})
	err := j.sleepOn(conn, func(float64) {})(ctx, 3*j.config.LeaderTTL, 0)
	cancel()
	sending.Wait()
	require.NoError(t, err)
}

// While nothing happens, chores that are not frequent rest for longer, and all frequent ones share each question. These keep their
// periods, since jobs may wait for what they do.
func TestChoresRestWhileNothingHappens(t *testing.T) {
	t.Parallel()
	j := &Janitor{config: Config{Mode: ModeAny}, choreTimes: defaultChoreTimes}
	h, now := newHousekeeper(j), time.Now()
	for _, c := range h.chores {
		c.done = now
	}
	rests := func() (often, wakes, seldom time.Duration) {
		rest := make(map[string]time.Duration)
		for _, c := range h.chores {
			rest[c.name] = h.dueAt(c).Sub(now)
		}
		return rest[rollUpName], rest["wake jobs of events"], rest["prune payloads"]
	}
	requireRests := func(often, wakes, seldom time.Duration) {
		t.Helper()
		a, b, c := rests()
		require.Equal(t, []time.Duration{often, wakes, seldom}, []time.Duration{a, b, c})
	}
	requireRests(30*time.Second, 30*time.Second, 10*time.Minute)
	h.quiet = true
	requireRests(30*time.Second, 30*time.Second, 2*time.Hour)
	require.Empty(t, h.askedAfter(now.Add(29*time.Second)))
	asked := h.askedAfter(now.Add(30 * time.Second))
	for _, c := range h.chores {
		require.Equal(t, c.often, slices.Contains(asked, c), c.name)
	}
}

// A look by an idle janitor also says that the janitor lives, and renews the announcement of its sleep while that still holds.
// So it sends one statement, where it was three.
func TestIdleLookIsOneStatement(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	config, err := pgxpool.ParseConfig(pgtest.URL(t))
	require.NoError(t, err)
	sent := &names{}
	config.ConnConfig.Tracer = sent
	pool := pgtest.ConnectConfig(t, config)
	client, err := jobq.NewClient(pool, nil)
	require.NoError(t, err)
	const interval = 10 * time.Minute
	j, err := New(client, &Config{ScanInterval: interval})
	require.NoError(t, err)
	p := j.newPasses(pool)
	p.listens, p.beats = true, true
	look := func() []string {
		sent.take()
		_, err := p.lookAhead(ctx)
		require.NoError(t, err)
		return sent.take()
	}
	saidAt := func() (at time.Time) {
		require.NoError(t, pool.QueryRow(ctx, "select coalesce((select seen_at from jobq.janitor_seen where janitor = $1), 'epoch')", j.id).Scan(&at))
		return at
	}
	require.Equal(t, []string{"SleepAnnounce", "NextDue"}, look(), "no announcement holds")
	require.WithinDuration(t, time.Now(), saidAt(), time.Minute)
	require.Equal(t, []string{"NextDue"}, look(), "it does")
	require.False(t, j.heartbeat.isDue())

	_, err = pool.Exec(ctx, "update jobq.janitor_seen set seen_at = now() - interval '9 s'")
	require.NoError(t, err)
	j.heartbeat.sentAt.Store(int64(time.Since(j.heartbeat.began) - 9*time.Second))
	p.asleep.until = time.Now().Add(announcedShare/2*interval - time.Minute)
	before := saidAt()
	require.Equal(t, []string{"NextDue"}, look())
	require.Greater(t, time.Until(p.asleep.until), announcedShare/2*interval)
	require.True(t, saidAt().After(before))
	var heldFor float64
	require.NoError(t, pool.QueryRow(ctx, "select last_value / 1000.0 - extract(epoch from clock_timestamp()) from jobq.asleep_seq").Scan(&heldFor))
	require.Greater(t, heldFor, (announcedShare / 2 * interval).Seconds(), "the inserts can see it")

	p.asleep.until = time.Now().Add(interval)
	require.Equal(t, []string{"SleepAnnounce", "NextDue"}, look(), "a job that was added because of it may be due before the next look")
}

// The ticker does not ask for schedules while the housekeeper finds none; and it does when somebody tells of a change, also if
// the housekeeper had asked before.
func TestHousekeeperLooksForSchedules(t *testing.T) {
	t.Parallel()
	j := &Janitor{}
	ticker := newTicker(j)
	asked := time.Now()
	require.Zero(t, ticker.noneUntil())
	ticker.found(asked, false)
	require.Equal(t, asked.Add(wholeLookEvery), ticker.noneUntil())
	ticker.changed()
	<-ticker.wake
	ticker.found(asked, false)
	require.Zero(t, ticker.noneUntil(), "that was before the change")
	ticker.found(time.Now(), false)
	require.NotZero(t, ticker.noneUntil())
	ticker.found(time.Now(), true)
	require.Len(t, ticker.wake, 1, "nobody had told of it")
	<-ticker.wake
	ticker.found(time.Now(), true)
	require.Empty(t, ticker.wake, "it is known")
}

// That the history is counted now and then does not end the rest: it does so while nothing happens, too.
func TestChoresRestWhileTheHistoryIsCounted(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Pool(t)
	client, err := jobq.NewClient(pool, nil)
	require.NoError(t, err)
	j, err := New(client, &Config{Mode: ModeAny})
	require.NoError(t, err)
	h := newHousekeeper(j)
	h.skipIdle(ctx)
	found := func(name string) bool {
		return h.chores[slices.IndexFunc(h.chores, func(c *chore) bool { return c.name == name })].found
	}
	require.True(t, found(analyzeName))
	require.True(t, h.quiet)
	_, err = pool.Exec(ctx, `insert into jobq.stat_delta (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
		values (now(), 'default', 'k', 1, 0, 0, 0, 0, 0, 0)`)
	require.NoError(t, err)
	h = newHousekeeper(j)
	h.skipIdle(ctx)
	require.True(t, found(rollUpName))
	require.False(t, h.quiet)
}

// A look that renews the announcement does not forget a transaction that saw none before, and that has ended during the look.
func TestRenewalForgetsNoTransaction(t *testing.T) {
	t.Parallel()
	p := &passes{janitor: &Janitor{config: Config{ScanInterval: time.Second}}}
	p.asleep.open = []string{"7", "8"}
	p.renewed(time.Now(), []string{"8", "9"})
	require.ElementsMatch(t, []string{"7", "8", "9"}, p.asleep.open)
	p.announced(time.Now(), []string{"9"})
	require.Equal(t, []string{"9"}, p.asleep.open, "a look follows, which finds what the others have added")
}
