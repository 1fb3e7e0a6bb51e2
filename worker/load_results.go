package worker

import (
	"slices"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
)

// ended adds the result of a job to those to store. It returns true when a round trip is under
// way and so many results have gathered that a second round trip is worth its commit.
func (l *load) ended(now time.Duration, r result) (many bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addLocked(r)
	l.freedLocked(now)
	return l.roundTrips == 1 && len(l.results) >= assistMin
}

// endByTx notes that a transaction of the handler has ended the run. Its end is stored, and only
// the lease does not know of it yet.
func (l *load) endByTx(now time.Duration, run *Run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endedByTx++
	l.addLocked(result{run: run})
	l.freedLocked(now)
}

// discarded notes that a run has ended whose result is not stored, since its lease is lost.
func (l *load) discarded(now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.freedLocked(now)
}

func (l *load) freedLocked(now time.Duration) {
	l.inHand--
	l.movedAt = now
}

// addLocked adds a result to those of the next round trip. It adds it to later while a round
// trip under way updates the same lease.
func (l *load) addLocked(r result) {
	if _, ok := l.recording[r.run.row.LeaseToken]; ok {
		l.later = append(l.later, r)
		return
	}
	l.results = append(l.results, r)
}

// putBack returns results of a round trip that failed, for the next one. It is not known
// whether the failed one has stored them.
func (l *load) putBack(results []result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range results {
		results[i].retried = true
	}
	l.results = append(results, l.results...)
}

// setAside keeps the results of these jobs, which the database could not store now, and sends
// them again after the delay. It returns the other results, which need no delay.
func (l *load) setAside(now time.Duration, results []result, jobs []int64, delay time.Duration) (others []result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range results {
		if !r.isUnrecorded() && slices.Contains(jobs, r.run.row.ID) {
			l.refuseLocked(r, now+delay)
		} else {
			others = append(others, r)
		}
	}
	return others
}

// keepUnrecorded keeps those results that are stored, but whose lease could not be updated because
// another session has locked it. The update of the lease is sent again.
func (l *load) keepUnrecorded(now time.Duration, results []result, unrecorded []db.Slot) {
	if len(unrecorded) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range results {
		if slices.Contains(unrecorded, r.run.slot()) {
			l.refuseLocked(result{run: r.run}, now+busyDelay)
		}
	}
}

func (l *load) refuseLocked(r result, resendAt time.Duration) {
	if len(l.refused) == 0 { // else each new one would delay those that wait already
		l.resendAt = resendAt
	}
	l.refused = append(l.refused, r)
}

// hasUnrecorded says whether there are leases that do not know yet of ends that are stored. If the
// worker ends before it has updated them, whoever reaps them sees that these runs have ended.
func (l *load) hasUnrecorded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.refused, result.isUnrecorded)
}
