package janitor

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobq-dev/jobq/internal/db"
)

const (
	promoteBatch = 1000
	// lateCommit is by how much a transaction that schedules a job may end after
	// the job's time, for the job to be found by the next look.
	lateCommit = 2 * time.Second
	// fromStartEvery is how often the janitor looks for jobs that came even later.
	fromStartEvery = 10 * time.Second
)

// dueJobs is where promotion goes on. While any transaction is open, the index
// keeps an entry of every job that has been promoted since, and a look that
// begins at the start walks through all of them: promoting 200,000 jobs by the
// thousand would walk through 20 million.
//
// So each step goes on after the last job that the one before has promoted, or
// after the time of the last look that found no job due. What turns up at an
// earlier place later is found by two kinds of look:
//
//	12:00:10.0  a look: all that was to start by now has been promoted
//	12:00:10.5  commits a job that was to start at 12:00:09: found by the next
//	            look, since each begins 2 s before where promotion goes on
//	12:00:11.0  commits a job that was to start at 11:00: found by the next look
//	            from the start, every 10 s, or less often when it takes long
//
// Either makes promotion go on from the job found.
type dueJobs struct {
	after   db.DuePlace
	startAt time.Time // when to look from the start again
}

// lookFrom is where the usual look begins.
func (d *dueJobs) lookFrom() time.Time {
	if d.after.RunAt.IsZero() {
		return time.Time{}
	}
	return d.after.RunAt.Add(-lateCommit)
}

// found is told of the earliest job that a look has found, and of the time of
// that look, by the server's clock.
func (d *dueJobs) found(first, lookedAt pgtype.Timestamptz) {
	switch {
	case first.Valid && !first.Time.After(d.after.RunAt):
		d.after = db.DuePlace{RunAt: first.Time} // before all ids
	case (!first.Valid || first.Time.After(lookedAt.Time)) && lookedAt.Time.After(d.after.RunAt):
		d.after = db.DuePlace{RunAt: lookedAt.Time}
	}
}

// promote makes a batch of due jobs available, and says whether there may be more.
func (p *passes) promote(ctx context.Context) (more bool, err error) {
	var promoted db.Promoted
	ran, err := p.try(ctx, func(ctx context.Context, on session) (err error) {
		promoted, err = p.janitor.schema.Promote(ctx, on, p.due.after, promoteBatch)
		return err
	})
	if err != nil || !ran {
		return false, err
	}
	p.due.after = promoted.Last
	p.taken += promoted.Due
	return promoted.Due == promoteBatch, nil
}

// lookFromStart looks for scheduled jobs before those that the usual look
// reaches, when it is time for that.
func (p *passes) lookFromStart(ctx context.Context) error {
	sent := time.Now()
	if p.due.after.RunAt.IsZero() || sent.Before(p.due.startAt) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, taskTimeout)
	defer cancel()
	first, err := p.queries.DueFirst(ctx)
	if err != nil {
		return err
	}
	p.due.found(first, pgtype.Timestamptz{})
	took := time.Since(sent)
	p.due.startAt = time.Now().Add(max(min(fromStartEvery, p.janitor.config.ScanInterval), scanShare*took))
	return nil
}
