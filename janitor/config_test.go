package janitor_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/janitor"
	"github.com/jobq-dev/jobq/monitor"
)

// Settings that cannot work are refused with the reason.
func TestRefusedConfigs(t *testing.T) {
	t.Parallel()
	client := setUp(t).client
	for want, config := range map[string]janitor.Config{
		`mode "both": must be "leader" or "any"`:                            {Mode: "both"},
		"scan interval must be at least 1ms, not -1s":                       {ScanInterval: -time.Second},
		"reap batch must be 1 to 10000, not 10001":                          {ReapBatch: 10_001},
		"leader retry and leader renew must be at least 1ms":                {LeaderRetry: -1},
		"leader renew 20s must be at most half of leader TTL 30s":           {LeaderRenew: 20 * time.Second},
		"leader renew 10s must be at most half of leader TTL 15s: one late": {LeaderTTL: 15 * time.Second},
	} {
		_, err := janitor.New(client, &config)
		require.ErrorContains(t, err, want)
	}
	empty, err := jobq.NewClient(pgtest.Connect(t, pgtest.EmptyURL(t)), nil)
	require.NoError(t, err)
	j, err := janitor.New(empty, &janitor.Config{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.ErrorIs(t, j.Run(context.Background()), jobq.ErrNotMigrated)
}

// NoReap really does not: the lease that has ended stays, through passes that
// do the other tasks, until a janitor that reaps comes.
func TestNoReap(t *testing.T) {
	t.Parallel()
	for _, mode := range []janitor.Mode{janitor.ModeLeader, janitor.ModeAny} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			f.running(3, "-1 hour", 25)
			_, stop := f.start(janitor.Config{Mode: mode, NoReap: true, ScanInterval: 5 * time.Millisecond})
			for range 5 { // each is promoted by a later pass
				f.exec("select jobq.enqueue('later', run_at => clock_timestamp() + interval '1 ms')")
				f.eventually("select count(*) from jobq.pending where position is null", 0)
			}
			require.Equal(t, 3, f.number("select count(*) from jobq.job where state = 'running'"))
			require.Contains(t, f.log.String(), "reaping is off")
			stop()
			f.start(janitor.Config{Mode: mode, ScanInterval: 5 * time.Millisecond})
			f.eventually("select count(*) from jobq.job where state = 'running'", 0)
		})
	}
}

// events are what OnEvent was told.
type events struct {
	mu  sync.Mutex
	all []janitor.Event
}

func (e *events) add(event janitor.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, event)
}

func (e *events) of(kind monitor.EventType) (some []janitor.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range e.all {
		if event.Type == kind {
			some = append(some, event)
		}
	}
	return some
}

// Stalled jobs, leadership won and lost and errors are told to the callback,
// and are there as rows.
func TestEvents(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.running(2, "-1 s", 25)
	var told events
	j, stop := f.start(janitor.Config{OnEvent: told.add})
	f.eventually("select count(*) from jobq.event where type = 'stalled'", 2)
	require.Eventually(t, func() bool { return len(told.of(monitor.EventStalled)) == 2 }, patience, time.Millisecond)
	require.Len(t, told.of(monitor.EventLeadershipAcquired), 1)
	stalled := told.of(monitor.EventStalled)[0]
	require.Equal(t, j.ID(), stalled.JanitorID)
	require.Equal(t, "dead", stalled.Job.Worker)
	require.Equal(t, 1, stalled.Job.Attempts)
	require.Equal(t, jobq.StateAvailable, stalled.Job.State)
	require.Less(t, stalled.Job.LeaseExpiredAt, time.Now())

	f.exec("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'jobq-janitor' and datname = current_database()")
	require.Eventually(t, func() bool { return len(told.of(monitor.EventLeadershipAcquired)) == 2 }, patience, time.Millisecond)
	require.Error(t, told.of(monitor.EventLeadershipLost)[0].Err)
	require.Len(t, told.of(monitor.EventError), 1)
	stop()
	require.Len(t, told.of(monitor.EventLeadershipLost), 1)
	require.Len(t, told.of(monitor.EventLeadershipReleased), 1)
	require.NoError(t, told.of(monitor.EventLeadershipReleased)[0].Err)
	require.Contains(t, f.log.String(), `msg="leadership released" janitor=leader`+"\n")

	rows, err := monitor.New(f.client).Events(context.Background(), 0, 100)
	require.NoError(t, err)
	var types []string
	for _, row := range rows {
		require.Equal(t, j.ID(), row.Source)
		types = append(types, string(row.Type))
	}
	require.Equal(t, "leadership_released leadership_acquired error leadership_lost stalled stalled leadership_acquired", strings.Join(types, " "))
	older, err := monitor.New(f.client).Events(context.Background(), rows[5].ID, 100)
	require.NoError(t, err)
	require.Equal(t, rows[6:], older)
}

// A chore that the server refuses is told of, and keeps the janitor neither
// from its leadership nor from what recovers jobs.
func TestRefusedChore(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.exec(`insert into jobq.stat_delta (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
		values (date_trunc('minute', now()), 'q', 'k', 1, 0, 0, 0, 0, 0, 0)`)
	f.exec("alter table jobq.stat rename to elsewhere")
	var told events
	f.start(janitor.Config{OnEvent: told.add, ScanInterval: 5 * time.Millisecond})
	require.Eventually(t, func() bool { return len(told.of(monitor.EventError)) > 0 }, patience, time.Millisecond)
	require.ErrorContains(t, told.of(monitor.EventError)[0].Err, "roll up stats: ")
	f.running(2, "-1 s", 25)
	f.eventually("select count(*) from jobq.job where state = 'running'", 0)
	require.Len(t, told.of(monitor.EventLeadershipAcquired), 1)
	require.Eventually(t, func() bool { return len(told.of(monitor.EventError)) == 2 }, patience, time.Millisecond, "this, and dropping old days, once each")
}

// Passes that the server refuses, and not because of a row, are tried again ever later, also by
// a leader who gets the lock each time. Five tries take 0.75 s at least, by the backoff's
// lower bounds.
func TestRefusedPass(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.exec(`create function refuse() returns trigger language plpgsql as $$ begin raise 'no' using errcode = 'insufficient_privilege'; end $$`)
	f.exec("create trigger refuse before insert on jobq.pending for each row execute function refuse()")
	f.running(1, "-1 s", 25)
	var told events
	began := time.Now()
	f.start(janitor.Config{OnEvent: told.add})
	require.Eventually(t, func() bool { return len(told.of(monitor.EventLeadershipAcquired)) == 5 }, patience, time.Millisecond)
	require.Greater(t, time.Since(began), 750*time.Millisecond)
	require.Len(t, told.of(monitor.EventError), 1, "told once")
	require.Equal(t, 1, strings.Count(f.log.String(), "janitor interrupted"))
}

// A leader that is silent for longer than its TTL, as a stopped process is,
// loses the leadership to one that retries.
func TestSilentLeader(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stuck := make(chan struct{}) // the callback keeps the leader from renewing
	silent, err := janitor.New(f.client, &janitor.Config{
		LeaderTTL: 200 * time.Millisecond, LeaderRenew: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		OnEvent: func(event janitor.Event) {
			if event.Type == monitor.EventLeadershipAcquired {
				<-stuck
			}
		},
	})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- silent.Run(ctx) }()
	require.Eventually(t, silent.Leading, patience, time.Millisecond)
	second, _ := f.start(janitor.Config{LeaderRetry: 20 * time.Millisecond})
	require.Eventually(t, second.Leading, patience, time.Millisecond)
	cancel()
	close(stuck)
	require.NoError(t, <-ended)
}
