// Package janitor recovers what dead workers leave and keeps the tables in
// order: it reaps expired leases, makes scheduled jobs available when they are
// due, rolls up stats, makes and drops partitions, and forgets dead workers.
//
// Every task is right however many janitors run: each is one statement that
// checks what it changes and skips rows that others work on. The advisory
// lock only keeps them from doing the same work twice.
package janitor

import (
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
)

// Mode is how janitors share the work.
type Mode string

const (
	// Leader elects one janitor of all by a session lock, held on the very
	// connection that does the work. It needs a direct connection.
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
)

const (
	promoteBatch = 1000
	// A follower looks whether the leader is gone every followerRetry, and more
	// often when leases are short: half of the shortest one, which keeps the
	// recovery within lease and scan when leader and worker die together.
	followerRetry    = 5 * time.Second
	followerRetryMin = 500 * time.Millisecond
	// leaderPing is how long the leader's connection may be silent, and
	// leaderTTL how long the server lets it: a stopped leader loses the lock.
	leaderPing = 10 * time.Second
	leaderTTL  = 30 * time.Second
	// taskTimeout bounds each statement of the janitor.
	taskTimeout = 30 * time.Second
)

// Config changes how a janitor works. The zero value is ready to use.
type Config struct {
	// Mode is Leader, the default, or Any.
	Mode Mode
	// ScanInterval is the longest time between two looks for expired leases;
	// the janitor also wakes at the earliest expiry that it knows of. Default
	// 10 seconds.
	ScanInterval time.Duration
	// ReapBatch is how many leases one statement reaps; while there are more,
	// it goes on. Default 100.
	ReapBatch int
	// Logger is where the janitor writes. Default slog.Default().
	Logger *slog.Logger
}

// Janitor keeps one schema in order. Make one with New and call Run.
type Janitor struct {
	client  *jobq.Client
	config  Config
	schema  *db.Schema
	log     *slog.Logger
	leading atomic.Bool
}

// New returns a janitor for the client's database and schema. It does not talk
// to the database yet. A nil config means the defaults.
func New(client *jobq.Client, config *Config) (*Janitor, error) {
	if config == nil {
		config = &Config{}
	}
	j := &Janitor{client: client, config: *config}
	c := &j.config
	if c.Mode == "" {
		c.Mode = Leader
	}
	if c.Mode != Leader && c.Mode != Any {
		return nil, fmt.Errorf("janitor: mode %q: must be %q or %q", c.Mode, Leader, Any)
	}
	if c.ScanInterval == 0 {
		c.ScanInterval = DefaultScanInterval
	}
	if c.ReapBatch == 0 {
		c.ReapBatch = DefaultReapBatch
	}
	if c.ScanInterval < time.Millisecond || c.ReapBatch < 1 || c.ReapBatch > 10_000 {
		return nil, errors.New("janitor: the scan interval must be at least 1ms and the reap batch 1 to 10000")
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	var err error
	if j.schema, err = db.NewSchema(client.Schema()); err != nil {
		return nil, fmt.Errorf("janitor: %w", err)
	}
	j.log = c.Logger.With("janitor", string(c.Mode))
	return j, nil
}

// Leading says whether this janitor is the leader now.
func (j *Janitor) Leading() bool { return j.leading.Load() }

// Run works until the context ends, and then returns nil. It survives a
// database that goes away. An error is about tables that are missing or newer
// than this build.
func (j *Janitor) Run(ctx context.Context) error {
	work := j.lead
	if j.config.Mode == Any {
		work = j.takeTurns
	}
	backoff := db.Backoff{Max: followerRetry}
	away := false
	for ctx.Err() == nil {
		err := work(ctx, func() {
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
		}
		if err := backoff.Wait(ctx); err != nil {
			break
		}
	}
	return nil
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
	healthy()
	j.leading.Store(true)
	defer j.leading.Store(false)
	j.log.Info("leadership acquired")
	err = j.newPasses(conn).run(ctx, sleepOn(conn))
	j.log.Info("leadership lost", "error", err)
	return err
}

// awaitFreeLock looks every now and then, on a pooled connection and without
// keeping the lock, so that followers cost no connection.
func (j *Janitor) awaitFreeLock(ctx context.Context, pool *pgxpool.Pool, healthy func()) error {
	class, object := j.schema.AdvisoryKey(db.LockJanitor)
	for {
		callCtx, cancel := context.WithTimeout(ctx, followerRetry)
		lock, err := j.schema.Queries(pool).JanitorLockTx(callCtx, class, object)
		cancel()
		if err != nil || lock.Locked {
			return err
		}
		healthy()
		shortest := time.Duration(lock.ShortestLeaseMs) * time.Millisecond
		if err := sleep(ctx, min(followerRetry, max(shortest/2, followerRetryMin))); err != nil {
			return err
		}
	}
}

// connect opens the leader's connection: the server ends it when the leader
// is silent, and the connection hears of jobs that are due soon.
func (j *Janitor) connect(ctx context.Context) (*pgx.Conn, error) {
	config := j.client.Pool().Config().ConnConfig.Copy()
	config.RuntimeParams["application_name"] = "jobq-janitor"
	connectCtx, cancel := context.WithTimeout(ctx, taskTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(connectCtx, config)
	if err != nil {
		return nil, err
	}
	channel := pgx.Identifier{db.Channel(j.schema.Name(), db.TopicDue)}.Sanitize()
	settings := fmt.Sprintf("set idle_session_timeout = %d; set lock_timeout = '2s'; listen %s", leaderTTL.Milliseconds(), channel)
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
	passes.guard = func(ctx context.Context, work func(*db.Queries) error) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "set local lock_timeout = '2s'"); err != nil {
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
