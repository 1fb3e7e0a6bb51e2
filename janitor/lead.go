package janitor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/sleep"
	"github.com/jobq-dev/jobq/monitor"
)

// lead waits until the lock is free, takes it on a connection of its own, and
// works on that connection until it breaks. Losing the connection loses the
// lock and the work with it.
func (j *Janitor) lead(ctx context.Context, started, healthy func()) error {
	pool := j.pool()
	if err := j.checkVersion(ctx); err != nil {
		return err
	}
	if err := j.recall(ctx); err != nil {
		return err
	}
	started()
	if err := j.awaitFreeLock(ctx, pool, healthy); err != nil {
		return err
	}
	conn, err := j.connectLeader(ctx)
	if err != nil {
		return err
	}
	defer db.Close(conn, db.CloseTimeout)
	locked, err := j.takeLock(ctx, conn)
	if err != nil || !locked {
		return err // not locked: another janitor was faster
	}
	j.leading.Store(true)
	j.wakeChores()
	j.ticker.changed()
	j.log.Info("leadership acquired")
	j.tell(ctx, Event{Type: monitor.EventLeadershipAcquired})
	passes := j.newPasses(conn)
	passes.listens, passes.beats = true, true
	wait := j.sleepOn(conn, passes.notified)
	passes.readFunc = func() { j.readBuffered(conn, passes.notified) }
	passes.step = func(ctx context.Context, work func(context.Context, session) error) (bool, error) {
		return true, work(ctx, conn)
	}
	err = passes.run(ctx, func(ctx context.Context, duration time.Duration, wakeEpoch float64) error {
		healthy() // after a pass, since having the lock does not mean that passes succeed
		return wait(ctx, duration, wakeEpoch)
	})
	j.leading.Store(false)
	j.ticker.changed() // it rests for longer while it leads
	release(conn)      // the lock is free before anybody is told
	if ctx.Err() != nil {
		j.log.Info("leadership released")
		j.tell(ctx, Event{Type: monitor.EventLeadershipReleased})
		return err
	}
	j.log.Info("leadership lost", "error", err)
	j.tell(ctx, Event{Type: monitor.EventLeadershipLost, Err: err})
	return err
}

func (j *Janitor) takeLock(ctx context.Context, conn *pgx.Conn) (locked bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, taskTimeout)
	defer cancel()
	class, object := j.schema.AdvisoryKey(db.LockJanitor)
	return j.schema.Queries(conn).JanitorLock(ctx, class, object)
}

// awaitFreeLock waits until no session has the leader's lock. It tries the lock every LeaderRetry
// on a pooled connection and does not keep it, so that followers hold no connection.
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
		if err := sleep.For(ctx, min(j.config.LeaderRetry, max(shortest/2, leaderRetryMin))); err != nil {
			return err
		}
	}
}

// connectLeader opens the leader's connection. The server ends the connection when the leader sends
// nothing for LeaderTTL, and ends a step that takes too long even if the leader has gone. The
// connection listens for jobs that are due soon and for schedules that were changed.
func (j *Janitor) connectLeader(ctx context.Context) (*pgx.Conn, error) {
	conn, err := j.connectAlone(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, taskTimeout)
	defer cancel()
	channel := func(topic string) string { return pgx.Identifier{db.Channel(j.schema.Name(), topic)}.Sanitize() }
	settings := fmt.Sprintf("set idle_session_timeout = %d; set statement_timeout = %d; set lock_timeout = %d; set default_transaction_isolation = 'read committed'; listen %s; listen %s",
		j.config.LeaderTTL.Milliseconds(), stepLimits.statement.Milliseconds(), stepLimits.lock.Milliseconds(), channel(db.TopicDue), channel(db.TopicSchedule))
	if _, err := conn.Exec(ctx, settings); err != nil {
		db.Close(conn, db.CloseTimeout)
		return nil, err
	}
	return conn, nil
}

// connectAlone opens a connection that has a session to itself: as the pool does, or
// the direct connection.
func (j *Janitor) connectAlone(ctx context.Context) (*pgx.Conn, error) {
	if j.leadsDirectly() {
		conn, err := j.connectDirectly(ctx)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errNoDirect, err)
		}
		j.noDirect = ""
		return conn, nil
	}
	conn, err := j.connect(ctx, "jobq-janitor")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, taskTimeout)
	defer cancel()
	// Check again: the pool's connections may have been checked long ago.
	if sessions, err := db.FindSessions(ctx, j.client.Sessions(), conn, j.pool().Config()); sessions != db.SessionsOwn {
		db.Close(conn, db.CloseTimeout)
		return nil, errors.Join(errShared, err)
	}
	return conn, nil
}

