package janitor

import (
	"context"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/monitor"
)

const (
	// stuckDelay is how long the janitor leaves what it could not deal with alone,
	// such as a due job that somebody has locked.
	stuckDelay = 20 * time.Millisecond
	// stuckDelayMax is what that delay grows to while an expired lease stays
	// locked, since each look for it reads all of lease, and while another
	// janitor is always at work.
	stuckDelayMax = time.Second
	// quarantineTimeout bounds how long recovery waits while crashes are counted.
	quarantineTimeout = 3 * time.Second
	// restShare is how much longer it rests than it has worked, up to stuckDelay,
	// when jobs come due in quick succession: they are promoted together then.
	restShare = 4
	// scanShare is how much longer than a look through many rows the next one
	// waits, unless a lease may end before.
	scanShare = 19
)

// passes recovers jobs: it reaps and promotes whenever something may be due.
type passes struct {
	janitor *Janitor
	queries *db.Queries // for looks
	// step runs one bounded step of work, and says whether it did: not when
	// another janitor has the lock.
	step   stepFunc
	leases leases
	due    dueJobs
	hears  bool      // whether its sleep ends when a job is committed that is due soon
	woke   time.Time // when this pass began
	reaped int       // since the last look that found no more
	taken  int64     // jobs reaped and promoted by these passes
	// hearFunc takes what was heard while it worked; nil when it hears nothing.
	hearFunc func()
	// refused is how many steps in a row another session's lock has prevented,
	// and refusedSince when that began.
	refused      int
	refusedSince time.Time
	// overdueFunc is told how late the latest work is, when some is.
	overdueFunc func(ctx context.Context, late time.Duration)
}

// stepFunc runs work on a connection, in one transaction or one statement.
type stepFunc func(ctx context.Context, work func(ctx context.Context, on session) error) (ran bool, err error)

// session is a connection or a transaction.
type session interface {
	db.DBTX
	db.Batcher
}

// leases is what the last scan of lease has said of when leases end.
type leases struct {
	at    time.Time     // when to scan again
	end   bool          // since one ends then, if it is not extended
	took  time.Duration // the scan
	stuck int           // reaps in a row that found an expired lease locked
}

func (l leases) due() bool { return !time.Now().Before(l.at) }

// sleepFunc waits for the duration, or less when it hears of a moment earlier
// than the epoch, in seconds by the server's clock, at which it would wake.
type sleepFunc func(ctx context.Context, duration time.Duration, wakeEpoch float64) error

// run does passes until something fails: at once, and whenever something may
// be due.
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

// recover reaps expired leases and promotes due jobs until there are none. It
// does a step of each in turn, so that millions of the one do not hold up the
// other.
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
		if p.hearFunc != nil { // a backlog takes minutes
			p.hearFunc()
		}
		if !reaping && !promoting {
			p.janitor.tally.passes.Add(1)
			return nil
		}
	}
}

// await sleeps until the next moment at which a lease ends or a job is due.
// While there is none, it looks once a scan interval, and asks nothing else: an
// idle queue is to cost next to nothing.
func (p *passes) await(ctx context.Context, sleep sleepFunc) error {
	for slept := false; ; slept = true {
		next, err := p.next(ctx)
		if err != nil || slept && next.Ms <= 0 {
			return err
		}
		if next.Ms < 0 && p.overdueFunc != nil {
			p.overdueFunc(ctx, time.Duration(-next.Ms)*time.Millisecond)
		}
		duration := delay(p.refused)
		if next.Ms > 0 {
			rest := min(restShare*time.Since(p.woke), stuckDelay)
			duration = max(min(time.Duration(next.Ms)*time.Millisecond, p.untilFromStart()), rest)
		}
		if err := sleep(ctx, duration, next.Epoch); err != nil || next.JobDue || p.leases.end && p.leases.due() {
			return err
		}
		p.woke = time.Now()
	}
}

