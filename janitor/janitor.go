// Package janitor recovers the jobs of dead workers and keeps the tables in order. It
// reaps expired leases, makes scheduled jobs available when they are due, settles jobs
// that wait for jobs which are over, adds the jobs of schedules, rolls up stats, makes
// and drops partitions, and deletes the rows of dead workers.
//
// Every task is correct for any number of janitors. A task is done in steps of one
// statement each. A step checks what it changes, and skips rows that others have locked.
// The advisory lock only keeps janitors from doing the same work twice. A janitor that
// finds work overdue while another session has the lock does the work without the lock.
//
// A janitor reaps, promotes and settles in one goroutine, does its chores (stats,
// partitions, retention) in another, and fires schedules in a third. Each has its own
// connections.
package janitor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/identity"
	"github.com/jobq-dev/jobq/monitor"
)

// Mode is how janitors share the work.
type Mode string

const (
	// ModeLeader elects one of all janitors by a session lock, held on the connection
	// that does the work. The janitor notices a pooler that shares sessions. Then that
	// connection is made by jobq.Config.Listen; without it, the mode is ModeAny.
	ModeLeader Mode = "leader"
	// ModeAny elects no leader: each step is done by the janitor that gets the lock for it
	// first, and the lock ends with the step's transaction. It works through PgBouncer.
	// Scheduled jobs may start late by up to ScanInterval.
	ModeAny Mode = "any"
)

// Defaults of Config.
const (
	DefaultScanInterval = 10 * time.Second
	DefaultReapBatch    = 100
	DefaultLeaderTTL    = 30 * time.Second
	DefaultLeaderRenew  = 10 * time.Second
	DefaultLeaderRetry  = 5 * time.Second
)

const (
	// leaderRetryMin is the shortest time between two tries of a follower to lead. When leases are short, it
	// waits for half of the shortest lease instead of LeaderRetry. So jobs are
	// recovered within the lease and one scan even if leader and worker die together.
	leaderRetryMin = 500 * time.Millisecond
	// taskTimeout is the longest time of each step and each query of the janitor.
	taskTimeout = 30 * time.Second
	// ownConnections is the size of the pool that the janitor makes for itself: for its
	// passes, the watch over them, schedules, and events. Short queries share them.
	ownConnections = 4
	// tablesEvery is how often a janitor checks that its build still works with the tables.
	tablesEvery = time.Minute
	// errorBackoffMax is the longest wait after a failure.
	errorBackoffMax = 5 * time.Second
)

// stepLimits are the limits of a step of recovery. A step never waits for a row. It waits for a
// table only while somebody changes the table.
var stepLimits = limits{statement: taskTimeout - 5*time.Second, lock: 2 * time.Second}

// Config changes how a janitor works. The zero value is ready to use.
type Config struct {
	// Mode is ModeLeader or ModeAny. Default ModeLeader.
	Mode Mode
	// ScanInterval is the longest time between two looks for expired leases, or
	// twenty times what a look takes when that is more, but no longer than the
	// shortest lease of all queues; the janitor also wakes at the earliest expiry
	// that it knows of. Default 10 seconds.
	ScanInterval time.Duration
	// NoReap turns off the reaping of expired leases; the janitor's other tasks go on. It is
	// for a single worker that recovers its jobs at its start, or if other janitors reap.
	// Default false.
	NoReap bool
	// ReapBatch is how many runs one statement reaps at most; while there are more,
	// it goes on. Default 100.
	ReapBatch int
	// LeaderTTL is how long a leader may send nothing before the server ends its
	// session, and so its leadership. In ModeAny, it is how long the transaction of a
	// step may be idle. Default 30 seconds.
	LeaderTTL time.Duration
	// LeaderRenew is the longest time for which a leader sends nothing, at most half of
	// LeaderTTL. Default 10 seconds.
	LeaderRenew time.Duration
	// LeaderRetry is how often a follower looks whether there is no leader. If the
	// shortest lease is shorter than twice LeaderRetry, it looks every half of that lease,
	// but not more often than every 500 ms. Default 5 seconds.
	LeaderRetry time.Duration
	// OnEvent is called for each event, which the janitor also logs and stores in the
	// table event. Calls do not overlap, and the janitor waits for each. Default nil: it
	// is not called.
	OnEvent func(Event)
	// Logger is where the janitor writes. Default slog.Default().
	Logger *slog.Logger
}

// errShared ends an attempt to lead before it has taken a lock in the session.
var errShared = errors.New("the leader's session is shared by a pooler")

// errNoDirect ends an attempt to lead by the direct connection, which is Config.Listen of the client.
var errNoDirect = errors.New("there is no direct connection")

const (
	// directTimeout is how long a janitor tries to make the direct connection, and directRetry how
	// long it works in ModeAny before it tries again.
	directTimeout = 5 * time.Second
	directRetry   = time.Minute
)

