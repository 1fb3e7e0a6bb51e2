package janitor

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/mutant"
	"github.com/jobq-dev/jobq/internal/sleep"
)

const (
	// schedulesApplication is the application_name of the connection for schedules.
	schedulesApplication = "jobq-schedules"
	// scheduleLookBatch is how many schedules ScheduleLook returns.
	scheduleLookBatch = 100
	// wholeLookEvery is how often the ticker looks at all schedules.
	wholeLookEvery = time.Minute
	// firstLock is how long the query for the first schedule waits for a lock.
	firstLock = time.Second
	// notifiedFactor is how much more rarely a leader asks for the first schedule, at least once a
	// minute. It is notified of changes, so it asks only for changes without a notification.
	notifiedFactor = 6
)

// ticker fires schedules when they are due. It works beside the recovery, on a
// connection of its own: an insert of a job runs the application's triggers, and
// what those wait for must not keep a lease from being reaped.
//
// While there is no schedule, it only asks the database for the first one, once in a scan
// interval. A leader is notified when somebody changes a schedule, also while it recovers
// jobs, and so asks a sixth as often; and not at all while the housekeeper finds that there is
// none (ChoresFind). When there is a schedule, the ticker knows the next
// tick and wakes for it, and looks at all schedules once a minute. A janitor that does not
// lead asks how late the first schedule is, and fires schedules while that is overdue.
type ticker struct {
	janitor *Janitor
	wake    chan struct{} // of size 1

	mu sync.Mutex
	// guarded by mu
	noneAt    time.Time // when the housekeeper has found no schedule; zero: it has found one, or has not looked since changedAt
	changedAt time.Time // when somebody last told of a change

	// The rest belongs to the ticker's goroutine.
	plan        time.Time // when it is to look next; zero: now
	from        time.Time // where a look begins, by the server's clock; zero: from the start
	rescueUntil time.Time // until when it works although this janitor does not lead
	looked      time.Time // when it last looked
	own         *pgx.Conn // its own connection; nil for none
	wholeAt     time.Time // when it last looked at all schedules; zero: it knows of no schedule
	stuck       int       // passes in a row in which a schedule that is due was locked
	// atOnce limits how many ticks of a schedule one statement makes. When a statement takes too
	// long, the limit is half as many ticks as it had. Each success raises it again.
	atOnce map[string]int
}

func newTicker(j *Janitor) *ticker {
	return &ticker{janitor: j, wake: make(chan struct{}, 1), atOnce: map[string]int{}}
}

// run fires schedules until the context ends.
func (t *ticker) run(ctx context.Context) {
	defer t.disconnect()
	backoff := db.Backoff{Max: errorBackoffMax}
	away := false
	for t.sleep(ctx) {
		err := t.step(ctx)
		if err == nil {
			backoff.Reset()
			away = false
			continue
		}
		t.disconnect()
		if ctx.Err() == nil && !away {
			away = true
			t.janitor.log.Warn("schedules interrupted, trying on", "error", err)
		}
		if backoff.Wait(ctx) != nil {
			return
		}
		t.plan = time.Time{}
	}
}

// step fires what is due, if that is this janitor's task and there is a schedule.
func (t *ticker) step(ctx context.Context) error {
	defer func() { t.looked = time.Now() }()
	works := t.works()
	if works && !t.wholeAt.IsZero() {
		return t.pass(ctx)
	}
	t.rest()
	if until := t.noneUntil(); works && t.janitor.elects() && time.Now().Before(until) {
		t.plan = until
		return nil
	}
	callCtx, cancel := context.WithTimeout(ctx, taskTimeout)
	defer cancel()
	in, found, err := t.janitor.schema.FirstSchedule(callCtx, t.janitor.pool(), firstLock)
	if err != nil || !found {
		return err
	}
	if bound := t.janitor.neglectBound(); !works && -in > bound && mutant.Rescues() {
		t.rescueUntil = time.Now().Add(neglectShare * bound)
		works = true
	}
	if !works {
		return nil
	}
	return t.pass(ctx)
}

// works says whether this janitor fires schedules. It would be correct if all janitors
// did. The limit only keeps them from all trying.
func (t *ticker) works() bool {
	return !t.janitor.elects() || t.janitor.leading.Load() || time.Now().Before(t.rescueUntil)
}

// rest makes the ticker ask only for the first schedule, and seldom if this janitor leads or
// follows. There are many followers, and a leader is notified.
func (t *ticker) rest() {
	t.disconnect()
	t.from, t.wholeAt, t.stuck = time.Time{}, time.Time{}, 0
	clear(t.atOnce)
	config := t.janitor.config
	every := max(config.ScanInterval, stuckDelay)
	switch {
	case t.janitor.leading.Load():
		every = max(every, min(notifiedFactor*every, wholeLookEvery))
	case t.janitor.elects():
		every = jitter(max(config.LeaderRetry, min(config.ScanInterval, t.janitor.neglectBound())))
	}
	t.plan = time.Now().Add(every)
}

