// Package janitor recovers what dead workers leave and keeps the tables in
// order: it reaps expired leases, makes scheduled jobs available when they are
// due, rolls up stats, makes and drops partitions, and forgets dead workers.
//
// Every task is right however many janitors run: each is one statement that
// checks what it changes and skips rows that others work on. The advisory
// lock only keeps them from doing the same work twice.
package janitor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/identity"
)

// Mode is how janitors share the work.
type Mode string

const (
	// Leader elects one janitor of all by a session lock, held on the very
	// connection that does the work. Behind a pooler that shares sessions, which
	// it notices, it is Any.
	Leader Mode = "leader"
	// Any lets whichever comes first do each pass, by a lock that ends with the
	// pass's transaction. It works through PgBouncer; scheduled jobs may start
	// late by up to ScanInterval.
	Any Mode = "any"
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
	promoteBatch = 1000
	// A follower looks more often than LeaderRetry when leases are short: half of
	// the shortest one, which keeps the recovery within lease and scan when leader
	// and worker die together.
	leaderRetryMin = 500 * time.Millisecond
	// taskTimeout bounds each statement of the janitor.
	taskTimeout = 30 * time.Second
	// errorBackoffMax is the longest wait after a failure.
	errorBackoffMax = 5 * time.Second
)

// Config changes how a janitor works. The zero value is ready to use.
type Config struct {
	// Mode is Leader, the default, or Any.
	Mode Mode
	// ScanInterval is the longest time between two looks for expired leases, or
	// twenty times what a look takes when that is more, but no longer than the
	// shortest lease of all queues; the janitor also wakes at the earliest expiry
	// that it knows of. Default 10 seconds.
	ScanInterval time.Duration
	// NoReap leaves expired leases alone; the janitor's other tasks go on. For a
	// single worker that recovers at its start, or where others reap.
	NoReap bool
	// ReapBatch is how many leases one statement reaps; while there are more,
	// it goes on. Default 100.
	ReapBatch int
	// LeaderTTL is how long a leader may be silent before the server ends its
	// session, and with it its leadership; so may a pass in mode Any. Default 30
	// seconds.
	LeaderTTL time.Duration
	// LeaderRenew is how long a leader is silent at most: half of LeaderTTL or
	// less. Default 10 seconds.
	LeaderRenew time.Duration
	// LeaderRetry is how often a follower looks whether there is no leader. It
	// looks more often when there are leases shorter than twice that. Default
	// 5 seconds.
	LeaderRetry time.Duration
	// OnEvent is told of what the janitor sees and does, which it also logs and
	// keeps in the table event. One goroutine calls it, and waits for it.
	OnEvent func(Event)
	// Logger is where the janitor writes. Default slog.Default().
	Logger *slog.Logger
}

// errShared ends an attempt to lead, before it has left anything in the session.
var errShared = errors.New("the leader's session is shared by a pooler")

