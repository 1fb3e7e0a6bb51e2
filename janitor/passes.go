package janitor

import (
	"context"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/monitor"
)

const (
	// stuckDelay is how long the janitor waits before it tries again what it could not do,
	// such as promoting a due job that another session has locked.
	stuckDelay = 20 * time.Millisecond
	// stuckDelayMax is the most that this delay grows to while an expired lease stays
	// locked, because each look for it reads the whole table lease; and while another
	// janitor always has the lock.
	stuckDelayMax = time.Second
	// quarantineTimeout is the longest time that recovery waits for the count of crashes.
	quarantineTimeout = 3 * time.Second
	// restShare is how many times as long as its last pass the janitor rests, at most
	// stuckDelay, when jobs become due in quick succession. So they are promoted in batches.
	restShare = 4
	// scanShare is how many times as long as the last scan of many rows the janitor waits
	// until the next one, unless a lease may end before. So scans take 5 % of the time.
	scanShare = 19
	// leasesRest is the shortest time between two scans that notifications cause.
	leasesRest = time.Second
)

// passes recovers jobs: it reaps and promotes whenever something may be due.
type passes struct {
	janitor *Janitor
	queries *db.Queries // for looks
	// step runs one bounded step of work. It returns ran = false, without an error, when
	// another janitor has the lock.
	step    stepFunc
	leases  leases
	due     dueJobs
	looks   looks
	asleep  asleep
	beats   bool      // its looks say that the janitor lives
	listens bool      // its sleep ends when a job is committed that is due before the planned wake-up: see asleep.go
	woke    time.Time // when this pass began
	// lookedAt is when a look was last answered, by the wall clock, and planned how long the sleep after it was to last.
	lookedAt time.Time
	planned  time.Duration
	aside    aside
	reaped   int   // since the last look that found no more
	unbegun  int   // likewise, of jobs that had not begun, which are not among reaped
	taken    int64 // the total of jobs reaped, promoted and settled
	// readFunc handles the notifications that arrived during the work; nil when none arrive.
	readFunc func()
	// refused is how many steps in a row another session's lock has prevented,
	// and refusedSince when that began.
	refused      int
	refusedSince time.Time
	// overdueFunc is called when work is overdue, with how late the latest of it is.
	overdueFunc func(ctx context.Context, late time.Duration)
}

// stepFunc runs work on a connection, in one transaction or one statement.
type stepFunc func(ctx context.Context, work func(ctx context.Context, on session) error) (ran bool, err error)

// session is a connection or a transaction.
type session interface {
	db.DBTX
	db.Batcher
}

// leases is what the last scan of the table lease has found about when leases end.
type leases struct {
	at    time.Time     // when to scan again
	end   bool          // a lease ends at that time, unless it is extended
	from  time.Time     // when the last scan began
	took  time.Duration // how long the last scan took
	stuck int           // reaps in a row that found an expired lease locked
}

// notified makes the next scan come at once, or leasesRest after the last one: an operator has taken leases away. Anybody
// can send that.
func (l *leases) notified() {
	if soon := l.from.Add(leasesRest); soon.Before(l.at) {
		l.at = soon
	}
}

func (l leases) due() bool { return !time.Now().Before(l.at) }

// sleepFunc waits for the duration. It returns early when there is a notification of a job that is due before
// wakeEpoch, the time of the planned wake-up in seconds since 1970 by the server's clock.
type sleepFunc func(ctx context.Context, duration time.Duration, wakeEpoch float64) error

// run does a pass at once, and then whenever something may be due, until one fails.
func (p *passes) run(ctx context.Context, sleep sleepFunc) error {
	for {
		p.woke = time.Now()
		if err := p.recover(ctx); err != nil {
			return err
		}
		if err := p.await(ctx, sleep); err != nil {
			return err
		}
	}
}

// notified handles a notification of a commit: epoch is when the job, or the look at a job that
// others wait for, is due, in seconds since 1970; below 0, leases were taken away.
func (p *passes) notified(epoch float64) {
	if epoch < 0 {
		p.leases.notified()
		return
	}
	p.due.notified(epoch)
	p.looks.notified(epoch)
}

// recover reaps expired leases, promotes due jobs, and settles jobs that wait for jobs which are
// over, until nothing is left. It does a step of each task in turn, so that millions of rows of
// one task do not delay the others.
func (p *passes) recover(ctx context.Context) error {
	for {
		reaping, err := p.reap(ctx)
		if err != nil {
			return err
		}
		promoting, err := p.promote(ctx)
		if err != nil {
			return err
		}
		settling, err := p.settle(ctx)
		if err != nil {
			return err
		}
		if p.readFunc != nil { // working off a backlog takes minutes, and notifications come meanwhile
			p.readFunc()
		}
		if !reaping && !promoting && !settling {
			p.janitor.tally.passes.Add(1)
			return nil
		}
	}
}

