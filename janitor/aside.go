package janitor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/monitor"
)

const (
	// asideRest is how long a lease or a job that cannot be reaped is passed by before the next try. It
	// is twice as long after each further failure, up to asideRestMax.
	asideRest    = time.Minute
	asideRestMax = 15 * time.Minute
	// triesMax is how many statements look for what cannot be reaped, before the rest waits for the next
	// pass. One bad job among 4,000 takes about 30.
	triesMax = 200
	// asideMax is how many leases and jobs the janitor remembers.
	asideMax = 10_000
)

// aside is what cannot be reaped: its row makes the statement fail, because of values that no version of
// jobq writes, or a page of the disk that cannot be read. All others are reaped.
//
// Example: of the expired leases 900 to 903, the statement fails for 902. Then:
//
//	900 901 902 903  fails
//	900 901          are reaped
//	902 903          fails
//	902              fails; none of its jobs can be taken, so the whole lease is set aside for a minute
//	903              is reaped
type aside struct {
	leases, jobs map[int64]rest
	due          map[int64]rest // scheduled jobs that cannot be promoted, which are told of once in this time
}

// rest is how long something is set aside.
type rest struct {
	until time.Time
	last  time.Duration
}

// around is what a reap now passes by.
func (a *aside) around(now time.Time) (around db.Around) {
	around.Leases, around.Jobs = resting(a.leases, now), resting(a.jobs, now)
	return around
}

func resting(all map[int64]rest, now time.Time) []int64 {
	ids := []int64{}
	for id, each := range all {
		if now.Before(each.until) {
			ids = append(ids, id)
		} else if now.After(each.until.Add(asideRestMax)) { // it was reaped, or its row is gone
			delete(all, id)
		}
	}
	return ids
}

// put sets an id aside, for twice as long as the last time.
func put(all map[int64]rest, id int64, now time.Time) {
	if len(all) >= asideMax {
		return
	}
	last := min(max(2*all[id].last, asideRest), asideRestMax)
	all[id] = rest{until: now.Add(last), last: last}
}

// reapOnce is one reap. ran is false if another janitor has the lock.
func (p *passes) reapOnce(ctx context.Context, around db.Around) (reaped []db.LeaseReapRow, ran bool, err error) {
	ran, err = p.try(ctx, func(ctx context.Context, on session) (err error) {
		reaped, err = p.janitor.schema.ReapAround(ctx, on, nil, int32(p.janitor.config.ReapBatch), p.janitor.id, around) // #nosec G115 -- checked by New
		return err
	})
	return reaped, ran, err
}

// reapAround reaps after a reap has failed because of a row. It finds the row by halves, and sets it aside.
func (p *passes) reapAround(ctx context.Context) ([]db.LeaseReapRow, error) {
	if p.aside.leases == nil {
		p.aside.leases, p.aside.jobs = make(map[int64]rest), make(map[int64]rest)
	}
	callCtx, cancel := context.WithTimeout(ctx, taskTimeout)
	defer cancel()
	stale, err := p.queries.LeaseStale(callCtx, p.around(time.Now()).Leases, int32(p.janitor.config.ReapBatch)) // #nosec G115 -- checked by New
	if err != nil {
		return nil, err
	}
	n := &narrowing{passes: p, tries: triesMax}
	err = n.leases(ctx, stale)
	return n.reaped, err
}

// narrowing is a search for what cannot be reaped.
type narrowing struct {
	passes *passes
	tries  int
	reaped []db.LeaseReapRow
}

// try reaps these leases alone, without these jobs. fault is why a row of them makes that fail.
func (n *narrowing) try(ctx context.Context, leases, withoutJobs []int64) (fault, err error) {
	around := n.passes.around(time.Now())
	around.Only, around.Jobs = leases, append(around.Jobs, withoutJobs...)
	n.tries--
	reaped, _, err := n.passes.reapOnce(ctx, around)
	if db.IsRowFault(err) {
		return err, nil
	}
	n.reaped = append(n.reaped, reaped...)
	return nil, err
}

// leases reaps these leases, and sets those aside that cannot be reaped.
func (n *narrowing) leases(ctx context.Context, ids []int64) error {
	if len(ids) == 0 || n.tries <= 0 {
		return nil
	}
	fault, err := n.try(ctx, ids, nil)
	switch {
	case err != nil || fault == nil:
		return err
	case len(ids) == 1:
		return n.lease(ctx, ids[0], fault)
	}
	if err := n.leases(ctx, ids[:len(ids)/2]); err != nil {
		return err
	}
	return n.leases(ctx, ids[len(ids)/2:])
}