// complete fills in defaults and refuses what cannot work.
func (c *Config) complete() error {
	c.Mode = cmp.Or(c.Mode, ModeLeader)
	c.ScanInterval, c.ReapBatch = cmp.Or(c.ScanInterval, DefaultScanInterval), cmp.Or(c.ReapBatch, DefaultReapBatch)
	c.LeaderTTL, c.LeaderRenew = cmp.Or(c.LeaderTTL, DefaultLeaderTTL), cmp.Or(c.LeaderRenew, DefaultLeaderRenew)
	c.LeaderRetry, c.Logger = cmp.Or(c.LeaderRetry, DefaultLeaderRetry), cmp.Or(c.Logger, slog.Default())
	switch {
	case c.Mode != ModeLeader && c.Mode != ModeAny:
		return fmt.Errorf("mode %q: must be %q or %q", c.Mode, ModeLeader, ModeAny)
	case c.ScanInterval < time.Millisecond:
		return fmt.Errorf("scan interval must be at least 1ms, not %s", c.ScanInterval)
	case c.ReapBatch < 1 || c.ReapBatch > 10_000:
		return fmt.Errorf("reap batch must be 1 to 10000, not %d", c.ReapBatch)
	case c.LeaderRetry < time.Millisecond || c.LeaderRenew < time.Millisecond:
		return errors.New("leader retry and leader renew must be at least 1ms")
	case c.LeaderRenew > c.LeaderTTL/2:
		return fmt.Errorf("leader renew %s must be at most half of leader TTL %s: one late renewal would end the leadership",
			c.LeaderRenew, c.LeaderTTL)
	}
	return nil
}

// Janitor keeps one schema in order. Make one with New and call Run.
type Janitor struct {
	client   *jobq.Client
	config   Config
	id       string
	schema   *db.Schema
	log      *slog.Logger
	leading  atomic.Bool
	pooled   atomic.Bool // no janitor leads: sessions are, or may be, shared, and there is no direct connection
	noDirect string      // the logged reason why the last direct connection failed; only Run's goroutine uses it
	own      atomic.Pointer[pgxpool.Pool]
	known    bool // whether sessions are shared; only Run's goroutine uses it

	ticker     *ticker
	tickLimits limits
	choreTimes choreTimes
	// tablesEvery is the constant of this name; tests shorten it.
	tablesEvery time.Duration
	directRetry time.Duration // likewise
	choresWake  chan struct{} // of size 1; a signal when this janitor becomes the leader
	heartbeat   heartbeat
	patience    patience
	tally       tally
	telling     sync.Mutex // held while Config.OnEvent runs
}

// New returns a janitor for the client's database and schema. It does not talk
// to the database yet. A nil config means the defaults.
func New(client *jobq.Client, config *Config) (*Janitor, error) {
	if client == nil {
		return nil, errors.New("janitor: the client is nil")
	}
	if config == nil {
		config = &Config{}
	}
	j := &Janitor{client: client, config: *config, tickLimits: defaultTickLimits, choreTimes: defaultChoreTimes, tablesEvery: tablesEvery, directRetry: directRetry, choresWake: make(chan struct{}, 1), heartbeat: newHeartbeat()}
	j.ticker = newTicker(j)
	if err := j.config.complete(); err != nil {
		return nil, fmt.Errorf("janitor: %w", err)
	}
	process, err := identity.Self()
	if err != nil {
		return nil, fmt.Errorf("janitor: %w", err)
	}
	if j.id, err = process.NewID(); err != nil {
		return nil, fmt.Errorf("janitor: %w", err)
	}
	if j.schema, err = db.NewSchema(client.Schema()); err != nil {
		return nil, fmt.Errorf("janitor: %w", err)
	}
	j.schema.Assume(client.Sessions())
	j.log = j.config.Logger.With("janitor", string(j.config.Mode))
	return j, nil
}

// ID is the janitor's name: hostname-pid-random.
func (j *Janitor) ID() string { return j.id }

// Leading says whether this janitor is the leader now.
func (j *Janitor) Leading() bool { return j.leading.Load() }

// Run works until the context ends, and then returns nil. While the database is away,
// it tries again. It returns an error when tables are missing or too new for this build,
// at the start or later.
func (j *Janitor) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if j.config.NoReap {
		j.log.Warn("reaping is off: unless another janitor reaps, jobs of dead workers stay running")
	}
	if err := j.openPool(ctx); err != nil {
		return fmt.Errorf("janitor: %w", err)
	}
	defer func() { j.own.Load().Close() }()
	besides, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	start := sync.OnceFunc(func() { // when the tables are known to be there
		running.Go(func() { j.housekeep(besides) })
		running.Go(func() { j.ticker.run(besides) })
		running.Go(func() { j.beat(besides) })
		running.Go(func() { j.watchTables(besides, cancel) })
		if j.config.Mode == ModeLeader {
			running.Go(func() { j.watch(besides) })
		}
	})
	backoff := db.Backoff{Max: errorBackoffMax}
	away := false
	for ctx.Err() == nil {
		err := j.work(ctx, start, func() {
			backoff.Reset()
			away = false
		})
		if ctx.Err() != nil {
			break
		}
		j.patience.failed(err)
		if errors.Is(err, db.ErrNotMigrated) || errors.Is(err, db.ErrNewerSchema) {
			return fmt.Errorf("janitor: %w", err)
		}
		if err != nil && !away {
			away = true
			j.log.Warn("janitor interrupted, trying on", "error", err)
			j.tell(ctx, Event{Type: monitor.EventError, Err: err})
		}
		if db.IsStale(err) {
			j.pool().Reset() // new connections find the server that is the primary now
		}
		if err := backoff.Wait(ctx); err != nil {
			break
		}
	}
	if cause := context.Cause(ctx); errors.Is(cause, db.ErrNewerSchema) {
		return fmt.Errorf("janitor: %w", cause)
	}
	return nil
}

