package line

import (
	"time"

	"github.com/jobq-dev/jobq/internal/db"
)

// agedEvery: of this many claims that get jobs, one begins with aged priorities, if there are
// any. So they get about a tenth of the jobs, however many more urgent ones there are.
const agedEvery = 10

const (
	// After a claim that began with aged priorities, the next one waits at least agedRestShare
	// times as long as that took. Such a claim may read past many jobs that are locked or gone.
	agedRestShare = 9
	// agedFor is for how long an answer counts that says which priorities are aged.
	agedFor = 30 * time.Second
)

// ageing says which claims begin with aged priorities.
//
// For example, with an age_after of 5 minutes: jobs of priority 0 come faster than they are run,
// and jobs of priority 9 have waited since 12:00.
//
//	12:05:03  9 is an aged priority; the next claim begins with it, and takes job 17
//	          nine claims take jobs of priority 0
//	12:05:04  the tenth begins with 9 again
//	12:05:13  the first job of 9 that waits has come at 12:00:30: 9 is not aged now
//
// A claim that begins with aged priorities does not look back. A look that is due is made with
// the next claim. A claim that does not ask for all kinds does not begin with them: it could
// read past all jobs of the other kinds.
type ageing struct {
	aged    []db.Aged
	until   time.Duration // until when aged counts
	others  int           // claims since the last one that began with aged priorities, up to agedEvery
	againAt time.Duration // when a claim may begin with them again
}

// SetAged says which priorities are aged now, the one that has waited longest first. The next
// claim begins with them, unless one of the last agedEvery-1 claims did. They count until the
// next call of SetAged, at most for agedFor.
func (p *Planner) SetAged(now time.Duration, aged []db.Aged) {
	p.ageing.aged, p.ageing.until = aged, now+agedFor
}

// begin says whether a claim is to begin with aged priorities.
func (a *ageing) begin(now time.Duration) bool {
	if len(a.aged) == 0 || now >= a.until || a.others < agedEvery-1 || now < a.againAt {
		return false
	}
	a.others = 0
	return true
}

// tookOthers notes that a claim which did not begin with aged priorities got jobs.
func (a *ageing) tookOthers() { a.others = min(a.others+1, agedEvery) }

// ended notes how long a claim took which began with aged priorities.
func (a *ageing) ended(now, took time.Duration) { a.againAt = now + agedRestShare*took }

// failed is for a claim that began with aged priorities and failed. The next claim that may begins
// with them again. After a timeout it does not: otherwise no other priority would get a turn.
func (a *ageing) failed(tooLong bool) {
	if !tooLong {
		a.others = agedEvery
	}
}
