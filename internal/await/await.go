// Package await waits for jobs to end: all that a process waits for, over one
// connection that listens and with few statements, however many wait.
package await

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq/internal/db"
)

// The states of jobs that are not there, as db.EndRead has them.
const (
	StateGone    = "gone"    // there was such a job, or there is going to be: its enqueue is not committed
	StateUnknown = "unknown" // no job ever had the id
)

// Waiters are all who wait by one client. The first to come starts a session, and the
// last to leave ends it: while nobody waits there is no connection and no goroutine. Nor
// is there a connection that listens where the first look finds that the jobs have ended.
type Waiters struct {
	pool   *pgxpool.Pool
	direct *pgxpool.Config // for listening; nil: as the pool
	schema *db.Schema

	mu sync.Mutex
	// guarded by mu
	holds    int      // how many need the session
	current  *session // nil while holds is 0
	listened bool     // a session has found that notifications arrive, and need not be tested again
}

// New returns waiters that nobody has joined yet. They listen by direct, if it is not nil.
func New(pool *pgxpool.Pool, direct *pgxpool.Config, schema *db.Schema) *Waiters {
	return &Waiters{pool: pool, direct: direct, schema: schema}
}

// Hold keeps the session alive until the function that it returns is called. Whoever
// is about to enqueue a job and to wait for it calls it first, so that the connection
// is made meanwhile.
func (w *Waiters) Hold() (release func(), err error) {
	s, err := w.hold()
	if err != nil {
		return nil, err
	}
	s.expect()
	s.signal()
	return w.release, nil
}

// Wait returns how the job has ended, or its StateGone or StateUnknown. A new job, which
// was enqueued a moment ago, is there and has probably not ended: that saves a look.
func (w *Waiters) Wait(ctx context.Context, id int64, isNew bool) (db.EndReadRow, error) {
	s, err := w.hold()
	if err != nil {
		return db.EndReadRow{}, err
	}
	defer w.release()
	waiting := s.join(id, isNew)
	defer s.leave(waiting)
	select {
	case <-waiting.done:
	case <-ctx.Done():
		select {
		case <-waiting.done:
		default:
			return db.EndReadRow{}, context.Cause(ctx)
		}
	}
	return waiting.row, waiting.err
}

func (w *Waiters) hold() (*session, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current == nil {
		s, err := newSession(w, w.listened)
		if err != nil {
			return nil, err
		}
		w.current = s
	}
	w.holds++
	return w.current, nil
}

func (w *Waiters) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.holds--; w.holds == 0 {
		w.current.cancel()
		w.current = nil
	}
}

// hasListened notes that notifications arrive.
func (w *Waiters) hasListened() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listened = true
}
