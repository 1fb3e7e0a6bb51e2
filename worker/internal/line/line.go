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
// When looks back are made, and where they begin, is told in lookback.go; when claims
// begin with jobs of low priority that have waited for long, in ageing.go; when claims
// are made without news, since jobs come fast, in byclock.go.
package line

import (
	"maps"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
)

// Planner plans the claims of one queue. Its caller keeps two goroutines from
// using it at once. Instants are durations since one that the caller has chosen.
type Planner struct {
	// ByClockFrom is how many jobs per second must come one by one for the queue to claim by the
	// clock. When it claims half as many, it stops. Default 500.
	ByClockFrom float64

	bound   db.Line
	looks   looksBack
	ended   rate // runs, of late
	byClock claimsByClock
	// claimNow says that there may be jobs from the bound on: the last claim was
	// filled, or there is news since it was sent.
	claimNow bool
	// lookSoon says that a claim has found less than it asked for, and that jobs
	// may lie before the bound: the next look back is not to wait for other news.
	lookSoon bool
	// returned says that jobs have come back to their old places in the line since
	// the last look at the whole line was sent.
	returned bool
	// news counts what has happened after which a claim must be made. A claim that
	// was sent before does not speak of it.
	news int
	// separate says that claims are sent in a round trip of their own, because one
	// took too long; until a look at the whole line has gone well.
	separate bool
	ageing   ageing
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

// News makes the queue claim. Claims that are under way may have looked too
// early, and their answers do not take it back.
func (p *Planner) News() {
	p.news++
	p.claimNow = true
}

// Returned notes that jobs have come back to their old places in the line. The
// next claim looks at the whole line, also when one that does so is under way, which
// may have looked too early. After one that took long, it is a claim that comes a
// while later. Call News as well for a claim to be made at once.
func (p *Planner) Returned() {
	p.returned = true
	p.news++
}

// ShouldClaim says whether to claim now.
func (p *Planner) ShouldClaim(now time.Duration) bool {
	switch {
	case p.lookSoon && now >= p.lookAt():
		p.lookSoon = false
		p.News()
	case p.byClock.on && now >= p.byClock.nextAt && !p.claimNow:
		p.News()
	}
	return p.claimNow
}

// WillClaim says whether the queue claims even without news.
func (p *Planner) WillClaim() bool { return p.claimNow }

// IsAtRest says whether the queue has nothing to claim before there is news.
func (p *Planner) IsAtRest() bool { return !p.claimNow && !p.lookSoon && !p.byClock.on }

// NextLook is when to ask ShouldClaim again, even if there is no news; false when
// there is no such time.
func (p *Planner) NextLook() (at time.Duration, ok bool) {
	at = never
	if p.lookSoon {
		at = p.lookAt()
	}
	if p.byClock.on && !p.claimNow {
		at = min(at, p.byClock.nextAt)
	}
	return at, at < never
}

// lookAt is when a look back is due.
func (p *Planner) lookAt() time.Duration {
	at := p.looks.next(p.bound)
	if p.returned {
		at = min(at, p.looks.wholeAgainAt)
	}
	return at
}

// IsSeparate says whether results are not to wait for the next claim.
func (p *Planner) IsSeparate() bool { return p.separate }

// Begin completes a request for up to so many jobs, so that it looks from the bound
// on or, when it is time, at aged priorities first or at what lies before the bound as
// well. Only a claim that begins with aged priorities, or looks at the whole line, tries to lock rows
// that seem locked. Partial says that it does not ask for all kinds. Either Answered or Failed must follow.
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

// Answered takes into account what a claim has found, and how long it took. A claim
// of the whole line that found less than it asked for leaves nothing; another may
// have left what came late, which the next look back finds. Neither speaks of what
// there was news of since it was sent. It says whether no job was left in the line
// for others when the claim was made.
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

// Failed makes the queue claim again: another claim may have passed by what the
// one that failed had locked. After one that took too long, the next has a round
// trip of its own.
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
