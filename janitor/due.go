package janitor

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobq-dev/jobq/internal/db"
)

const (
	promoteBatch = 1000
	// lateCommit is how late after a job's time the transaction that schedules it may
	// commit, so that the next usual look still finds the job.
	lateCommit = 2 * time.Second
	// fromStartEvery is how often the janitor looks for jobs that were committed even
	// later, or were locked when others were promoted.
	fromStartEvery = 10 * time.Second
)

// dueJobs is where promotion goes on. While any transaction is open, the index keeps an
// entry of every job that has been promoted since, and a look that begins at the start
// reads all of them. If each step began at the start, promoting 200,000 jobs in steps of
// 1,000 would read 20 million entries.
//
// So each step goes on after the last job that the step before has promoted, or after the
// time of the last look that found no job due. Jobs that are committed later at an earlier
// place are found by two kinds of look:
//
//	12:00:10.0  a look: all that was to start by now has been promoted
//	12:00:10.5  a job is committed that was to start at 12:00:09: the next usual
//	            look finds it, since each begins 2 s before where promotion goes on
//	12:00:11.0  a job is committed that was to start at 11:00: the next look from
//	            the start finds it
//
// Either makes promotion go on from the job found. A look from the start is due every
// 10 s, or less often when it takes long. While looks are fast, the usual look begins at
// the start when that is due. The leader is notified of the second job, and looks from
// the start at once.
//
// A due job that another session has locked is passed over, so that promotion
// goes on with the others:
//
//	12:00:20.00  a look finds a job that was to start at 12:00:19
//	12:00:20.02  promotion skips it
//	12:00:20.03  a look finds it again: so it is locked. The usual look begins
//	             at 12:00:20.00 from now on.
//	12:00:20.05  a look from the start finds it, and promotion skips it again:
//	             the next one is 40 ms later, then 80 ms, at most 1 s
type dueJobs struct {
	after db.DuePlace
	// These are times of usual looks, by the server's clock: of the last one, if it
	// found a due job; of the last one after which promotion has tried all that it
	// found due; and of the one up to which locked jobs have been passed over.
	found, tried, passed time.Time

	startAt  time.Time // when to look from the start again
	restedAt time.Time // the earliest time for that, however urgent: such looks take 5 % of the time
	// startTook is how long the last one took.
	startTook time.Duration
	// behind says that there may be a job before those that the usual look reaches.
	behind bool
	stuck  int // how often a job was passed over since a look from the start found none due
}

// lookFrom is the time from which the usual look begins.
func (d *dueJobs) lookFrom() time.Time {
	from := d.after.RunAt
	if !from.IsZero() {
		from = from.Add(-lateCommit)
	}
	if d.passed.After(from) {
		return d.passed
	}
	return from
}

// looked records what the usual look has found: first is when the earliest job is due, and
// lookedAt the time of the look, both by the server's clock.
func (d *dueJobs) looked(first, lookedAt pgtype.Timestamptz) {
	d.found = time.Time{}
	switch {
	case first.Valid && !first.Time.After(d.tried):
		d.passOver()
	case first.Valid && !first.Time.After(lookedAt.Time):
		d.found = lookedAt.Time
		d.goBack(first.Time)
	case lookedAt.Time.After(d.after.RunAt): // none is due
		d.after = db.DuePlace{RunAt: lookedAt.Time}
	}
}

// lookedFromStart records when the earliest job is due that a look from the start has found.
func (d *dueJobs) lookedFromStart(first pgtype.Timestamptz) {
	if !first.Valid || first.Time.After(d.after.RunAt) {
		d.behind, d.stuck = false, 0
		return
	}
	d.goBack(first.Time)
	d.tried, d.passed = time.Time{}, time.Time{} // not from there
}

// goBack makes promotion go on from a job that is due at runAt, if it would otherwise go on
// after that job.
func (d *dueJobs) goBack(runAt time.Time) {
	if !runAt.After(d.after.RunAt) {
		d.after = db.DuePlace{RunAt: runAt} // before all ids
	}
}

// passOver makes the usual look begin after the due jobs that promotion has tried and not got,
// because they are locked. It plans a look from the start that tries them again.
func (d *dueJobs) passOver() {
	d.passed = d.tried
	if d.tried.After(d.after.RunAt) {
		d.after = db.DuePlace{RunAt: d.tried}
	}
	d.behind = true
	d.startAt = later(time.Now().Add(delay(d.stuck)), d.restedAt)
	d.stuck++
}

// notified handles a notification that a job was committed; epoch is when it is due. If the
// usual look does not reach the job, a look from the start is due, but not before restedAt:
// anybody can send notifications.
func (d *dueJobs) notified(epoch float64) {
	from := d.lookFrom()
	if from.IsZero() || epoch >= float64(from.UnixMicro())/1e6 {
		return
	}
	d.behind = true
	if d.restedAt.Before(d.startAt) {
		d.startAt = d.restedAt
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// promote makes a batch of due jobs available, and says whether there may be more.
func (p *passes) promote(ctx context.Context) (more bool, err error) {
	var promoted db.Promoted
	ran, err := p.try(ctx, func(ctx context.Context, on session) (err error) {
		promoted, err = p.janitor.schema.Promote(ctx, on, p.due.after, promoteBatch)
		return err
	})
	if db.IsRowFault(err) {
		promoted, err = p.promoteAround(ctx)
		ran = true
	}
	if err != nil || !ran {
		return false, err
	}
	p.due.after = promoted.Last
	p.taken += promoted.Due
	if promoted.Due > 0 {
		p.due.behind = true // it may have skipped a locked one
	}
	if promoted.Due == promoteBatch {
		return true, nil
	}
	p.due.tried = p.due.found
	return false, nil
}

// startIsDue says whether it is time to look for scheduled jobs before those that the
// usual look reaches.
func (d *dueJobs) startIsDue() bool {
	return !d.after.RunAt.IsZero() && !time.Now().Before(d.startAt)
}

// fromStart looks from the start, in a statement of its own.
func (p *passes) fromStart(ctx context.Context) error {
	sent := time.Now()
	ctx, cancel := context.WithTimeout(ctx, taskTimeout)
	defer cancel()
	first, err := p.queries.DueFirst(ctx)
	if err != nil {
		return err
	}
	p.lookedFromStart(first, time.Since(sent))
	return nil
}

// lookedFromStart records what a look from the start has found, and how long it took, and
// plans the next one.
func (p *passes) lookedFromStart(first pgtype.Timestamptz, took time.Duration) {
	p.due.lookedFromStart(first)
	now := time.Now()
	p.due.startTook, p.due.restedAt = took, now.Add(scanShare*took)
	p.due.startAt = later(now.Add(min(fromStartEvery, p.janitor.config.ScanInterval)), p.due.restedAt)
}

// looksTogether says whether the usual look and the look from the start may be one statement. They may
// not when they take so long that each must rest for longer than the scan interval.
func (p *passes) looksTogether() bool {
	return scanShare*(p.leases.took+p.due.startTook) <= p.janitor.config.ScanInterval
}
