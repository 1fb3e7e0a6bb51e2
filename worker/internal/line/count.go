package line

import (
	"math"
	"time"
)

const (
	// AheadMax bounds the jobs that are claimed before a slot is free for them.
	// They hold leases, which are extended, and are released when the worker drains.
	// It is several claims' worth, so that one claim travels while the jobs of another
	// run: with only one claim's worth, the server and the slots take turns.
	AheadMax = 4 * ClaimMax
	// ClaimMax bounds the jobs of one claim. Larger ones cost the server no less a job.
	ClaimMax = 1000
	// worthwhile is how much room is enough for a claim while no slot is free, however
	// much there is in all.
	worthwhile = ClaimMax / 2
	// aheadTime is how much work, at the rate of late, is claimed ahead: enough to
	// keep the slots busy while the next claim travels, and little enough that no
	// other worker waits for jobs that lie here.
	aheadTime = 50 * time.Millisecond
	// endedMemory is the time over which the rate of late is averaged. A worker whose
	// queue was empty claims few jobs at once until it has passed.
	endedMemory = 20 * time.Millisecond
)

// rate is how often something happened per second, of late.
type rate struct {
	perSecond float64
	at        time.Duration // of the last observation
}

// observe takes into account how often it happened since the last call. The average
// forgets with time and not with calls: two events in quick succession are not a high rate.
func (r *rate) observe(now time.Duration, events int, memory time.Duration) {
	if elapsed := now - r.at; r.at > 0 && elapsed > 0 {
		weight := 1 - math.Exp(-float64(elapsed)/float64(memory))
		r.perSecond += weight * (float64(events)/elapsed.Seconds() - r.perSecond)
	}
	r.at = max(r.at, now) // two goroutines may come in the wrong order
}

// Ended takes into account that so many runs have ended since it was last called.
func (p *Planner) Ended(now time.Duration, runs int) { p.ended.observe(now, runs, endedMemory) }

// Count is how many jobs to claim for so many slots, when so many jobs are in hand
// or asked for by claims under way: all that there is room for, once a slot is free,
// or a quarter of the room is, or half of the largest claim. So claims are few and
// large. Ahead says that jobs may be claimed for which no slot is free yet.
//
// For example, 10 slots and 2,000 runs a second make room for 10 + 100 jobs: with
// 90 in hand none is claimed, with 82 there are 28.
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
