package worker

import (
	"maps"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
)

const (
	// lookBackShare is how much of its time a worker spends at most on looks back
	// of one reach: a twentieth.
	lookBackShare = 20
	// wholeLineMax is the longest time between two looks at the whole line, for
	// one that was slow for another reason than its length.
	wholeLineMax = 2 * time.Minute
)

// lookBackEvery is how often a look of each reach is made at most. Each covers
// what the queue has claimed since the last one that reached as far, so that a
// job that came into the line late is found after about as long again as it was
// late, up to eight times that. The last reach is the whole line, as often as its
// share of time allows, which in a healthy database is every few milliseconds.
var lookBackEvery = [...]time.Duration{250 * time.Millisecond, 2 * time.Second, 16 * time.Second, 0}

const wholeLine = len(lookBackEvery) - 1

// lookBack says when a claim looks at what lies behind the bound; db.Line says
// why jobs may lie there. While a transaction is open somewhere, each job that
// was claimed since is a dead entry there that the look walks through: millions
// after some minutes. Hence short looks often, and long ones rarely.
type lookBack struct {
	reaches [len(lookBackEvery)]reach
	flying  int // looks under way
}

type reach struct {
	from db.Line       // where it begins: the line at the last look that reached as far; nil for its head
	at   time.Duration // when the next is due, by sinceBoot
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

// next is when a look is due, by sinceBoot.
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

// isWorthwhile says whether something was claimed since the last look that
// reached as far.
func (b *lookBack) isWorthwhile(long int, line db.Line) bool {
	return long == wholeLine || !maps.Equal(b.reaches[long].from, line)
}

// done takes into account that a look has found what there was, up to the line
// as it was when the look began.
func (b *lookBack) done(long int, line db.Line, took time.Duration) {
	b.flying--
	now := sinceBoot()
	for each := range long + 1 {
		b.reaches[each].at = now + lookBackEvery[each]
		if each < wholeLine {
			b.reaches[each].from = line
		}
	}
	b.wait(long, took)
}

// failed takes into account that a look has found nothing out. It is made again
// at once, or as after any long one when it took too long.
func (b *lookBack) failed(long int, took time.Duration, tooLong bool) {
	b.flying--
	if tooLong {
		b.wait(long, took)
	} else {
		b.reaches[long].at = 0
	}
}

func (b *lookBack) wait(long int, took time.Duration) {
	pause := min(took*(lookBackShare-1), wholeLineMax)
	b.reaches[long].at = max(b.reaches[long].at, sinceBoot()+pause)
}
