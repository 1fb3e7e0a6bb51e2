package janitor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/mutant"
	"github.com/jobq-dev/jobq/internal/sleep"
	"github.com/jobq-dev/jobq/monitor"
)

// neglectShare times the bound is how long a janitor works without the lock after it has seen that the
// session which has the lock does nothing.
const neglectShare = 10

// neglect is what a janitor knows of work that is overdue although a session has the lock. Anybody who
// may log in can take the lock, and a pooler can keep it in a session. The work is correct
// without the lock.
type neglect struct {
	janitor *Janitor
	// bound is the latest that work is done when a leader dies: its session ends after
	// LeaderTTL, and followers look every LeaderRetry.
	bound time.Duration
	until time.Time // until then the janitor works without the lock
}

func (j *Janitor) newNeglect() *neglect {
	return &neglect{janitor: j, bound: j.neglectBound()}
}

func (j *Janitor) neglectBound() time.Duration { return j.config.LeaderTTL + 2*j.config.LeaderRetry }

// lasts says whether the janitor still works without the lock.
func (n *neglect) lasts() bool { return time.Now().Before(n.until) }

// notice begins the time without the lock, and reports once which session has the lock.
func (n *neglect) notice(ctx context.Context, late time.Duration, role db.LockRole) {
	if n.lasts() {
		return
	}
	n.until = time.Now().Add(neglectShare * n.bound)
	n.janitor.warnOfHolder(ctx, "work is overdue: doing it beside the session that has the janitor's lock", late, role)
}

// warnOfHolder logs and records that work is late, and which session has the lock.
func (j *Janitor) warnOfHolder(ctx context.Context, message string, late time.Duration, role db.LockRole) {
	class, object := j.schema.AdvisoryKey(role)
	ctx, cancel := context.WithTimeout(ctx, taskTimeout)
	defer cancel()
	holder, err := j.schema.Queries(j.pool()).LockHolder(ctx, int64(class), int64(object))
	late = late.Round(time.Millisecond)
	if err != nil {
		if !errors.Is(err, pgx.ErrNoRows) {
			j.log.Debug("holder of the lock unknown", "error", err)
		}
		j.log.Warn(message, "overdue", late, "holder", "none")
		j.tell(ctx, Event{Type: monitor.EventError, Err: fmt.Errorf("%s: overdue for %s, no session has the lock", message, late)})
		return
	}
	j.log.Warn(message, "overdue", late, "holder_pid", holder.Pid.Int32, "holder_application", holder.Application, "holder_address", holder.Address)
	j.tell(ctx, Event{Type: monitor.EventError, Err: fmt.Errorf("%s: overdue for %s, session %d (%s, %s) has the lock",
		message, late, holder.Pid.Int32, holder.Application, holder.Address)})
}

// watch looks for overdue work while this janitor does not lead, and does it. So recovery depends
// neither on the leader's lock nor on the session that has it. Of several janitors that watch, one
// at a time does the work, by a lock of its own.
func (j *Janitor) watch(ctx context.Context) {
	pool := j.pool()
	neglect := j.newNeglect()
	passes := j.newPasses(pool)
	// Until unlocked it works without the lock of the rescue, too. Otherwise it would have to be refused for as long again
	// after each step, and the kind of work that comes last would never be done.
	var unlocked time.Time
	passes.step = func(ctx context.Context, work func(context.Context, session) error) (bool, error) {
		if passes.refused > 0 && time.Since(passes.refusedSince) > neglect.bound {
			unlocked = time.Now().Add(neglectShare * neglect.bound)
		}
		return j.turn(ctx, pool, stepLimits, db.LockRescue, time.Now().Before(unlocked), work)
	}
	for rest := j.config.LeaderRetry; sleep.For(ctx, jitter(rest)) == nil; {
		passes.planned = rest
		began := time.Now()
		if !j.leading.Load() && mutant.Rescues() {
			if err := j.rescue(ctx, passes, neglect); err != nil && ctx.Err() == nil {
				j.log.Debug("look for overdue work failed", "error", err)
			}
		}
		rest = j.config.LeaderRetry
		if !neglect.lasts() { // looks cost something, and there are many followers
			rest = max(rest, min(j.config.ScanInterval, neglect.bound), scanShare*time.Since(began))
		}
	}
}

// rescue does the work that is overdue. It reports the session that has the lock only if it could do
// some of the work: rows that other transactions have locked are not the fault of that session.
func (j *Janitor) rescue(ctx context.Context, passes *passes, neglect *neglect) error {
	next, err := passes.next(ctx)
	if err != nil {
		return err
	}
	late := time.Duration(-next.Ms) * time.Millisecond
	if late <= neglect.bound && !neglect.lasts() {
		return nil
	}
	before := passes.taken
	if err := passes.recover(ctx); err != nil {
		return err
	}
	if late > neglect.bound && passes.taken > before {
		neglect.notice(ctx, late, db.LockJanitor)
	}
	return nil
}
