package db

import (
	"math"
	"time"
)

// LeaseBegin says that the jobs of a lease in the slots 1 to Slot may begin.
type LeaseBegin struct {
	Token     int64
	ClaimedAt time.Time // as in Slot
	Slot      int16
}

// beginSlots are the slots up to which jobs may begin, by lease. It adds the leases to tokens.
func (r *round) beginSlots(tokens map[int64]struct{}) map[int64]int16 {
	slots := make(map[int64]int16, len(r.Begin))
	for _, b := range r.Begin {
		if r.isCurrent(Slot{Token: b.Token, ClaimedAt: b.ClaimedAt}) {
			slots[b.Token] = b.Slot
			tokens[b.Token] = struct{}{}
		}
	}
	return slots
}

// begun are the leases of Begin that know now how far their jobs may begin.
func (r *round) begun() (tokens []int64) {
	for _, b := range r.Begin {
		if r.isCurrent(Slot{Token: b.Token, ClaimedAt: b.ClaimedAt}) && r.leases[b.Token].Recorded {
			tokens = append(tokens, b.Token)
		}
	}
	return tokens
}

// BeginCounts are up to which slots the jobs of the claim begin at once, and soon, as LeaseBegin counts:
// all, unless some are claimed ahead. Where a claim can make two leases, it is then none, since it is
// not known how many jobs are in each.
func (e *Exchange) BeginCounts() (count, soon int16) {
	switch {
	case !e.ClaimsAhead:
		return math.MaxInt16, math.MaxInt16
	case e.HasKeys:
		return 0, 0
	}
	count = int16(min(e.SlotsFree, math.MaxInt16))                   // #nosec G115 -- bounded
	return count, max(count, int16(min(e.BeginSoon, math.MaxInt16))) // #nosec G115 -- bounded
}
