package janitor

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/monitor"
)

const (
	// choresApplication is the application_name of the chores' connections.
	choresApplication = "jobq-chores"
	// strangerShare is for how many of its periods a chore may stay undone. Then it is
	// done by a janitor that does not lead, or without the chores' lock. For example,
	// "roll up stats" is due every 30 s. When it was last done 10 minutes ago, janitors
	// that do not lead do it, too. When another session has had the chores' lock for
	// that long, it is done without the lock.
	strangerShare = 20
	// choreRestMax is the longest rest after failures.
	choreRestMax = 5 * time.Minute
)

// choreTimes are how long a chore may take, and how long it rests. Tests set shorter ones.
type choreTimes struct {
	limits limits
	// rest is how long a chore that failed rests, twice as long after each
	// failure; lockRest is that of one that did not get a lock: a table's, or that
	// of the chores.
	rest, lockRest time.Duration
	// every replaces the period of each chore; 0: each has its own.
	every time.Duration
	// stands is for how long the history needs no statistics while it does not grow.
	stands time.Duration
}

var defaultChoreTimes = choreTimes{
	// The lock limit is short: while a statement waits for the lock of a whole table, all
	// later statements on the table wait behind it, also those that store results of jobs.
	limits: limits{statement: 30 * time.Second, lock: 100 * time.Millisecond},
	rest:   time.Minute, lockRest: time.Second, stands: historyStands,
}

// housekeeper does the chores beside the recovery, on connections of its own. So an error of a chore
// does not end the leadership or its connection, and a slow chore delays no job.
type housekeeper struct {
	janitor *Janitor
	chores  []*chore
	history *history
	// quiet says that nothing happens: at the last question, no job had ended, and no frequent chore had anything to do.
	quiet bool
	began time.Time

	again    time.Time // when to connect again, after a failure
	failures int       // to connect, since it last succeeded

	refusedSince time.Time // when another session began to have the chores' lock at each try
	told         bool      // it was reported which session that is
}

func newHousekeeper(j *Janitor) *housekeeper {
	h := &housekeeper{janitor: j, history: &history{}, began: time.Now()}
	h.chores = j.allChores(h.history)
	return h
}

// housekeep does chores until the context ends.
func (j *Janitor) housekeep(ctx context.Context) {
	h := newHousekeeper(j)
	for ctx.Err() == nil {
		h.round(ctx)
		timer := time.NewTimer(jitter(h.untilNext()))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-j.choresWake:
		}
		timer.Stop()
	}
}

// dueAt is when a chore is to be done next. A janitor that does not lead does it only after
// strangerShare periods, so that chores are done even if no janitor can lead.
func (h *housekeeper) dueAt(c *chore) time.Time {
	every := h.every(c)
	at := c.done.Add(every)
	if h.quiet && !c.often && h.janitor.choreTimes.every == 0 && !c.done.IsZero() {
		at = c.done.Add(max(every, quietRest))
	}
	if h.janitor.elects() && !h.janitor.leading.Load() {
		if at = c.done; c.done.IsZero() {
			at = h.began
		}
		at = at.Add(strangerShare * every)
	}
	if c.again.After(at) {
		return c.again
	}
	return at
}

func (h *housekeeper) every(c *chore) time.Duration {
	return cmp.Or(h.janitor.choreTimes.every, c.every)
}

func (h *housekeeper) untilNext() time.Duration {
	next := h.dueAt(h.chores[0])
	for _, c := range h.chores[1:] {
		if at := h.dueAt(c); at.Before(next) {
			next = at
		}
	}
	return max(time.Until(later(next, h.again)), stuckDelay)
}

// round does a step of each chore that is due, and repeats that while there are more steps. It ends
// when it cannot connect: otherwise each chore would wait for a connection and report the
// failure.
func (h *housekeeper) round(ctx context.Context) {
	var conn *pgx.Conn
	defer func() {
		if conn != nil {
			db.Close(conn, db.CloseTimeout)
		}
	}()
	if time.Now().Before(h.again) {
		return // woken early, since this janitor leads now
	}
	h.skipIdle(ctx)
	for more := true; more && ctx.Err() == nil; {
		more = false
		for _, c := range h.chores {
			if time.Now().Before(h.dueAt(c)) || c.often && !c.found { // the next round asks
				continue
			}
			if conn == nil {
				var err error
				if conn, err = h.janitor.connect(ctx, choresApplication); err != nil {
					h.notConnected(ctx, err)
					return
				}
				h.failures = 0
			}
			more = h.step(ctx, c, conn) || more
			if conn.IsClosed() { // close it, since its session may still have the chores' lock
				db.Close(conn, db.CloseTimeout)
				conn = nil
			}
		}
	}
}

// step does a step of a chore, and says whether there is another. While another session has the chores'
// lock, it leaves the chore to that session, for at most strangerShare periods.
func (h *housekeeper) step(ctx context.Context, c *chore, conn *pgx.Conn) (more bool) {
	j := h.janitor
	now, every := time.Now(), h.every(c)
	undone := now.Sub(c.done)
	if c.done.IsZero() {
		undone = now.Sub(h.began)
	}
	force := undone > strangerShare*every
	ran, more, err := h.try(ctx, c, conn, force)
	switch {
	case err != nil:
		h.failed(ctx, c, conn, err)
		return false
	case !ran:
		c.again = time.Now().Add(min(every, growing(j.choreTimes.lockRest, c.refusals)))
		c.refusals++
		h.refused(ctx, c, conn)
		return false
	}
	c.refusals = 0
	h.refusedSince, h.told = time.Time{}, false
	if more {
		c.failures = 0
		return true
	}
	h.finished(c)
	return false
}