// untilFromStart is the time until the next look from the start, if the janitor
// is to wake for it: while it knows of nothing that such a look would find, it
// goes on sleeping, unless nobody would tell.
func (p *passes) untilFromStart() time.Duration {
	if p.due.after.RunAt.IsZero() || p.hears && !p.due.behind {
		return p.janitor.config.ScanInterval
	}
	return max(time.Until(p.due.startAt), stuckDelay)
}

// try does a step with a deadline, and counts those that another's lock prevents.
func (p *passes) try(ctx context.Context, work func(context.Context, session) error) (ran bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, taskTimeout)
	defer cancel()
	ran, err = p.step(ctx, work)
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

// delay is how long to leave alone what could not be done so many times.
func delay(times int) time.Duration { return min(stuckDelay<<min(times, 10), stuckDelayMax) }

// next asks when there is something to do, and scans lease only when a lease
// may have ended since the last scan, or it is time to look whether one was
// written that nobody has told of.
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
	ask := db.NextDueParams{JobsMaxMs: interval.Milliseconds(), LeasesMaxMs: interval.Milliseconds(), JobsFrom: db.DueFrom(p.due.lookFrom())}
	if fromStart {
		ask.JobsFrom = db.DueFrom(time.Time{})
	}
	sent := time.Now()
	if !p.janitor.config.NoReap {
		ask.Scan = p.leases.due()
		ask.LeasesMaxMs = (p.leases.at.Sub(sent) + time.Millisecond).Milliseconds() // it is cut to whole ones
		if ask.Scan {
			ask.LeasesMaxMs = max(interval, scanShare*p.leases.took).Milliseconds()
		}
	}
	next, err = p.queries.NextDue(ctx, ask)
	if err != nil {
		return next, err
	}
	if ask.Scan {
		p.leases.at = time.Now().Add(time.Duration(next.LeasesMs) * time.Millisecond)
		p.leases.end, p.leases.took = next.LeaseEnds, time.Since(sent)
	}
	if fromStart {
		p.lookedFromStart(next.JobAt, time.Since(sent))
	}
	p.janitor.tally.looked(sent)
	p.due.looked(next.JobAt, next.LookedAt)
	return next, nil
}

// reap takes a batch of jobs away from workers whose leases have expired, tells
// of them when that has committed, and says whether there may be more.
func (p *passes) reap(ctx context.Context) (more bool, err error) {
	if p.janitor.config.NoReap || !p.leases.due() {
		return false, nil
	}
	var reaped []db.LeaseReapRow
	ran, err := p.try(ctx, func(ctx context.Context, on session) (err error) {
		reaped, err = p.janitor.schema.Reap(ctx, on, nil, int32(p.janitor.config.ReapBatch), p.janitor.id) // #nosec G115 -- checked by New
		return err
	})
	if err != nil || !ran {
		return false, err
	}
	for _, job := range reaped {
		p.stalled(ctx, job)
	}
	p.janitor.tally.reaped.Add(int64(len(reaped)))
	p.quarantine(ctx, reaped)
	p.reaped, p.taken = p.reaped+len(reaped), p.taken+int64(len(reaped))
	if len(reaped) == p.janitor.config.ReapBatch {
		return true, nil
	}
	if p.reaped > 0 {
		p.janitor.log.Warn("released stale running jobs", "count", p.reaped)
		p.reaped = 0
	}
	return p.lookForMore(ctx, len(reaped) == 0)
}

// lookForMore scans lease after a reap that took all it could. If the reap has
// found none, a lease that is due is locked by somebody, or has runs that are: then
// it is left alone for a while.
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

// quarantine pauses a kind whose workers crash in a row. It is no part of recovery,
// which goes on without it: what was missed this time is counted with the next crash.
func (p *passes) quarantine(ctx context.Context, reaped []db.LeaseReapRow) {
	ctx, cancel := context.WithTimeout(ctx, quarantineTimeout)
	defer cancel()
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
		LeaseExpiredAt: job.LeaseExpiresAt.Time.UTC(), Attempts: int(job.Attempts), State: jobq.State(job.State),
	}})
}
