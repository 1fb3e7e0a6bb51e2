package db

import "slices"

// isStored says whether a completion has been stored, in this round or before it.
func (r *round) isStored(c *Completion, ended map[int64]bool) bool {
	return r.onRow(c) && ended[c.ID] || r.before[c.ID] || r.inLease(c) && r.leases[c.Token].Recorded || r.wasPlain(c.Slot)
}

// wasPlain says whether the lease knew before that a run has plainly succeeded.
func (r *round) wasPlain(at Slot) bool {
	return r.isCurrent(at) && slices.Contains(r.plain[at.Token], at.Slot)
}

// answer is what has come of the round.
func (r *round) answer() Exchanged {
	answer := Exchanged{Claimed: r.claimed, Keyed: r.keyed, KeysMore: r.more, LanePass: r.pass, HasKeyLimit: r.hasKeyLimit, KeysWait: r.keysWait, Admission: r.admission}
	ended := r.endedIDs()
	completed := make(map[int64]bool)
	if len(r.Completions) > 0 {
		answer.Completed = make([]int64, 0, len(r.Completions))
	}
	for c := range r.completions() {
		if r.isStored(c, ended) {
			answer.Completed = append(answer.Completed, c.ID)
		}
	}
	if len(r.Endings)+len(r.ended)+len(r.held) > 0 { // else nobody asks
		for _, id := range answer.Completed {
			completed[id] = true
		}
	}
	for _, e := range r.Endings {
		if r.before[e.ID] && !ended[e.ID] && !completed[e.ID] {
			answer.Completed = append(answer.Completed, e.ID)
			completed[e.ID] = true
		}
	}
	for _, row := range r.ended {
		if !completed[row.ID] {
			answer.Ended = append(answer.Ended, row)
		}
	}
	for id, lease := range r.leases {
		if lease.Recorded {
			answer.Recorded = append(answer.Recorded, id)
		}
	}
	for _, id := range r.held {
		if !completed[id] {
			answer.Busy = append(answer.Busy, id)
		}
	}
	answer.Unrecorded = r.stillUnrecorded(ended)
	return answer
}

// stillUnrecorded are the runs that have ended on their own rows, and whose end is not
// recorded in their lease, which is still the owner's. The second time, each run of such a lease has
// ended, now or before, unless it is held or the lease alone knows of it.
func (r *round) stillUnrecorded(ended map[int64]bool) (slots []Slot) {
	candidates := r.unrecorded()
	for _, at := range r.elsewhere() {
		if ended[at.ID] || r.again && !slices.Contains(r.held, at.ID) && !r.wasPlain(at) {
			candidates = append(candidates, at)
		}
	}
	for _, at := range candidates {
		if lease := r.leases[at.Token]; lease.Held && !lease.Recorded {
			slots = append(slots, at)
		}
	}
	return slots
}

func (r *round) endedIDs() map[int64]bool {
	ended := make(map[int64]bool, len(r.ended))
	for _, row := range r.ended {
		ended[row.ID] = true
	}
	return ended
}

// missing is what was asked for and not stored, as the answer says.
func (r *round) missing(answer Exchanged) (missing Exchange, some bool) {
	if len(answer.Completed) == len(r.Completions) && len(r.Endings) == 0 {
		return Exchange{}, false
	}
	ended := r.endedIDs()
	missing.Owner, missing.Queue, missing.Lease, missing.HasLimits = r.Owner, r.Queue, r.Lease, r.HasLimits
	missing.HasKeys, missing.EndedKeys = r.HasKeys, r.EndedKeys
	for c := range r.completions() {
		if !r.isStored(c, ended) {
			missing.Completions = append(missing.Completions, *c)
		}
	}
	for _, e := range r.Endings {
		if !ended[e.ID] {
			missing.Endings = append(missing.Endings, e)
		}
	}
	return missing, len(missing.Completions)+len(missing.Endings) > 0
}