// work does what the mode says until that fails. When sessions are shared, no janitor leads on a
// connection of the pool: the lock could stay in a session after the leader has gone, and a
// second janitor could get the same session, and the lock with it. With a direct connection,
// the janitor leads on that.
func (j *Janitor) work(ctx context.Context, started, healthy func()) error {
	sessions, err := j.findSessions(ctx)
	if sessions == "" {
		return err
	}
	if !j.known {
		j.known = true
		j.pool().Reset() // what is opened from now on is as the sessions need it: see Schema.Protect and Schema.Pin
	}
	if j.config.Mode == ModeLeader && j.leadsDirectly() {
		return j.leadDirectly(ctx, started, healthy)
	}
	if sessions == db.SessionsShared && !j.pooled.Swap(true) && j.config.Mode == ModeLeader {
		j.log.Warn("sessions are shared by a pooler, or may be: the janitor works in mode any, without a leader", "doubt", err)
	}
	if sessions == db.SessionsOwn {
		j.pooled.Store(false)
	}
	if j.elects() {
		return j.lead(ctx, started, healthy)
	}
	return j.takeTurns(ctx, started, healthy)
}

// leadsDirectly says whether sessions are shared, and the client knows how to make a direct connection.
func (j *Janitor) leadsDirectly() bool {
	return j.client.Listen() != nil && j.schema.Sessions() == db.SessionsShared
}

// leadDirectly is lead on a direct connection. While that cannot be made, the janitor works in
// ModeAny, as without a direct connection, and tries again every directRetry.
func (j *Janitor) leadDirectly(ctx context.Context, started, healthy func()) error {
	j.pooled.Store(false)
	err := j.lead(ctx, started, healthy)
	if !errors.Is(err, errNoDirect) || ctx.Err() != nil {
		return err
	}
	if reason := err.Error(); reason != j.noDirect {
		j.noDirect = reason
		j.log.Warn("no janitor can lead by the listen URL: the janitor works in mode any until one can", "error", err)
	}
	j.pooled.Store(true)
	turns, cancel := context.WithTimeout(ctx, j.directRetry)
	defer cancel()
	err = j.takeTurns(turns, started, healthy)
	if turns.Err() != nil && ctx.Err() == nil {
		return nil // to try again
	}
	return err
}

func (j *Janitor) findSessions(ctx context.Context) (db.Sessions, error) {
	ctx, cancel := context.WithTimeout(ctx, taskTimeout)
	defer cancel()
	return j.schema.FindSessions(ctx, j.pool())
}

// openPool makes the janitor's own pool: that of an application may have other settings than its statements need. In shared
// sessions it prepares no statements.
func (j *Janitor) openPool(ctx context.Context) error {
	config := j.client.Pool().Config()
	config.MinConns, config.MinIdleConns, config.MaxConns = 0, 0, ownConnections
	j.schema.Protect(config)
	j.schema.Pin(config)
	own, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), config)
	if err != nil {
		return err
	}
	j.own.Store(own)
	return nil
}

// pool is the pool that the janitor uses. The connections of the leader and of the chores are
// not from it, but are made with its settings.
func (j *Janitor) pool() *pgxpool.Pool {
	if own := j.own.Load(); own != nil {
		return own
	}
	return j.client.Pool()
}

// elects says whether janitors elect a leader here.
func (j *Janitor) elects() bool { return j.config.Mode == ModeLeader && !j.pooled.Load() }

func (j *Janitor) checkVersion(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, taskTimeout)
	defer cancel()
	return db.CheckVersion(ctx, j.pool(), j.schema)
}

func (j *Janitor) newPasses(on db.DBTX) *passes {
	return &passes{janitor: j, queries: j.schema.Queries(on)}
}

func (j *Janitor) wakeChores() {
	select {
	case j.choresWake <- struct{}{}:
	default: // they are woken already
	}
}

// jitter returns the duration minus a random part of up to a fifth, so that janitors which
// started together do not stay in step.
func jitter(duration time.Duration) time.Duration {
	return duration - rand.N(duration/5+1) // #nosec G404 -- jitter
}