// connectDirectly opens a connection by the client's Config.Listen. It must be to the same database
// as the pool, because the leader changes rows there.
func (j *Janitor) connectDirectly(ctx context.Context) (*pgx.Conn, error) {
	connecting, connected := context.WithTimeout(ctx, directTimeout)
	defer connected()
	direct := j.client.Listen()
	conn, err := j.connectBy(connecting, direct, "jobq-janitor")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, taskTimeout)
	defer cancel()
	err = j.pool().AcquireFunc(ctx, func(pooled *pgxpool.Conn) error { return db.CheckSameDatabase(ctx, conn, pooled.Conn()) })
	if err == nil {
		var sessions db.Sessions
		if sessions, err = db.FindSessions(ctx, db.SessionsAuto, conn, direct); sessions == db.SessionsShared {
			err = errors.Join(errShared, err)
		}
	}
	if err != nil {
		db.Close(conn, db.CloseTimeout)
		return nil, err
	}
	return conn, nil
}

// connect opens a connection of the janitor's own.
func (j *Janitor) connect(ctx context.Context, application string) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, taskTimeout)
	defer cancel()
	return j.connectBy(ctx, j.pool().Config(), application)
}

func (j *Janitor) connectBy(ctx context.Context, to *pgxpool.Config, application string) (*pgx.Conn, error) {
	return db.Connect(ctx, to, func(config *pgx.ConnConfig) {
		config.RuntimeParams["application_name"] = application
		db.RequirePrimary(config)
	})
}

// release gives up the lock and closes its connection. Closing is not enough: a pooler that keeps
// the session would keep the lock.
func release(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = conn.Exec(ctx, "select pg_advisory_unlock_all()") // it may be broken; then the session ends, and the lock with it
	db.Close(conn, db.CloseTimeout)
}

// sleepOn returns a sleepFunc that waits for notifications on the leader's connection. It pings every
// LeaderRenew, so that the server does not end the session: also while others send notifications all the
// time, since these do not count as the leader's. It calls notifiedFunc with the time at
// which a job is due, in seconds since 1970, and tells the ticker of changed schedules.
func (j *Janitor) sleepOn(conn *pgx.Conn, notifiedFunc func(epoch float64)) sleepFunc {
	return func(ctx context.Context, duration time.Duration, wakeEpoch float64) error {
		end := time.Now().Add(duration)
		renewAt := time.Now().Add(j.config.LeaderRenew)
		for {
			now := time.Now()
			switch {
			case !now.Before(end):
				return nil
			case !now.Before(renewAt):
				if err := j.renew(ctx, conn); err != nil {
					return err
				}
				renewAt = now.Add(j.config.LeaderRenew)
			}
			waitCtx, cancel := context.WithTimeout(ctx, min(end.Sub(now), renewAt.Sub(now)))
			notification, err := db.AwaitNotification(waitCtx, conn)
			cancel()
			switch {
			case err == nil:
				if due, isDue := j.handleNotification(notification, notifiedFunc); isDue && due < wakeEpoch {
					return nil
				}
			case ctx.Err() != nil || !pgconn.Timeout(err):
				return err
			}
		}
	}
}

// renew sends something to the server, so that it does not end the leader's session.
func (j *Janitor) renew(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, j.config.LeaderRenew)
	defer cancel()
	return conn.Ping(ctx)
}

// handleNotification handles a notification. If it is of a job, it returns when the job is due, in seconds since
// 1970, and true. If notifications were lost, there may be new schedules, and jobs that are overdue.
func (j *Janitor) handleNotification(notification *pgconn.Notification, notifiedFunc func(epoch float64)) (due float64, isDue bool) {
	if notification == nil {
		j.log.Warn("more notifications came at once than are kept, looking for work instead")
		j.ticker.changed()
		notifiedFunc(0)
		return 0, true
	}
	if notification.Channel == db.Channel(j.schema.Name(), db.TopicSchedule) {
		j.ticker.changed()
		return 0, false
	}
	due, err := strconv.ParseFloat(notification.Payload, 64)
	if err != nil {
		return 0, false // not from jobq
	}
	notifiedFunc(due)
	return due, true
}

// readBuffered handles the notifications that have arrived with the answers of earlier statements,
// without waiting for more.
func (j *Janitor) readBuffered(conn *pgx.Conn, notifiedFunc func(epoch float64)) {
	ended, end := context.WithCancel(context.Background())
	end()
	for {
		notification, err := db.AwaitNotification(ended, conn)
		if err != nil {
			return
		}
		j.handleNotification(notification, notifiedFunc)
	}
}
