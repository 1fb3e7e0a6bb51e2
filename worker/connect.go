package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// connectUnlessHalted is connect, which the worker's own decision to end cuts short
// as well as the end of the context.
func (w *Worker) connectUnlessHalted(ctx context.Context) (connected bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-ctx.Done():
		case <-w.halt.begun:
			cancel()
		}
	})
	defer watching.Wait()
	defer cancel()
	return w.connect(ctx)
}

// connect makes the worker's own pool, and waits for the database and its
// settings. A database that is away is waited for; one with the wrong tables is
// an error. Without either it is not connected when the worker was asked to stop
// before there was anything to do.
func (w *Worker) connect(ctx context.Context) (connected bool, err error) {
	config := w.client.Pool().Config()
	config.MinConns, config.MinIdleConns = 0, 0
	config.MaxConns = int32(2*len(w.queues)*(1+len(w.kindSlots()))) + 10 // #nosec G115 -- two a queue; leases, cancelled jobs, progress, output, heartbeat, aged priorities, digests, outcomes of claims, and two for what handlers store
	config.ConnConfig.RuntimeParams["application_name"] = "jobq-worker"
	db.RequirePrimary(config.ConnConfig)
	w.schema.Protect(config)
	w.schema.NoticeLoss(config, lossTimeout)
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), config)
	if err != nil {
		return false, fmt.Errorf("worker: %w", err)
	}
	w.pool, w.queries = pool, w.schema.Queries(pool)
	err = db.Retry(ctx, func(ctx context.Context) error {
		err := w.prepare(ctx)
		if db.IsTransient(err) {
			w.databaseTrouble(err)
		}
		return err
	})
	if err != nil {
		pool.Close()
		if ctx.Err() != nil {
			return false, nil
		}
		return false, fmt.Errorf("worker: %w", err)
	}
	w.databaseAnswered()
	return true, nil
}

// lossTimeout is after how long the server gives up a connection whose worker has
// vanished, with the leases that it has locked there, and the worker one whose server has.
const lossTimeout = 20 * time.Second

// findSessions looks for a pooler that shares sessions. Where there is one, or
// may be one, statements are not prepared; where there is one, nothing listens by it.
func (w *Worker) findSessions(ctx context.Context) error {
	if w.sessions != "" { // and something after it has failed
		return nil
	}
	sessions, err := w.schema.FindSessions(ctx, w.pool)
	w.sessions = sessions
	switch {
	case sessions == db.SessionsOwn:
		w.pool.Reset() // what is opened from now on notices the loss of the server: see Schema.NoticeLoss
		return nil
	case sessions == "":
		return err
	case err != nil:
		w.log.Warn("sessions may be shared by a pooler: statements are not prepared", "reason", err)
	case w.client.Listen() != nil:
		w.log.Info("sessions are shared by a pooler: statements are not prepared; notifications come by a direct connection")
	default:
		w.unnotified.Store(true)
		w.log.Warn("sessions are shared by a pooler, as PgBouncer does in transaction mode: statements are not prepared, nothing listens and jobs are found by polling; give jobq a direct connection for wake-ups",
			"poll", w.config.PollInterval)
	}
	w.pool.Reset()
	return nil
}

// countConnections finds out how many connections to the server the worker may open, for jobq doctor: those of
// its own pool, those of the caller's, which handlers use, and the one that listens. Behind a pooler
// nobody knows.
func (w *Worker) countConnections(ctx context.Context) error {
	conn, err := w.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	direct, err := db.IsDirect(ctx, conn.Conn())
	if err != nil || !direct {
		return err
	}
	w.connectionsMax = pgtype.Int4{Int32: w.pool.Config().MaxConns + w.client.Pool().Config().MaxConns, Valid: true}
	if !w.unnotified.Load() {
		w.connectionsMax.Int32++
	}
	return nil
}

// prepare does what comes before the first claim. Each call to the database has
// a deadline, after which it is trouble that is told of, and tried again: a worker
// that starts must not wait for ever, silently.
func (w *Worker) prepare(ctx context.Context) error {
	check := func(ctx context.Context) error { return db.CheckVersion(ctx, w.pool, w.schema) }
	for _, call := range []func(context.Context) error{check, w.checkListen, w.findSessions, w.countConnections, w.storeLease, w.register} {
		if err := bounded(ctx, call); err != nil {
			return err
		}
	}
	return w.reconcile(ctx)
}

// checkListen refuses a direct connection that leads to another database: such a worker
// would never hear of a job.
func (w *Worker) checkListen(ctx context.Context) error {
	if w.config.PollOnly {
		return nil
	}
	return db.CheckListen(ctx, w.client.Listen(), w.pool)
}

// bounded calls the function with the deadline that a call to the database has.
func bounded(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, exchangeTimeoutMax)
	defer cancel()
	return call(ctx)
}

// storeLease writes the lease that the configuration asks for. The audit says that
// the worker changed it.
func (w *Worker) storeLease(ctx context.Context) error {
	if w.config.Lease == 0 {
		return nil
	}
	change, err := json.Marshal(map[string]string{"lease": db.IntervalText(w.config.Lease)})
	if err != nil {
		return err
	}
	for name := range w.queues {
		if _, err := w.queries.QueueSet(ctx, w.id, name, change); err != nil {
			return dberror.Wrap(w.schema, fmt.Sprintf("set queue %q", name), err)
		}
	}
	return nil
}

// databaseTrouble reports that a call has failed: once as a warning for each
// time that the database goes away, and in detail at debug level.
func (w *Worker) databaseTrouble(err error) {
	if w.schema.NoteShared(err) || db.IsStale(err) {
		w.pool.Reset() // its connections prepare statements where they must not; or, whoever is the primary now: new connections find it
	}
	if !w.away.Swap(true) {
		w.log.Warn("database call failed, trying on", "error", err)
		return
	}
	w.log.Debug("database call failed", "error", err)
}

func (w *Worker) databaseAnswered() {
	if w.away.Load() && w.away.Swap(false) {
		w.log.Info("database answers again")
	}
}
