package line

import (
	"maps"
	"math"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
)

const (
	// restShare is how many times as long as a look back took the next one of its
	// reach waits: looks take a twentieth of the time.
	restShare = 19
	// restMax is the longest time between two looks at the whole line, for one that
	// was slow for another reason than its length.
	restMax = 2 * time.Minute
	// returnedRestShare is the same for a look at the whole line that is made
	// because jobs have come back to their old places.
	returnedRestShare = 3
	// never is an instant that does not come.
	never time.Duration = math.MaxInt64
)

// reachEvery is how often a look of each reach is made at most. A job that was
// late by no more than that is found by the next one. The last reach is the whole
// line, as often as its share of time allows, which in a healthy database is every
// few milliseconds.
var reachEvery = [...]time.Duration{250 * time.Millisecond, 2 * time.Second, 16 * time.Second, 0}

const wholeLine = len(reachEvery) - 1

// cheapLook is how long a look at the whole line may take and still be repeated
// whenever jobs have come back: a rest would let a job that came back to the head
// of a short line run after those behind it.
const cheapLook = 500 * time.Millisecond

// looksBack says when a claim looks at what lies before the bound; db.Line says
// why jobs may lie there. While a transaction is open somewhere, each job that
// was claimed since is a dead entry there that the look walks through: millions
// after some minutes. Hence short looks often, and long ones rarely.
//
// For example, with the whole line too long to be looked at often, claims pass
// 1,000 positions in 250 ms. Job 900 was inserted by a transaction that commits at
// 400 ms, when the claims have passed its place.
//
//	  0 ms  the bound is 0
//	250 ms  a look of the shortest reach begins at 0; the bound is 1,000
//	500 ms  the next one begins at 0, the bound at the last but one, and finds job 900
//	750 ms  the next one begins at 1,000, the bound at the one of 250 ms
type looksBack struct {
	reaches  [len(reachEvery)]reach
	underWay int
	// wholeAgainAt is when the whole line may be looked at again because jobs have
	// come back: however often they do, claims do little else otherwise.
	wholeAgainAt time.Duration
}

// reach is a distance to look back. A look begins at the bound as it was at the
// last but one: a job that the claims had passed before the last one began, and
// that committed after it, lies between the bounds of these two looks, unless it
// was late by more than the time between them.
type reach struct {
	from db.Line       // where the next look begins; nil for the head of the line
	last db.Line       // the bound at the last one
	at   time.Duration // when the next is due
}

// due is the longest reach that it is time for, if there is one. One look at a
// time is enough.
func (b *looksBack) due(now time.Duration, bound db.Line) (reach int, ok bool) {
	if b.underWay > 0 {
		return 0, false
	}
	for reach := wholeLine; reach >= 0; reach-- {
		if now >= b.reaches[reach].at && b.isWorthwhile(reach, bound) {
			return reach, true
		}
	}
	return 0, false
}

// begin notes that a look is under way, and returns where it begins.
func (b *looksBack) begin(reach int) (from db.Line) {
	b.underWay++
	return b.reaches[reach].from
}

// next is when a look is due.
func (b *looksBack) next(bound db.Line) time.Duration {
	if b.underWay > 0 {
		return never // until that has ended
	}
	next := b.reaches[wholeLine].at
	for reach := range wholeLine {
		if b.isWorthwhile(reach, bound) {
			next = min(next, b.reaches[reach].at)
		}
	}
	return next
}

// isWorthwhile says whether something was claimed since where a look begins.
func (b *looksBack) isWorthwhile(reach int, bound db.Line) bool {
	return reach == wholeLine || !maps.Equal(b.reaches[reach].from, bound)
}

// done takes into account that a look has found what there was, up to the bound
// as it was when it began. It counts for the shorter ones that were due as well.
func (b *looksBack) done(now time.Duration, reach int, bound db.Line, took time.Duration) {
	b.underWay--
	for each := range reach + 1 {
		r := &b.reaches[each]
		if each < reach && now < r.at {
			continue
		}
		if each < wholeLine {
			r.from, r.last = r.last, bound
		}
		r.at = now + reachEvery[each]
	}
	r := &b.reaches[reach]
	r.at = max(r.at, now+min(restShare*took, restMax))
	if reach == wholeLine {
		b.wholeAgainAt = now
		if took > cheapLook {
			b.wholeAgainAt += min(returnedRestShare*took, restMax)
		}
	}
}

// continueFrom makes the next look begin where one has ended before the bound,
// because it was filled.
func (b *looksBack) continueFrom(from db.Line) {
	b.reaches[0] = reach{from: from, last: from}
}

// failed takes into account that a look has found nothing out. It is made again
// at once, or after as long again when it took too long.
func (b *looksBack) failed(now time.Duration, reach int, took time.Duration, tooLong bool) {
	b.underWay--
	b.reaches[reach].at = now
	if tooLong {
		b.reaches[reach].at = now + took
		if reach == wholeLine {
			b.wholeAgainAt = now + took
		}
	}
}
