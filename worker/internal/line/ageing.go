package line

import (
	"time"

	"github.com/jobq-dev/jobq/internal/db"
)

// agedEvery is of how many claims that get jobs one begins with aged priorities, if there
// are any: they get about a tenth of the jobs, however many more urgent ones there are.
const agedEvery = 10

const (
	// agedRestShare is how many times as long as a claim that begins with them took the next
	// one waits at least: it may walk past many jobs that are locked or gone, while others wait.
	agedRestShare = 9
	// agedFor is how long it counts which priorities are aged.
	agedFor = 30 * time.Second
)

// ageing says which claims begin with aged priorities.
//
// For example, jobs of priority 0 come faster than they are run, and jobs of priority 9 wait
// since 12:00.
//
//	12:05:03  9 is an aged priority; the next claim begins with it, and takes job 17
//	          nine claims take jobs of priority 0
//	12:05:04  the tenth begins with 9 again
//	12:05:13  the first job of 9 has come at 12:00:30: 9 is no aged priority
//
// A claim that begins with them does not look back. A look that is due is made with the
// next claim. A claim that does not ask for all kinds does not begin with them: it could walk
// past all jobs of the others.
type ageing struct {
	aged    []db.Aged
	until   time.Duration // when that counts no more
	others  int           // claims since the last one that began with aged priorities, up to agedEvery
	againAt time.Duration // when a claim may begin with them again
}

// SetAged says which priorities are aged now, the one that has waited longest first. The next
// claim begins with them, if none of the last ones did. Without another such call they count
// for agedFor.
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

// failed lets the next claim that may begin with aged priorities, since this one got nothing.
// One that took too long has had its turn: the others get nothing either otherwise.
func (a *ageing) failed(tooLong bool) {
	if !tooLong {
		a.others = agedEvery
	}
}