// await sleeps until the next time at which a lease ends or a job is due. While none is known, it
// sends one query for each scan interval and nothing else, because an idle queue must cost next
// to nothing.
func (p *passes) await(ctx context.Context, sleep sleepFunc) error {
	for slept := false; ; slept = true {
		next, err := p.lookAhead(ctx)
		if err != nil || slept && next.Ms <= 0 {
			return err
		}
		if next.Ms < 0 && p.overdueFunc != nil {
			p.overdueFunc(ctx, time.Duration(-next.Ms)*time.Millisecond)
		}
		duration := delay(p.refused)
		if next.Ms > 0 {
			rest := min(restShare*time.Since(p.woke), stuckDelay)
			duration = max(min(time.Duration(next.Ms)*time.Millisecond, p.untilFromStart(), p.untilPatience()), rest)
		}
		p.planned = duration
		if err := p.sleepAside(ctx, sleep, duration, next.Epoch); err != nil || next.JobDue || p.leases.end && p.leases.due() {
			return err
		}
		p.woke = time.Now()
	}
}

// untilFromStart is how long the janitor may sleep because of looks from the start: until the next
// one if that may find a job, else the scan interval. If the janitor listens, it
// knows when a look from the start may find a job (due.behind); otherwise it must look.
func (p *passes) untilFromStart() time.Duration {
	if p.due.after.RunAt.IsZero() || p.listens && !p.due.behind {
		return p.janitor.config.ScanInterval
	}
	return max(time.Until(p.due.startAt), stuckDelay)
}

// try does a step with a deadline, and counts the steps in a row that the lock of another
// session prevents.
func (p *passes) try(ctx context.Context, work func(context.Context, session) error) (ran bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, taskTimeout)
	defer cancel()
	ran, err = p.step(ctx, work)
	if err == nil {
		p.janitor.patience.sign()
	}
	if ran || err != nil {
		p.refused, p.refusedSince = 0, time.Time{}
		return ran, err
	}
	if p.refused == 0 {
		p.refusedSince = time.Now()
	}
	p.refused++
	return false, nil
}

// delay is how long to wait after so many failed tries before the next one.
func delay(times int) time.Duration { return min(stuckDelay<<min(times, 10), stuckDelayMax) }

// next asks the database when there is something to do. It scans the table lease only when a
// lease may have ended since the last scan, or when the last scan is a scan interval old (older when
// scans are slow): the janitor may not know of a lease that was made since.
func (p *passes) next(ctx context.Context) (next db.NextDueRow, err error) {
	fromStart := p.due.startIsDue()
	if fromStart && !p.looksTogether() {
		if err := p.fromStart(ctx); err != nil {
			return next, err
		}
		fromStart = false
	}
	ctx, cancel := context.WithTimeout(ctx, taskTimeout)
	defer cancel()
	interval := p.janitor.config.ScanInterval
	ask := db.NextDueParams{AsideLeases: p.around(time.Now()).Leases, JobsMaxMs: interval.Milliseconds(), LeasesMaxMs: interval.Milliseconds(), JobsFrom: db.DueFrom(p.due.lookFrom()), LooksFrom: db.DueFrom(p.looks.begin())}
	if fromStart {
		ask.JobsFrom = db.DueFrom(time.Time{})
	}
	if p.beats && p.janitor.heartbeat.isDue() {
		ask.Janitor = p.janitor.id
	}
	if p.asleep.renews {
		ask.AsleepMs = p.sleepHold().Milliseconds()
	}
	sent := time.Now()
	if !p.janitor.config.NoReap {
		ask.Scan = p.leases.due()
		ask.LeasesMaxMs = (p.leases.at.Sub(sent) + time.Millisecond).Milliseconds() // rounded up to whole milliseconds
		if ask.Scan {
			ask.LeasesMaxMs = max(interval, scanShare*p.leases.took).Milliseconds()
		}
	}
	next, err = p.queries.NextDue(ctx, ask)
	if err != nil {
		p.janitor.patience.failed(err)
		return next, err
	}
	if err := p.bePatient(ctx, &next); err != nil {
		return next, err
	}
	if ask.Janitor != "" {
		p.janitor.heartbeat.sent(sent, next.CompatibleFrom)
	}
	if p.asleep.renews {
		p.renewed(sent, next.Open)
	}
	if ask.Scan {
		p.leases.at = time.Now().Add(time.Duration(next.LeasesMs) * time.Millisecond)
		p.leases.end, p.leases.took, p.leases.from = next.LeaseEnds, time.Since(sent), sent
		if patience := time.Now().Add(p.untilPatience()); patience.Before(p.leases.at) {
			p.leases.at, p.leases.end = patience, true
		}
	}
	if fromStart {
		p.lookedFromStart(next.JobAt, time.Since(sent))
	}
	p.janitor.tally.looked(sent)
	p.due.looked(next.JobAt, next.LookedAt)
	p.looks.due = next.LookDue
	return next, nil
}