// finished notes that nothing is left to do of a chore for now.
func (h *housekeeper) finished(c *chore) {
	c.failures, c.refusals, c.found = 0, 0, false
	c.done = time.Now()
	h.janitor.tally.did(c)
}

// refused reports once which session has the chores' lock. It does so when each try has found the lock
// taken for longer than one step of another janitor may last. If the session is a janitor's, it
// may just have much to do, and that is no error. No other session should have the lock.
func (h *housekeeper) refused(ctx context.Context, c *chore, conn *pgx.Conn) {
	j := h.janitor
	if h.refusedSince.IsZero() {
		h.refusedSince = time.Now()
	}
	waited := time.Since(h.refusedSince)
	if h.told || waited <= j.choreTimes.limits.statement {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, taskTimeout)
	defer cancel()
	class, object := j.schema.AdvisoryKey(db.LockChores)
	holder, err := j.schema.Queries(conn).LockHolder(ctx, int64(class), int64(object))
	if err != nil {
		j.log.Debug("holder of the chores' lock unknown", "error", err) // or nobody by now; asked again at the next try
		return
	}
	h.told = true
	level, message := slog.LevelInfo, "chores wait for another janitor's"
	if holder.Application != choresApplication {
		level, message = slog.LevelWarn, "chores wait for the session that has their lock"
		j.tell(ctx, Event{Type: monitor.EventError, Err: fmt.Errorf("%s: for %s, session %d (%s, %s)",
			message, waited.Round(time.Millisecond), holder.Pid.Int32, holder.Application, holder.Address)})
	}
	j.log.Log(ctx, level, message, "chore", c.name, "waited", waited.Round(time.Millisecond), "at_most", strangerShare*h.every(c),
		"holder_pid", holder.Pid.Int32, "holder_application", holder.Application, "holder_address", holder.Address)
}

func (h *housekeeper) try(ctx context.Context, c *chore, conn *pgx.Conn, force bool) (ran, more bool, err error) {
	j := h.janitor
	limits := j.choreTimes.limits
	// The server ends a statement that takes too long. The context ends later, and the
	// connection with it, only if the server does not answer.
	ctx, cancel := context.WithTimeout(ctx, limits.statement+taskTimeout)
	defer cancel()
	unlocked := false
	ran, err = j.turn(ctx, conn, limits, db.LockChores, force, func(ctx context.Context, on session) (err error) {
		more, err = c.work(ctx, j.schema.Queries(on))
		unlocked = db.IsLockTimeout(err)
		return err
	})
	// A step that did not get its lock was not committed, and has left the chore's
	// place as it was.
	if err != nil && !unlocked && c.reset != nil {
		c.reset()
	}
	return ran, more, err
}

// failed makes a chore rest, twice as long after each failure, and reports the error. If that is the
// timeout of a lock, it also reports the session that most likely has the lock.
func (h *housekeeper) failed(ctx context.Context, c *chore, conn *pgx.Conn, err error) {
	j := h.janitor
	if ctx.Err() != nil {
		return
	}
	rest := j.choreTimes.rest
	attrs := []any{"chore", c.name, "error", err}
	if db.IsLockTimeout(err) {
		rest = j.choreTimes.lockRest
		attrs = append(attrs, j.tableHolder(ctx, conn)...)
	}
	rest = growing(rest, c.failures)
	c.failures++
	c.again = time.Now().Add(rest)
	j.log.Warn("chore failed", append(attrs, "again_in", rest)...)
	j.tell(ctx, Event{Type: monitor.EventError, Err: fmt.Errorf("%s: %w", c.name, err)})
}

// notConnected makes all chores rest, twice as long after each failure to connect, and reports the
// error.
func (h *housekeeper) notConnected(ctx context.Context, err error) {
	j := h.janitor
	if ctx.Err() != nil {
		return
	}
	rest := growing(j.choreTimes.rest, h.failures)
	h.failures++
	h.again = time.Now().Add(rest)
	j.log.Warn("no connection for chores", "error", err, "again_in", rest)
	j.tell(ctx, Event{Type: monitor.EventError, Err: fmt.Errorf("connect for chores: %w", err)})
}

// growing is how long to rest after a failure that came after so many others: rest, doubled for each,
// at most choreRestMax.
func growing(rest time.Duration, failures int) time.Duration {
	return min(rest<<min(failures, 20), max(choreRestMax, rest))
}

// tableHolder describes the session that has had a lock on one of the tables for
// longest, for the log.
func (j *Janitor) tableHolder(ctx context.Context, conn *pgx.Conn) []any {
	ctx, cancel := context.WithTimeout(ctx, taskTimeout)
	defer cancel()
	holder, err := j.schema.Queries(conn).TableHolder(ctx)
	if err != nil {
		return []any{"holder", "unknown"}
	}
	attrs := []any{"holder_pid", holder.Pid.Int32, "holder_application", holder.Application}
	if holder.XactStart != nil && holder.QueryStart != nil { // this role may see them
		attrs = append(attrs, "holder_transaction_since", holder.XactStart.UTC(), "holder_query_since", holder.QueryStart.UTC())
	}
	return attrs
}