// sleep waits for the plan, or until it is woken. It says whether to go on.
func (t *ticker) sleep(ctx context.Context) bool {
	timer := time.NewTimer(time.Until(t.plan))
	defer timer.Stop()
	wake := t.wake
	if t.stuck > 0 {
		wake = nil // it tries again soon anyway
	}
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	case <-wake:
	}
	return sleep.For(ctx, t.untilWoken()) == nil
}

// untilWoken is how long the ticker still waits when it is woken, because anybody can send
// notifications, as often as they like. It waits longer while it has no connection of its
// own: then there is no schedule, or no leader is elected.
func (t *ticker) untilWoken() time.Duration {
	rest := stuckDelay
	if t.own == nil {
		rest = stuckDelayMax
	}
	return rest - time.Since(t.looked)
}

// changed wakes the ticker: somebody has changed a schedule, or this janitor has begun or
// ceased to lead.
func (t *ticker) changed() {
	t.mu.Lock()
	t.noneAt, t.changedAt = time.Time{}, time.Now()
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default: // it is woken already
	}
}

// found is told by the housekeeper whether there was a schedule, in the answer to a question that was sent at that time.
func (t *ticker) found(sent time.Time, some bool) {
	t.mu.Lock()
	isNews := some && !t.noneAt.IsZero()
	switch {
	case some:
		t.noneAt = time.Time{}
	case sent.After(t.changedAt):
		t.noneAt = sent
	}
	t.mu.Unlock()
	if isNews {
		t.changed()
	}
}

// noneUntil is until when the ticker need not ask whether there is a schedule.
func (t *ticker) noneUntil() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.noneAt.IsZero() {
		return time.Time{}
	}
	return t.noneAt.Add(wholeLookEvery)
}

func (t *ticker) disconnect() {
	if t.own != nil {
		db.Close(t.own, db.CloseTimeout)
		t.own = nil
	}
}

// session is the ticker's own connection, or the pool if no leader is elected: then many
// janitors fire schedules, and none of them needs to keep a connection.
func (t *ticker) session(ctx context.Context) (session, error) {
	if !t.janitor.elects() {
		t.disconnect()
		return t.janitor.pool(), nil
	}
	if t.own == nil || t.own.IsClosed() {
		t.disconnect()
		own, err := t.janitor.connect(ctx, schedulesApplication)
		if err != nil {
			return nil, err
		}
		t.own = own
	}
	return t.own, nil
}

// pass fires all schedules that are due, and plans the next one. A schedule that
// somebody has locked is passed over, and tried again soon:
//
//	12:00:00.00  a, b and c are due: a and c fire, b is locked
//	12:00:00.02  a look finds b, which is locked still; then 40 ms later, 80 ms,
//	             at most 1 s, or when another one is due
//
// A look begins 2 s before the time of the last one, as that of dueJobs does. A change in a
// transaction that took longer is found within a minute, by a look at all schedules.
func (t *ticker) pass(ctx context.Context) error {
	on, err := t.session(ctx)
	if err != nil {
		return err
	}
	look := &look{ticker: t, on: on, queries: t.janitor.schema.Queries(on)}
	whole := time.Since(t.wholeAt) >= wholeLookEvery
	if whole {
		if err := look.rewind(ctx); err != nil {
			return err
		}
		t.from = time.Time{}
	}
	if err := look.walk(ctx); err != nil {
		return err
	}
	if whole && !look.found {
		t.rest()
		return nil
	}
	now := time.Now()
	if whole {
		t.wholeAt = now
	}
	next := earlier(t.wholeAt.Add(wholeLookEvery), now.Add(t.janitor.config.ScanInterval)) // nobody may tell of a change
	if !look.next.IsZero() {
		next = earlier(next, look.received.Add(look.next.Sub(look.lookedAt)))
	}
	if look.locked {
		next = earlier(next, now.Add(delay(t.stuck)))
		t.stuck++
	} else {
		t.stuck = 0
		if !look.began.IsZero() {
			t.from = look.began.Add(-lateCommit)
		}
	}
	t.plan = next
	return nil
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// look is one look at the schedules that are due.
type look struct {
	ticker   *ticker
	on       session
	queries  *db.Queries
	began    time.Time // by the server's clock, as next and lookedAt
	next     time.Time // the earliest tick that is still to come; zero: none
	lookedAt time.Time
	received time.Time // when the answer of lookedAt came, by this machine's clock
	found    bool      // a schedule
	locked   bool      // one that is due was
}

// rewind is for a clock that was set back.
func (l *look) rewind(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, taskTimeout)
	defer cancel()
	rewound, err := l.queries.ScheduleRewind(ctx)
	if err == nil && rewound > 0 {
		l.ticker.janitor.log.Warn("the clock was set back: schedules go on from two minutes ago", "count", rewound)
	}
	return err
}

