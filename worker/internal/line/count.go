package line

import (
	"math"
	"time"
)

const (
	// AheadMax bounds the jobs that are claimed before a slot is free for them.
	// They hold leases, which are extended, and are released when the worker drains.
	// It is the size of several claims, so that the jobs of one claim run while the next
	// is under way. With the size of only one, either the server or the slots would wait.
	AheadMax = 4 * ClaimMax
	// ClaimMax bounds the jobs of one claim. Larger claims cost the server no less per job.
	ClaimMax = 1000
	// worthwhile is the room for jobs from which a claim is worth it while no slot is
	// free, however large the whole room is.
	worthwhile = ClaimMax / 2
	// aheadTime is how much work, at the recent rate, is claimed ahead: enough to keep
	// the slots busy during the next claim, and so little that no other worker is idle
	// for want of these jobs.
	aheadTime = 50 * time.Millisecond
	// endedMemory is the time over which the recent rate is averaged. A worker whose
	// queue was empty claims few jobs at once until that time has passed.
	endedMemory = 20 * time.Millisecond
	// exchangeMemory is over how many round trips their time is averaged.
	exchangeMemory = 8
	// ranMemory is over how many runs their time is averaged.
	ranMemory = 100
)

// rate is how often something happened per second recently.
type rate struct {
	perSecond float64
	at        time.Duration // of the last observation
}

// observe records how often it happened since the last call. Earlier events count less
// with time, and not with each call: two events in quick succession are not a high rate.
func (r *rate) observe(now time.Duration, events int, memory time.Duration) {
	if elapsed := now - r.at; r.at > 0 && elapsed > 0 {
		weight := 1 - math.Exp(-float64(elapsed)/float64(memory))
		r.perSecond += weight * (float64(events)/elapsed.Seconds() - r.perSecond)
	}
	r.at = max(r.at, now) // two goroutines may call it with times in the wrong order
}

// Ended records how many runs have ended since it was last called.
func (p *Planner) Ended(now time.Duration, runs int) { p.ended.observe(now, runs, endedMemory) }

// Exchanged records how long a round trip took.
func (p *Planner) Exchanged(took time.Duration) {
	p.exchange += (min(took, aheadTime) - p.exchange) / exchangeMemory
}

// Ran records how long runs took together that have ended.
func (p *Planner) Ran(took time.Duration, runs int) {
	weight := min(float64(runs)/ranMemory, 1)
	p.ran += time.Duration(weight * float64(took/time.Duration(runs)-p.ran))
}

// BeginAhead is how many jobs may be said to begin before one of the slots is free for them: one, and
// as many as are expected to begin during two round trips. So slots are busy until the next round trip
// has said more.
//
// For example, 10 slots, runs of 5 ms, and round trips of 3 ms: one, and 12.
func (p *Planner) BeginAhead(slots int) int {
	return 1 + min(int(int64(slots)*int64(2*p.exchange)/max(int64(p.ran), 1)), AheadMax)
}

// Count is how many jobs to claim. inHand is how many jobs are in hand or asked for by
// claims under way, and ahead says that jobs may be claimed for which no slot is free yet.
// Count is 0 until a slot is free, or a quarter of the room, or room for half of the
// largest claim. Then it is all that there is room for. So claims are few and large.
//
// For example, 10 slots and 2,000 runs a second make room for 10 + 100 jobs. With 90 in
// hand none is claimed, with 82 in hand 28 are.
func (p *Planner) Count(slots, inHand int, ahead bool) int {
	room := slots
	if ahead {
		room += min(AheadMax, int(p.ended.perSecond*aheadTime.Seconds()))
	}
	count := min(room-inHand, ClaimMax)
	if inHand >= slots && count < min(room/4, worthwhile) {
		return 0
	}
	return max(count, 0)
}
