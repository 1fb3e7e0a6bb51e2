package worker

import (
	"maps"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
)

const (
	// lookBackShare is how much longer than a look back took the next one of its
	// reach waits.
	lookBackShare = 19
	// wholeLineMax is the longest time between two looks at the whole line, for
	// one that was slow for another reason than its length.
	wholeLineMax = 2 * time.Minute
	// lookAgainShare is the same for a look at the whole line that somebody has
	// asked for, since jobs have come back to their old places.
	lookAgainShare = 3
)

// lookBackEvery is how often a look of each reach is made at most. A job that was
// late by no more than that is found by the next one. The last reach is the whole
// line, as often as its share of time allows, which in a healthy database is every
// few milliseconds.
var lookBackEvery = [...]time.Duration{250 * time.Millisecond, 2 * time.Second, 16 * time.Second, 0}

const wholeLine = len(lookBackEvery) - 1

// cheapLook is how long a look at the whole line may take and be repeated
// whenever that is asked for: a rest would let a job that came back to the head of a
// short line run after those behind it.
const cheapLook = 500 * time.Millisecond

// lookBack says when a claim looks at what lies behind the bound; db.Line says
// why jobs may lie there. While a transaction is open somewhere, each job that
// was claimed since is a dead entry there that the look walks through: millions
// after some minutes. Hence short looks often, and long ones rarely.
type lookBack struct {
	reaches [len(lookBackEvery)]reach
	flying  int // looks under way
	// againAt is when the whole line may be looked at again, by clock.SinceBoot, when
	// that is asked for: however often it is, claims do little else otherwise.
	againAt time.Duration
}

// reach is a distance to look back. A look begins at the bound as it was at the
// last but one: a job that the claims had passed before the last one began, and
// that committed after it, lies behind the bound of that, but before the bound of
// the one before, unless it was late by more than the time between the two.
type reach struct {
	from db.Line       // where the next look begins; nil for the head of the line
	last db.Line       // the bound at the last one
	at   time.Duration // when the next is due, by clock.SinceBoot
}

// due is the longest reach that it is time for, if there is one. One look at a
// time is enough.
func (b *lookBack) due(now time.Duration, line db.Line) (long int, ok bool) {
	if b.flying > 0 {
		return 0, false
	}
	for long := wholeLine; long >= 0; long-- {
		if now >= b.reaches[long].at && b.isWorthwhile(long, line) {
			return long, true
		}
	}
	return 0, false
}

// next is when a look is due, by clock.SinceBoot.
func (b *lookBack) next(line db.Line) time.Duration {
	if b.flying > 0 {
		return never // until that has ended
	}
	next := b.reaches[wholeLine].at
	for long := range wholeLine {
		if b.isWorthwhile(long, line) {
			next = min(next, b.reaches[long].at)
		}
	}
	return next
}

// isWorthwhile says whether something was claimed since where a look begins.
func (b *lookBack) isWorthwhile(long int, line db.Line) bool {
	return long == wholeLine || !maps.Equal(b.reaches[long].from, line)
}

// done takes into account that a look has found what there was, up to the bound
// as it was when it began. It counts for the shorter ones that were due as well.
func (b *lookBack) done(now time.Duration, long int, bound db.Line, took time.Duration) {
	b.flying--
	for each := range long + 1 {
		r := &b.reaches[each]
		if each < long && now < r.at {
			continue
		}
		if each < wholeLine {
			r.from, r.last = r.last, bound
		}
		r.at = now + lookBackEvery[each]
	}
	r := &b.reaches[long]
	r.at = max(r.at, now+min(lookBackShare*took, wholeLineMax))
	if long == wholeLine {
		b.againAt = now
		if took > cheapLook {
			b.againAt += min(lookAgainShare*took, wholeLineMax)
		}
	}
}

// goOn makes the next look begin where one has ended before the bound, because
// it was filled.
func (b *lookBack) goOn(from db.Line) {
	b.reaches[0] = reach{from: from, last: from}
}

// failed takes into account that a look has found nothing out. It is made again
// at once, or after as long again when it took too long.
func (b *lookBack) failed(now time.Duration, long int, took time.Duration, tooLong bool) {
	b.flying--
	b.reaches[long].at = now
	if tooLong {
		b.reaches[long].at = now + took
		if long == wholeLine {
			b.againAt = now + took
		}
	}
}
