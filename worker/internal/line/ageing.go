package line

import "github.com/jobq-dev/jobq/internal/db"

// agedEvery is of how many claims that get jobs one begins with aged priorities, if there
// are any: they get about a tenth of the jobs, however many more urgent ones there are.
const agedEvery = 10

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
// next claim.
type ageing struct {
	aged   []db.Aged
	others int // claims since the last one that began with aged priorities, up to agedEvery
}

// SetAged says which priorities are aged now, the one that has waited longest first. The next
// claim begins with them, if none of the last ones did.
func (p *Planner) SetAged(aged []db.Aged) { p.ageing.aged = aged }

// begin says whether a claim is to begin with aged priorities.
func (a *ageing) begin() bool {
	if len(a.aged) == 0 || a.others < agedEvery-1 {
		return false
	}
	a.others = 0
	return true
}

// tookOthers notes that a claim which did not begin with aged priorities got jobs.
func (a *ageing) tookOthers() { a.others = min(a.others+1, agedEvery) }

// failed lets the next claim begin with aged priorities, since this one got nothing.
func (a *ageing) failed() { a.others = agedEvery }