// lease looks for the job of a lease that cannot be reaped. If no job of it can be, or not even the lease
// can be taken from its owner, it sets the whole lease aside.
func (n *narrowing) lease(ctx context.Context, id int64, fault error) error {
	callCtx, cancel := context.WithTimeout(ctx, taskTimeout)
	defer cancel()
	row, err := n.passes.queries.LeaseJobs(callCtx, id)
	if err != nil && !db.IsRowFault(err) {
		return err
	}
	if err == nil && len(row.Jobs) > 1 {
		bare, err := n.try(ctx, []int64{id}, row.Jobs)
		if err != nil {
			return err
		}
		if bare == nil {
			bad := make(map[int64]error)
			if err := n.jobs(ctx, id, row.Jobs, row.Jobs, bad); err != nil {
				return err
			}
			if len(bad) < len(row.Jobs) && n.tries > 0 {
				for job, fault := range bad {
					put(n.passes.aside.jobs, job, time.Now())
					n.tell(ctx, fmt.Sprintf("job %d of lease %d", job, id), row.Owner, fault)
				}
				return nil
			}
		}
	}
	put(n.passes.aside.leases, id, time.Now())
	n.tell(ctx, fmt.Sprintf("lease %d", id), row.Owner, fault)
	return nil
}

// jobs reaps these of all the jobs of a lease, and notes those that cannot be reaped.
func (n *narrowing) jobs(ctx context.Context, lease int64, ids, all []int64, bad map[int64]error) error {
	if len(ids) == 0 || n.tries <= 0 {
		return nil
	}
	fault, err := n.try(ctx, []int64{lease}, without(all, ids))
	switch {
	case err != nil || fault == nil:
		return err
	case len(ids) == 1:
		bad[ids[0]] = fault
		return nil
	}
	if err := n.jobs(ctx, lease, ids[:len(ids)/2], all, bad); err != nil {
		return err
	}
	return n.jobs(ctx, lease, ids[len(ids)/2:], all, bad)
}

// without returns all but some of the ids.
func without(all, some []int64) []int64 {
	drop := make(map[int64]bool, len(some))
	for _, id := range some {
		drop[id] = true
	}
	rest := []int64{}
	for _, id := range all {
		if !drop[id] {
			rest = append(rest, id)
		}
	}
	return rest
}

// promoteAround promotes after a promotion has failed because of a row: fewer at once, until a single job fails. It
// goes on after that one, which is then as one that another session has locked: later looks find it, and try it again.
func (p *passes) promoteAround(ctx context.Context) (db.Promoted, error) {
	all, size := db.Promoted{Last: p.due.after}, int32(promoteBatch)
	for range triesMax {
		var promoted db.Promoted
		ran, err := p.try(ctx, func(ctx context.Context, on session) (err error) {
			promoted, err = p.janitor.schema.Promote(ctx, on, all.Last, size)
			return err
		})
		switch {
		case db.IsRowFault(err) && size > 1:
			size /= 2
		case db.IsRowFault(err):
			if all.Last, err = p.passBy(ctx, all.Last, err); err != nil {
				return all, err
			}
		case err != nil || !ran || promoted.Due == 0:
			return all, err
		default:
			all.Due, all.Last = all.Due+promoted.Due, promoted.Last
			size = min(2*size, promoteBatch)
		}
	}
	return all, nil
}

// passBy is the place of the first due job after a place. It reports the job, which cannot be promoted.
func (p *passes) passBy(ctx context.Context, after db.DuePlace, fault error) (db.DuePlace, error) {
	ctx, cancel := context.WithTimeout(ctx, taskTimeout)
	defer cancel()
	next, err := p.queries.DueNext(ctx, db.DueFrom(after.RunAt), after.ID)
	if errors.Is(err, pgx.ErrNoRows) { // it was edited or cancelled meanwhile
		return after, nil
	}
	if err != nil {
		return after, err
	}
	p.due.behind = true
	if now := time.Now(); !now.Before(p.aside.due[next.ID].until) {
		if p.aside.due == nil {
			p.aside.due = make(map[int64]rest)
		}
		resting(p.aside.due, now) // forgets old ones
		put(p.aside.due, next.ID, now)
		p.janitor.log.Warn("job cannot be promoted, passed by", "job_id", next.ID, "error", fault)
		p.janitor.tell(ctx, Event{Type: monitor.EventError, Err: fmt.Errorf("job %d cannot be promoted: %w", next.ID, fault)})
	}
	return db.DuePlace{RunAt: db.Moment(next.RunAt), ID: next.ID}, nil
}

// tell reports what was set aside.
func (n *narrowing) tell(ctx context.Context, what, owner string, fault error) {
	j := n.passes.janitor
	j.log.Warn("cannot be reaped, set aside", "what", what, "worker", owner, "error", fault)
	j.tell(ctx, Event{Type: monitor.EventError, Err: fmt.Errorf("%s cannot be reaped: %w", what, fault)})
}
