package janitor

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
)

const (
	rollUpEvery    = 30 * time.Second
	rollUpBatch    = 10_000
	workersEvery   = 2 * time.Minute
	workerSilence  = 5 * time.Minute
	retentionEvery = 10 * time.Minute
	choreRetry     = time.Minute // after the server has refused one
	// partitionDaysAhead is how many days of partitions are there before they
	// are needed: a janitor may be away for a weekend.
	partitionDaysAhead = 3
	// stuckDelay is how long the janitor leaves what it could not deal with alone,
	// such as an expired lease that somebody has locked.
	stuckDelay = 20 * time.Millisecond
	// restShare is how much longer it rests than it has worked, up to stuckDelay,
	// when jobs come due in quick succession: they are promoted together then.
	restShare = 4
	// scanShare is how much longer than a scan of running the next one waits,
	// unless a lease may end before.
	scanShare = 19
)

// partitioned are the tables with a partition a day.
var partitioned = []string{"finished", "attempt"}

// passes does the janitor's tasks, again and again.
type passes struct {
	janitor *Janitor
	queries *db.Queries
	// guard runs work under the lock, or not at all when another has it.
	guard  func(ctx context.Context, work func(*db.Queries) error) error
	chores []chore
	leases leases
	woke   time.Time // when this pass began
}

// leases is what the last scan of running has said of when leases end.
type leases struct {
	at   time.Time     // when to scan again
	end  bool          // since one ends then, if it is not extended
	took time.Duration // the scan
}

func (l leases) due() bool { return !time.Now().Before(l.at) }

// chore is a task that is done every now and then.
type chore struct {
	name  string
	every time.Duration
	work  func(ctx context.Context, queries *db.Queries) (more bool, err error) // a step, in a transaction of its own
	next  time.Time
}

// sleepFunc waits for the duration, or less when it hears of a moment earlier
// than the epoch, in seconds by the server's clock, at which it would wake.
type sleepFunc func(ctx context.Context, duration time.Duration, wakeEpoch float64) error

func (j *Janitor) newPasses(conn db.DBTX) *passes {
	p := &passes{janitor: j, queries: j.schema.Queries(conn)}
	p.guard = func(_ context.Context, work func(*db.Queries) error) error { return work(p.queries) }
	p.chores = []chore{
		{name: "roll up stats", every: rollUpEvery, work: p.rollUp},
		{name: "remove dead workers", every: workersEvery, work: p.removeWorkers},
		{name: "keep partitions", every: retentionEvery, work: p.keepPartitions},
	}
	p.chores = append(p.chores, j.retentionChores()...)
	return p
}

// run does passes until something fails: at once, and whenever something may
// be due.
func (p *passes) run(ctx context.Context, sleep sleepFunc) error {
	for {
		p.woke = time.Now()
		if err := p.task(ctx, p.promote); err != nil {
			return err
		}
		if p.leases.due() && !p.janitor.config.NoReap {
			if err := p.reap(ctx); err != nil {
				return err
			}
		}
		if err := p.await(ctx, sleep); err != nil {
			return err
		}
	}
}

// await sleeps until the next moment at which a lease ends or a job is due,
// with chores before. While there is none, it looks once a scan interval, and
// asks nothing else: an idle queue is to cost next to nothing.
func (p *passes) await(ctx context.Context, sleep sleepFunc) error {
	for slept := false; ; slept = true {
		more, err := p.doChores(ctx)
		if err != nil || more {
			return err
		}
		next, err := p.next(ctx)
		if err != nil || slept && next.Ms <= 0 {
			return err
		}
		duration := stuckDelay
		if next.Ms > 0 {
			rest := min(restShare*time.Since(p.woke), stuckDelay)
			duration = max(time.Duration(next.Ms)*time.Millisecond, rest)
		}
		if err := sleep(ctx, duration, next.Epoch); err != nil || next.JobDue || p.leases.end && p.leases.due() {
			return err
		}
		p.woke = time.Now()
	}
}

// next asks when there is something to do, and scans running only when a lease
// may have ended since the last scan, or it is time to look whether one was
// written that nobody has told of.
func (p *passes) next(ctx context.Context) (next db.NextDueRow, err error) {
	ctx, cancel := context.WithTimeout(ctx, taskTimeout)
	defer cancel()
	interval := p.janitor.config.ScanInterval
	if p.janitor.config.NoReap {
		return p.queries.NextDue(ctx, interval.Milliseconds(), interval.Milliseconds(), false)
	}
	sent, scan := time.Now(), p.leases.due()
	leasesMax := p.leases.at.Sub(sent) + time.Millisecond // it is cut to whole ones
	if scan {
		leasesMax = max(interval, scanShare*p.leases.took)
	}
	next, err = p.queries.NextDue(ctx, interval.Milliseconds(), leasesMax.Milliseconds(), scan)
	if err == nil && scan {
		p.leases = leases{at: time.Now().Add(time.Duration(next.LeasesMs) * time.Millisecond), end: next.LeaseEnds, took: time.Since(sent)}
	}
	return next, err
}

// task runs work under the guard and with a deadline.
func (p *passes) task(ctx context.Context, work func(context.Context, *db.Queries) error) error {
	ctx, cancel := context.WithTimeout(ctx, taskTimeout)
	defer cancel()
	return p.guard(ctx, func(queries *db.Queries) error { return work(ctx, queries) })
}

