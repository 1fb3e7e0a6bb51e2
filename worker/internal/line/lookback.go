package line

import (
	"maps"
	"math"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
)

const (
	// After a look back that took 1 s, the next one of its reach waits restShare seconds:
	// looks take a twentieth of the time.
	restShare = 19
	// restMax is the longest such wait. A look may also have been slow for another reason
	// than the length of the line.
	restMax = 2 * time.Minute
	// returnedRestShare takes the place of restShare for a look at the whole line that is
	// made because jobs have come back to their old places: see cheapLook.
	returnedRestShare = 3
	// never is a time that does not come.
	never time.Duration = math.MaxInt64
)

// reachEvery is the shortest time between two looks of each reach. A job that was late by no
// more than that time is found by the next look of that reach. The last reach is the whole
// line: it is looked at as often as restShare allows, which in a healthy database is every few
// milliseconds.
var reachEvery = [...]time.Duration{250 * time.Millisecond, 2 * time.Second, 16 * time.Second, 0}

const wholeLine = len(reachEvery) - 1

// cheapLook: if a look at the whole line took no longer than this, it is repeated as soon as
// jobs have come back. With a pause, a job that came back to the head of a short line would
// run after those behind it.
const cheapLook = 500 * time.Millisecond

// looksBack says when a claim looks at the part of the line before the bound; db.Line says
// why jobs may be there. While a transaction is open somewhere, each job that was claimed
// since leaves a dead index entry there, which a look reads: millions after some minutes.
// So short looks are made often, and long ones rarely.
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
	// wholeAgainAt is when the whole line may be looked at again because jobs have come
	// back. Without it, claims would do little else when jobs come back often.
	wholeAgainAt time.Duration
}

// reach is a distance to look back. A look begins at the bound of the last look but one. A
// job may have been before the bound when the last look began, and committed after that
// look. Its place is then between the bounds of these two looks, unless it was late by more
// than the time between them.
type reach struct {
	from db.Line       // where the next look begins; nil for the head of the line
	last db.Line       // the bound at the last one
	at   time.Duration // when the next is due
}

// due is the longest reach for which a look is due, if there is one; none while a look is
// under way.
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

// begin records that a look is under way, and returns where it begins.
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

// isWorthwhile says whether claims have moved the bound beyond the place where a look of this
// reach begins; always for the whole line.
func (b *looksBack) isWorthwhile(reach int, bound db.Line) bool {
	return reach == wholeLine || !maps.Equal(b.reaches[reach].from, bound)
}

// done records that a look has found all jobs up to bound, which is the bound when it began. The
// look also counts for the shorter ones that were due.
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

// continueFrom makes the next look begin where the last one ended. That got as many jobs as
// it asked for, and so ended before the bound.
func (b *looksBack) continueFrom(from db.Line) {
	b.reaches[0] = reach{from: from, last: from}
}

// failed records that a look has failed. The next one is due at once; or, if the look took
// too long, after a pause as long as the look.
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
