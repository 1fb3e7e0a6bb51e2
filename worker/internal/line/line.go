// Package line decides what a queue of a worker claims next: how many jobs, and
// from which place in the line of waiting jobs on. It reads no clock and does not
// talk to the database: its caller says what time it is, and what a claim has
// found.
//
// For example, jobs 1, 2 and 4 wait, and the transaction that inserts job 3 is
// still open. There are slots for three jobs.
//
//	 0 ms  a claim from the head of the line finds 1, 2 and 4; the bound is 4
//	 5 ms  job 3 is committed
//	20 ms  the jobs have ended; a claim from the bound on finds nothing, since
//	       job 3 lies before the bound
//	40 ms  a look back, a claim that begins before the bound, finds job 3
//
// See lookback.go for when looks back are made and where they begin, ageing.go for when
// claims begin with jobs of low priority that have waited for long, and pace.go for
// how far apart claims are while jobs come fast.
package line

import (
	"maps"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
)

// Planner plans the claims of one queue. Its caller keeps two goroutines from using it
// at once. Times are durations since a moment that the caller has chosen, such as the boot.
type Planner struct {
	bound db.Line
	looks looksBack
	ended rate // of runs that end
	pace  pace
	// claimNow says that there may be jobs from the bound on: the last claim was
	// filled, or there is news since it was sent.
	claimNow bool
	// lookSoon says that a claim has found less than it asked for, and that jobs
	// may lie before the bound: the next look back is not to wait for other news.
	lookSoon bool
	// noLookUntil puts that look off, since the queue claims then in any case.
	noLookUntil time.Duration
	// returned says that jobs have come back to their old places in the line since
	// the last look at the whole line was sent.
	returned bool
	// news counts the events after which a claim must be made. A claim that was sent
	// before such an event may not have seen it.
	news int
	// separate says that claims are sent in a round trip of their own, because one took
	// too long. A look at the whole line that is answered ends that.
	separate bool
	ageing   ageing
	exchange time.Duration // how long a round trip takes, on average
	ran      time.Duration // and a run
}

// New returns a planner that has claimed nothing and is to claim at once.
func New() *Planner {
	return &Planner{bound: make(db.Line), claimNow: true, ageing: ageing{others: agedEvery}}
}

// Claim is a claim under way: what it asks for, and what was known when it was
// sent.
type Claim struct {
	jobsMax   int
	looksBack bool
	reach     int     // of the look back, an index of reachEvery
	from      db.Line // where a look back begins
	bound     db.Line // at that time, of a look back
	partial   bool
	aged      bool // it begins with aged priorities
	news      int
}

// Admitted is the claim when the limits of the queue have let it take only so many jobs.
func (c Claim) Admitted(jobs int) Claim {
	c.jobsMax = min(c.jobsMax, jobs)
	return c
}

// IsWhole says whether the claim looks at the whole line.
func (c Claim) IsWhole() bool { return c.looksBack && c.reach == wholeLine }

// News makes the queue claim. Claims that are under way may have looked too early, so
// it claims even if they find nothing.
func (p *Planner) News() {
	p.news++
	p.claimNow = true
}

// Notified records that a notification of new jobs has come, after which the queue claims once more
// shortly after lookAt.
func (p *Planner) Notified(lookAt time.Duration) { p.noLookUntil = lookAt + noLookAfter }

// Returned records that jobs have come back to their old places in the line. The next
// claim looks at the whole line, even if one that does so is under way, which may have
// looked too early. If the last such look took long, a later claim does it instead. For a
// claim at once, call News as well.
func (p *Planner) Returned() {
	p.returned = true
	p.news++
}

// ShouldClaim says whether to claim now.
func (p *Planner) ShouldClaim(now time.Duration) bool {
	if p.lookSoon && now >= p.lookAt() {
		p.lookSoon = false
		p.News()
	}
	if p.pace.waits && now >= p.pace.nextAt {
		p.pace.waits = false
		p.News()
	}
	return p.claimNow && !p.pace.waits
}

// WillClaim says whether the queue claims even without news.
func (p *Planner) WillClaim() bool { return p.claimNow || p.IsPaced() }