// doChores does a step of each that is due, and says whether there are more: in
// between, jobs are recovered. A chore that could not get its lock in time is
// tried again at the next pass; it is the busy tables that matter. One that the
// server refuses must not keep the janitor from anything else: it is told of, and
// tried again after a while.
func (p *passes) doChores(ctx context.Context) (more bool, err error) {
	for i := range p.chores {
		c := &p.chores[i]
		if time.Now().Before(c.next) {
			continue
		}
		unfinished := false // and stays so when another has the lock
		err := p.task(ctx, func(ctx context.Context, queries *db.Queries) (err error) {
			unfinished, err = c.work(ctx, queries)
			return err
		})
		switch {
		case err == nil && unfinished:
			more = true
		case err == nil:
			c.next = time.Now().Add(c.every)
		case ctx.Err() == nil && db.IsLockTimeout(err):
			p.janitor.log.Debug("chore postponed", "chore", c.name, "error", err)
		case ctx.Err() == nil && db.IsRefusal(err):
			c.next = time.Now().Add(choreRetry)
			p.janitor.log.Warn("chore failed", "chore", c.name, "again_in", choreRetry, "error", err)
			p.janitor.tell(ctx, Event{Type: jobq.EventError, Err: fmt.Errorf("%s: %w", c.name, err)})
		default:
			return false, err
		}
	}
	return more, nil
}

// reap takes jobs away from workers whose leases have expired, a batch in each
// transaction, and tells of them when it has committed.
func (p *passes) reap(ctx context.Context) error {
	total := 0
	for more := true; more; {
		var reaped []db.LeaseReapRow
		err := p.task(ctx, func(ctx context.Context, queries *db.Queries) (err error) {
			reaped, err = queries.LeaseReap(ctx, nil, int32(p.janitor.config.ReapBatch), p.janitor.id) // #nosec G115 -- checked by New
			return err
		})
		if err != nil {
			return err
		}
		for _, job := range reaped {
			p.stalled(ctx, job)
		}
		total += len(reaped)
		more = len(reaped) == p.janitor.config.ReapBatch
	}
	if total > 0 {
		p.janitor.log.Warn("released stale running jobs", "count", total)
	}
	return nil
}

func (p *passes) stalled(ctx context.Context, job db.LeaseReapRow) {
	p.janitor.log.Debug("stalled", "job_id", job.ID, "queue", job.Queue, "kind", job.Kind, "attempts", job.Attempts,
		"token", job.LeaseToken, "worker", job.LeaseOwner, "state", job.State)
	p.janitor.tell(ctx, Event{Type: jobq.EventStalled, Job: &Stalled{
		ID: job.ID, Queue: job.Queue, Kind: job.Kind, Worker: job.LeaseOwner, LeaseToken: job.LeaseToken,
		LeaseExpiredAt: job.LeaseExpiresAt.Time.UTC(), Attempts: int(job.Attempts), State: jobq.State(job.State),
	}})
}

// promote makes scheduled jobs available that are due.
func (p *passes) promote(ctx context.Context, queries *db.Queries) error {
	for {
		row, err := queries.JobPromote(ctx, promoteBatch)
		if err != nil || row.Promoted < promoteBatch {
			return err
		}
	}
}

func (p *passes) rollUp(ctx context.Context, queries *db.Queries) (more bool, err error) {
	taken, err := queries.StatRollUp(ctx, rollUpBatch)
	return taken == rollUpBatch, err
}

func (p *passes) removeWorkers(ctx context.Context, queries *db.Queries) (more bool, err error) {
	removed, err := queries.WorkerPrune(ctx, db.Interval(workerSilence))
	if err == nil && removed > 0 {
		p.janitor.log.Info("removed dead workers", "count", removed)
	}
	return false, err
}

// keepPartitions makes a partition that is missing, the furthest ahead first:
// a day that nothing has been caught of is made in a moment, and is the one that
// keeps the next from being caught.
func (p *passes) keepPartitions(ctx context.Context, queries *db.Queries) (more bool, err error) {
	for day := int32(partitionDaysAhead); day >= 0; day-- {
		for _, parent := range partitioned {
			if added, err := queries.PartitionAdd(ctx, parent, day); err != nil || added {
				return added, err
			}
		}
	}
	return false, nil
}

// sleepOn sleeps on the leader's connection, which hears of jobs that become
// due, and pings so that the server does not take it for dead.
func (j *Janitor) sleepOn(conn *pgx.Conn) sleepFunc {
	return func(ctx context.Context, duration time.Duration, wakeEpoch float64) error {
		end := time.Now().Add(duration)
		for {
			remaining := time.Until(end)
			if remaining <= 0 {
				return nil
			}
			waitCtx, cancel := context.WithTimeout(ctx, min(remaining, j.config.LeaderRenew))
			notification, err := conn.WaitForNotification(waitCtx)
			cancel()
			switch {
			case err == nil:
				if due, parseErr := strconv.ParseFloat(notification.Payload, 64); parseErr == nil && due < wakeEpoch {
					return nil
				}
			case ctx.Err() != nil || !pgconn.Timeout(err):
				return err
			default:
				pingCtx, cancel := context.WithTimeout(ctx, j.config.LeaderRenew)
				err := conn.Ping(pingCtx)
				cancel()
				if err != nil {
					return err
				}
			}
		}
	}
}
