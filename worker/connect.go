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

// connectUnlessHalted is connect. It also stops when the worker itself decides to end.
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

// connect makes the worker's own pool and does what comes before the first claim: see prepare.
// While the database is away it waits. It returns an error when the tables do not fit this
// build, and false without an error when the context has ended first.
func (w *Worker) connect(ctx context.Context) (connected bool, err error) {
	config := w.client.Pool().Config()
	config.MinConns, config.MinIdleConns = 0, 0
	// Two for each queue, and one each for leases, cancelled jobs, progress, output, heartbeats, aged priorities, digests and
	// the outcomes of claims. Handlers that store something, and the searches of unanswered.go, batch.go and setapart.go, share two more.
	config.MaxConns = int32(2*len(w.queues)*(1+len(w.kindSlots()))) + 10 // #nosec G115 -- small
	config.ConnConfig.RuntimeParams["application_name"] = "jobq-worker"
	db.RequirePrimary(config.ConnConfig)
	w.schema.Protect(config)
	w.schema.Pin(config)
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

// lossTimeout is after how long either end gives up a connection whose other end has vanished.
// The server then also unlocks the leases that the worker had locked there.
const lossTimeout = 20 * time.Second

// findSessions looks for a pooler that shares sessions. If there is one, or may be one, statements
// are not prepared. If there is one, the worker does not listen through it.
func (w *Worker) findSessions(ctx context.Context) error {
	if w.sessions != "" { // found by an earlier try of prepare, which failed after it
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

// countConnections computes how many connections to the server the worker may open, for jobq
// doctor: those of its own pool, those of the client's pool, which handlers use, the one that
// listens, and those of the janitor inside. Behind a pooler the number is not known.
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
	if w.janitor.janitor != nil {
		w.connectionsMax.Int32 += janitorConnections
	}
	return nil
}

// prepare does what comes before the first claim. Each call to the database has a deadline. A
// call that takes longer is logged and tried again, so that a worker never waits without a
// message when it starts.
func (w *Worker) prepare(ctx context.Context) error {
	check := func(ctx context.Context) error { return db.CheckVersion(ctx, w.pool, w.schema) }
	for _, call := range []func(context.Context) error{check, w.checkListen, w.findSessions, w.countConnections, w.readRunKey, w.storeLease, w.register} {
		if err := bounded(ctx, call); err != nil {
			return err
		}
	}
	return w.reconcile(ctx)
}

// checkListen refuses a direct connection to another database: no notification of a job would
// ever arrive there.
func (w *Worker) checkListen(ctx context.Context) error {
	if w.config.PollOnly {
		return nil
	}
	return db.CheckListen(ctx, w.client.Listen(), w.pool)
}

// bounded calls the function with a deadline of exchangeTimeoutMax.
func bounded(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, exchangeTimeoutMax)
	defer cancel()
	return call(ctx)
}

// readRunKey reads the key with which the worker makes the run tokens of its programs and steps.
func (w *Worker) readRunKey(ctx context.Context) (err error) {
	w.runKey, err = w.queries.RunKey(ctx)
	return err
}

// storeLease stores Config.Lease, if it is set, as the lease of each queue of the worker. The audit
// names the worker as the one who changed it.
func (w *Worker) storeLease(ctx context.Context) error {
	if w.config.Lease == 0 {
		return nil
	}
	change, err := json.Marshal(map[string]string{"lease": db.IntervalText(w.config.Lease)})
	if err != nil {
		return err
	}
	for name := range w.queues {
		if _, err := w.queries.QueueEnsure(ctx, w.id, name, change); err != nil {
			return dberror.Wrap(w.schema, fmt.Sprintf("set queue %q", name), dberror.NeedRole(db.RoleAdmin, err))
		}
	}
	return nil
}

// databaseTrouble reports that a call has failed: once as a warning for each
// time that the database goes away, and in detail at debug level.
func (w *Worker) databaseTrouble(err error) {
	if w.schema.NoteShared(err) || db.IsStale(err) {
		// Either its connections prepare statements where they must not, or new ones are needed to find the current primary.
		w.pool.Reset()
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