// IsAtRest says whether the queue claims nothing until there is news.
func (p *Planner) IsAtRest() bool { return !p.claimNow && !p.lookSoon && !p.IsPaced() }

// NextLook is when to ask ShouldClaim again, even if there is no news; false when
// there is no such time.
func (p *Planner) NextLook() (at time.Duration, ok bool) {
	at = never
	if p.lookSoon {
		at = p.lookAt()
	}
	if p.pace.waits {
		at = min(at, p.pace.nextAt)
	}
	return at, at < never
}

// noLookAfter is how long after its time a claim that follows a notification may come.
const noLookAfter = 5 * time.Millisecond

// lookAt is when a look back is due.
func (p *Planner) lookAt() time.Duration {
	at := max(p.looks.next(p.bound), p.noLookUntil)
	if p.returned {
		at = min(at, p.looks.wholeAgainAt)
	}
	return at
}

// IsSeparate says whether results are not to wait for the next claim.
func (p *Planner) IsSeparate() bool { return p.separate }

// Begin says in the request which part of the line to look at: from the bound on, or also
// before the bound if a look back is due, or at aged priorities first if it is their turn. Only
// a claim that begins with aged priorities, or looks at the whole line, tries to lock rows that
// seem locked. partial says that the request is not for all kinds. Answered or Failed must
// follow.
func (p *Planner) Begin(now time.Duration, request *db.JobClaimParams, partial bool) Claim {
	claim := Claim{jobsMax: int(request.JobCount), partial: partial, news: p.news}
	if claim.aged = !partial && p.ageing.begin(now); claim.aged {
		p.bound.RestAfter(p.ageing.aged, request)
		return claim
	}
	claim.reach, claim.looksBack = p.looks.due(now, p.bound)
	if p.returned && now >= p.looks.wholeAgainAt {
		claim.reach, claim.looksBack = wholeLine, true
	}
	request.PassLocked = !claim.IsWhole()
	if !claim.looksBack {
		p.bound.Rest(request)
		return claim
	}
	if claim.IsWhole() {
		p.returned = false
	}
	claim.from, claim.bound = p.looks.begin(claim.reach), maps.Clone(p.bound)
	claim.from.Rest(request)
	return claim
}

// Answered records what a claim has found, and how long it took. If a claim of the whole
// line found fewer jobs than it asked for, it has left none. Another claim may have left
// jobs that came late, which the next look back finds. News since the claim was sent still
// counts. Answered says whether the claim left no job in the line for others.
func (p *Planner) Answered(now time.Duration, claim Claim, claimed []db.JobClaimRow, took time.Duration) (leftNothing bool) {
	p.bound.Advance(claimed)
	switch {
	case claim.aged:
		p.ageing.ended(now, took)
	case len(claimed) > 0:
		p.ageing.tookOthers()
	}
	if claim.IsWhole() {
		p.separate = false
	}
	filled := len(claimed) >= claim.jobsMax
	switch {
	case claim.looksBack && filled:
		covered := claim.bound.Covered(claim.from, claimed)
		p.looks.done(now, claim.reach, covered, took)
		if !maps.Equal(covered, claim.bound) {
			p.looks.continueFrom(covered)
		}
	case claim.looksBack:
		p.looks.done(now, claim.reach, claim.bound, took)
	}
	if filled {
		p.claimNow = true
		return false
	}
	if claim.news == p.news {
		p.claimNow, p.lookSoon = false, false
	}
	if !claim.IsWhole() {
		p.lookSoon = true
		return false
	}
	return !claim.partial
}

// Failed makes the queue claim again: another claim may have skipped rows that the failed
// one had locked. After a claim that took too long, the next ones have a round trip of
// their own.
func (p *Planner) Failed(now time.Duration, claim Claim, took time.Duration, tooLong bool) {
	p.News()
	if claim.aged {
		p.ageing.ended(now, took)
		p.ageing.failed(tooLong)
	}
	if tooLong {
		p.separate = true
	}
	if claim.looksBack {
		p.looks.failed(now, claim.reach, took, tooLong)
	}
}