// walk fires what is due, in the order in which it is.
func (l *look) walk(ctx context.Context) error {
	after, name := db.DueFrom(l.ticker.from), ""
	for {
		rows, err := l.page(ctx, after, name)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if l.began.IsZero() {
				l.began = row.LookedAt.Time
			}
			l.found, l.lookedAt = true, row.LookedAt.Time
			if row.DueAt.Time.After(row.LookedAt.Time) {
				l.wakeFor(row.DueAt.Time)
				return nil
			}
			if err := l.fire(ctx, row); err != nil {
				return err
			}
		}
		if len(rows) < scheduleLookBatch {
			return nil
		}
		last := rows[len(rows)-1]
		after, name = last.DueAt, last.Name
	}
}

func (l *look) page(ctx context.Context, after pgtype.Timestamptz, name string) ([]db.ScheduleLookRow, error) {
	ctx, cancel := context.WithTimeout(ctx, taskTimeout)
	defer cancel()
	rows, err := l.queries.ScheduleLook(ctx, after, name)
	l.received = time.Now()
	return rows, err
}

// wakeFor notes a tick that is still to come.
func (l *look) wakeFor(tick time.Time) {
	if l.next.IsZero() || tick.Before(l.next) {
		l.next = tick
	}
}

// fire fires one schedule. If the schedule does not work, fire stores the error in its row, and
// the others go on. fire returns an error only for trouble with the connection.
func (l *look) fire(ctx context.Context, row db.ScheduleLookRow) error {
	j := l.ticker.janitor
	plan, err := planFires(row)
	if err != nil {
		return l.failed(ctx, row, err, againIn(row))
	}
	planned := len(plan.ticks)
	plan.cut(l.ticker.atOnce[row.Name], row.LookedAt.Time)
	callCtx, cancel := context.WithTimeout(ctx, j.tickLimits.statement+taskTimeout)
	defer cancel()
	jobs, fired, err := j.schema.FireSchedule(callCtx, l.on, db.Fire{
		Name: row.Name, Revision: row.Revision, CursorAt: row.CursorAt.Time, Ticks: plan.ticks, LookedAt: plan.until, DueAt: plan.next,
		Statement: j.tickLimits.statement, Lock: j.tickLimits.lock,
	})
	if err != nil {
		rest := againIn(row)
		if isStatementTimeout(err) && len(plan.ticks) > 1 {
			l.ticker.atOnce[row.Name] = len(plan.ticks) / 2
			rest = tickRest // fewer may do
		}
		return l.failed(ctx, row, err, rest)
	}
	if !fired { // or another janitor was faster; the next look tells the two apart
		l.locked = true
		return nil
	}
	if len(plan.ticks) == planned {
		delete(l.ticker.atOnce, row.Name)
	} else {
		l.ticker.atOnce[row.Name] += len(plan.ticks)/4 + 1
	}
	if plan.next != nil {
		l.wakeFor(*plan.next)
	}
	if len(plan.ticks) > 0 {
		j.log.Debug("schedule fired", "schedule", row.Name, "ticks", len(plan.ticks), "job_ids", jobs)
	}
	if !plan.missed.IsZero() {
		j.log.Warn("ticks of a schedule were left out: too late, or too many", "schedule", row.Name, "first", plan.missed)
	}
	return nil
}

// againIn is how long a schedule rests after another failure.
func againIn(row db.ScheduleLookRow) time.Duration {
	return min(tickRest<<min(row.Failures, 10), tickRestMax)
}

// failed stores in a schedule's row why it does not work, and reports it once.
func (l *look) failed(ctx context.Context, row db.ScheduleLookRow, err error, againIn time.Duration) error {
	j := l.ticker.janitor
	if ctx.Err() != nil || !db.IsAnswer(err) && !isBroken(err) {
		return err
	}
	text := failureText(err)
	callCtx, cancel := context.WithTimeout(ctx, taskTimeout)
	defer cancel()
	kept, recordErr := l.queries.ScheduleFail(callCtx, db.ScheduleFailParams{
		Error: text, AgainIn: db.Interval(againIn), Name: row.Name, Revision: row.Revision,
	})
	if recordErr != nil {
		return fmt.Errorf("keep the error of schedule %q: %w", row.Name, recordErr)
	}
	l.wakeFor(row.LookedAt.Time.Add(againIn))
	l.locked = l.locked || kept == 0
	if row.Error != text {
		j.tellOfSchedule(ctx, row.Name, text, againIn)
	}
	return nil
}