// complete fills in defaults and refuses what cannot work.
func (c *Config) complete() error {
	c.Mode = cmp.Or(c.Mode, Leader)
	c.ScanInterval, c.ReapBatch = cmp.Or(c.ScanInterval, DefaultScanInterval), cmp.Or(c.ReapBatch, DefaultReapBatch)
	c.LeaderTTL, c.LeaderRenew = cmp.Or(c.LeaderTTL, DefaultLeaderTTL), cmp.Or(c.LeaderRenew, DefaultLeaderRenew)
	c.LeaderRetry, c.Logger = cmp.Or(c.LeaderRetry, DefaultLeaderRetry), cmp.Or(c.Logger, slog.Default())
	switch {
	case c.Mode != Leader && c.Mode != Any:
		return fmt.Errorf("mode %q: must be %q or %q", c.Mode, Leader, Any)
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
	client  *jobq.Client
	config  Config
	id      string
	schema  *db.Schema
	log     *slog.Logger
	leading atomic.Bool
	pooled  bool // told of; Run's own
}

// New returns a janitor for the client's database and schema. It does not talk
// to the database yet. A nil config means the defaults.
func New(client *jobq.Client, config *Config) (*Janitor, error) {
	if config == nil {
		config = &Config{}
	}
	j := &Janitor{client: client, config: *config}
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

// Run works until the context ends, and then returns nil. It survives a
// database that goes away. An error is about tables that are missing or newer
// than this build.
func (j *Janitor) Run(ctx context.Context) error {
	if j.config.NoReap {
		j.log.Warn("reaping is off: unless another janitor reaps, jobs of dead workers stay running")
	}
	backoff := db.Backoff{Max: errorBackoffMax}
	away := false
	for ctx.Err() == nil {
		err := j.work(ctx, func() {
			backoff.Reset()
			away = false
		})
		if ctx.Err() != nil {
			break
		}
		if errors.Is(err, db.ErrNotMigrated) || errors.Is(err, db.ErrNewerSchema) {
			return fmt.Errorf("janitor: %w", err)
		}
		if err != nil && !away {
			away = true
			j.log.Warn("janitor interrupted, trying on", "error", err)
			j.tell(ctx, Event{Type: jobq.EventError, Err: err})
		}
		if db.IsStale(err) {
			j.client.Pool().Reset() // whoever is the primary now: new connections find it
		}
		if err := backoff.Wait(ctx); err != nil {
			break
		}
	}
	return nil
}

// work does what the mode says, until it breaks. Where sessions are shared there
// is no leader: its lock would stay behind in a session, and let a second one in.
func (j *Janitor) work(ctx context.Context, healthy func()) error {
	sessions, err := j.schema.FindSessions(ctx, j.client.Pool())
	if sessions == "" {
		return err
	}
	if sessions == db.SessionsOwn && j.config.Mode == Leader {
		return j.lead(ctx, healthy)
	}
	if j.config.Mode == Leader && !j.pooled {
		j.pooled = true
		j.log.Warn("sessions are shared by a pooler, or may be: the janitor works in mode any, without a leader", "doubt", err)
	}
	return j.takeTurns(ctx, healthy)
}

// lead waits until the lock is free, takes it on a connection of its own, and
// works on that connection until it breaks. Losing the connection loses the
// lock and the work with it.
func (j *Janitor) lead(ctx context.Context, healthy func()) error {
	pool := j.client.Pool()
	if err := db.CheckVersion(ctx, pool, j.schema); err != nil {
		return err
	}
	if err := j.awaitFreeLock(ctx, pool, healthy); err != nil {
		return err
	}
	conn, err := j.connect(ctx)
	if err != nil {
		return err
	}
	defer closeConn(conn)
	class, object := j.schema.AdvisoryKey(db.LockJanitor)
	locked, err := j.schema.Queries(conn).JanitorLock(ctx, class, object)
	if err != nil || !locked {
		return err // not locked: another was faster
	}
	j.leading.Store(true)
	j.log.Info("leadership acquired")
	j.tell(ctx, Event{Type: jobq.EventLeadershipAcquired})
	sleep := j.sleepOn(conn)
	err = j.newPasses(conn).run(ctx, func(ctx context.Context, duration time.Duration, wakeEpoch float64) error {
		healthy() // only now: the lock alone does not make a pass succeed
		return sleep(ctx, duration, wakeEpoch)
	})
	j.leading.Store(false)
	j.log.Info("leadership lost", "error", err)
	closeConn(conn) // the lock is free before anybody is told
	j.tell(ctx, Event{Type: jobq.EventLeadershipLost, Err: err})
	return err
}

// awaitFreeLock looks every now and then, on a pooled connection and without
// keeping the lock, so that followers cost no connection.
func (j *Janitor) awaitFreeLock(ctx context.Context, pool *pgxpool.Pool, healthy func()) error {
	class, object := j.schema.AdvisoryKey(db.LockJanitor)
	for {
		callCtx, cancel := context.WithTimeout(ctx, taskTimeout)
		lock, err := j.schema.Queries(pool).JanitorLockTx(callCtx, class, object)
		cancel()
		if err != nil || lock.Locked {
			return err
		}
		healthy()
		shortest := time.Duration(lock.ShortestLeaseMs) * time.Millisecond
		if err := sleep(ctx, min(j.config.LeaderRetry, max(shortest/2, leaderRetryMin))); err != nil {
			return err
		}
	}
}

// connect opens the leader's connection: the server ends it when the leader
// is silent, and the connection hears of jobs that are due soon.
func (j *Janitor) connect(ctx context.Context) (*pgx.Conn, error) {
	config := j.client.Pool().Config()
	connectCtx, cancel := context.WithTimeout(ctx, taskTimeout)
	defer cancel()
	conn, err := db.Connect(connectCtx, config, func(config *pgx.ConnConfig) {
		config.RuntimeParams["application_name"] = "jobq-janitor"
		db.RequirePrimary(config)
	})
	if err != nil {
		return nil, err
	}
	// Once more: long may have passed since the pool's connections were looked at.
	if sessions, err := db.FindSessions(connectCtx, j.client.Sessions(), conn, config); sessions != db.SessionsOwn {
		closeConn(conn)
		return nil, errors.Join(errShared, err)
	}
	channel := pgx.Identifier{db.Channel(j.schema.Name(), db.TopicDue)}.Sanitize()
	settings := fmt.Sprintf("set idle_session_timeout = %d; set lock_timeout = '2s'; listen %s", j.config.LeaderTTL.Milliseconds(), channel)
	if _, err := conn.Exec(connectCtx, settings); err != nil {
		closeConn(conn)
		return nil, err
	}
	return conn, nil
}

func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // it is given up either way
}

// takeTurns does passes on pooled connections, each under a lock that ends
// with its transaction.
func (j *Janitor) takeTurns(ctx context.Context, healthy func()) error {
	pool := j.client.Pool()
	if err := db.CheckVersion(ctx, pool, j.schema); err != nil {
		return err
	}
	passes := j.newPasses(pool)
	// A janitor that is stuck or lost in its pass must not keep the lock.
	settings := fmt.Sprintf("set local lock_timeout = '2s'; set local idle_in_transaction_session_timeout = %d", j.config.LeaderTTL.Milliseconds())
	passes.guard = func(ctx context.Context, work func(*db.Queries) error) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, settings); err != nil {
				return err
			}
			queries := j.schema.Queries(tx)
			class, object := j.schema.AdvisoryKey(db.LockJanitor)
			lock, err := queries.JanitorLockTx(ctx, class, object)
			if err != nil || !lock.Locked {
				return err // not locked: another is at it
			}
			return work(queries)
		})
	}
	return passes.run(ctx, func(ctx context.Context, duration time.Duration, _ float64) error {
		healthy()
		return sleep(ctx, duration)
	})
}

func sleep(ctx context.Context, duration time.Duration) error {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