// reap releases a batch of jobs whose leases have expired, reports them after the commit, and says
// whether there may be more.
func (p *passes) reap(ctx context.Context) (more bool, err error) {
	if p.janitor.config.NoReap {
		return false, nil
	}
	if may, err := p.mayReap(ctx); err != nil || !may {
		return false, err
	}
	reaped, ran, err := p.reapOnce(ctx, p.around(time.Now()))
	if db.IsRowFault(err) {
		reaped, err = p.reapAround(ctx)
		ran = true
	}
	if err != nil || !ran {
		return false, err
	}
	begun := 0
	for _, job := range reaped {
		if job.Begun {
			begun++
			p.stalled(ctx, job)
		}
	}
	p.janitor.tally.reaped.Add(int64(begun))
	p.quarantine(ctx, reaped)
	p.reaped, p.unbegun, p.taken = p.reaped+begun, p.unbegun+len(reaped)-begun, p.taken+int64(len(reaped))
	if len(reaped) == p.janitor.config.ReapBatch {
		return true, nil
	}
	if p.reaped+p.unbegun > 0 {
		p.janitor.log.Warn("released stale running jobs", "count", p.reaped, "not_begun", p.unbegun)
		p.reaped, p.unbegun = 0, 0
	}
	return p.lookForMore(ctx, len(reaped) == 0)
}

// lookForMore scans the table lease after a reap that took all it could, and says whether to reap
// again. If the reap has found none although a lease is due, another session has locked the lease
// or one of its runs: then the next try comes after a delay.
func (p *passes) lookForMore(ctx context.Context, foundNone bool) (more bool, err error) {
	if _, err := p.next(ctx); err != nil {
		return false, err
	}
	switch {
	case !p.leases.due():
		p.leases.stuck = 0
	case foundNone:
		p.leases.at = time.Now().Add(delay(p.leases.stuck))
		p.leases.stuck++
	default:
		return true, nil
	}
	return false, nil
}

// quarantine counts the crashes by kind, and pauses a kind whose workers crash in a row. Recovery
// goes on if that fails: the kind is then paused after a later crash.
func (p *passes) quarantine(ctx context.Context, reaped []db.LeaseReapRow) {
	ctx, cancel := context.WithTimeout(ctx, quarantineTimeout)
	defer cancel()
	for i := range reaped {
		if reaped[i].Alone > 0 {
			p.janitor.log.Warn("a job was alone in its worker when that was lost", reaped[i].LogAttrs()...)
		}
	}
	quarantined, err := p.queries.Quarantine(ctx, reaped, p.janitor.id)
	if err != nil {
		p.janitor.log.Warn("crashes not counted", "error", err)
	}
	for _, kind := range quarantined {
		p.janitor.log.Warn("kind quarantined: its workers crash", "kind", kind.Kind, "crashes", kind.Crashes)
		p.janitor.tell(ctx, Event{Type: monitor.EventQuarantined, Kind: kind.Kind})
	}
}

func (p *passes) stalled(ctx context.Context, job db.LeaseReapRow) {
	p.janitor.log.Debug("stalled", "job_id", job.ID, "queue", job.Queue, "kind", job.Kind, "attempts", job.Attempts,
		"token", job.LeaseToken, "worker", job.LeaseOwner, "state", job.State)
	p.janitor.tell(ctx, Event{Type: monitor.EventStalled, Job: &Stalled{
		ID: job.ID, Queue: job.Queue, Kind: job.Kind, Worker: job.LeaseOwner, LeaseToken: job.LeaseToken,
		LeaseExpiredAt: db.Moment(job.LeaseExpiresAt), Attempts: int(job.Attempts), State: jobq.State(job.State),
	}})
}
