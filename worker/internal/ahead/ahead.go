// Package ahead holds the jobs that a worker has claimed before a slot was free for them, in the order
// in which they are to begin, and says when they may.
//
// A job that never began must not lose an attempt when its worker dies. So its lease says up to which
// slot jobs may have begun, and a job beyond that begins only after the database has stored a larger
// number. The number goes with the next round trip. So that slots need not wait for round trips, it may
// also cover a few jobs for which no slot is free yet. It never does so for a job that would fail if this
// run was lost.
//
// For example, 2 slots, and lease 900 of the jobs 1 to 5. Job 4 has no attempt left to lose:
//
//	the claim is answered, begun is 2   1 and 2 begin
//	1 ends                              the next round trip stores the end, and begun 3: one slot is
//	                                    free. It might cover one more job, but not job 4
//	it is answered                      3 begins
//	2 ends                              the next round trip stores the end, and begun 5: a slot is
//	                                    free for 4, and 5 is one more
//	it is answered                      4 begins, and 5 when the next job ends
//
// A Line has no lock and reads no clock: its caller does.
package ahead

import (
	"slices"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
)

// Job is a claimed job with its run of the type R.
type Job[R any] struct {
	Run  R
	Slot db.Slot
	Last bool // it fails if this run is lost
}

// Line are the jobs that wait. The zero value is empty.
type Line[R any] struct{ waiting []entry[R] }

type entry[R any] struct {
	Job[R]
	lease *lease
}

// lease is what is known of the lease of waiting jobs.
type lease struct {
	begun   int16         // as the database has it
	asked   int16         // a request under way stores this; 0: none is
	retryAt time.Duration // a request was not stored: the next one may follow then
}

func (e *entry[R]) isOf(b db.LeaseBegin) bool {
	return e.Slot.Token == b.Token && e.Slot.ClaimedAt.Equal(b.ClaimedAt)
}

// Len is how many jobs wait.
func (l *Line[R]) Len() int { return len(l.waiting) }

// Add adds the jobs of a claim behind the others. The claim has stored soon in their leases, and begun in
// those with Last jobs.
func (l *Line[R]) Add(jobs []Job[R], begun, soon int16) {
	leases := make(map[int64]*lease, 1)
	for _, job := range jobs {
		of := leases[job.Slot.Token]
		if of == nil {
			of = &lease{begun: soon}
			leases[job.Slot.Token] = of
		}
		if job.Last {
			of.begun = begun
		}
		l.waiting = append(l.waiting, entry[R]{job, of})
	}
}

// Ask returns what is to be stored so that the first jobs may begin: one for each of the free slots, and
// ahead more, but no Last ones. Answered must follow. It passes by jobs of leases that are to be asked
// for later. It ends at a lease for which isBusy is true, because another request under way changes it.
func (l *Line[R]) Ask(now time.Duration, free, ahead int, isBusy func(token int64) bool) (begin []db.LeaseBegin) {
	for i := range l.waiting {
		if e := &l.waiting[i]; e.Slot.Slot <= e.lease.asked {
			free--
		}
	}
	if free < 0 {
		free, ahead = 0, ahead+free
	}
	for i := range l.waiting {
		e := &l.waiting[i]
		switch {
		case e.Slot.Slot <= e.lease.asked || now < e.lease.retryAt:
			continue
		case isBusy(e.Slot.Token):
			return begin
		case free > 0:
			free--
		case ahead > 0 && !e.Last:
			ahead--
		default:
			return begin
		}
		e.lease.asked = e.Slot.Slot
		if at := slices.IndexFunc(begin, e.isOf); at >= 0 {
			begin[at].Slot = e.Slot.Slot
		} else {
			begin = append(begin, db.LeaseBegin{Token: e.Slot.Token, ClaimedAt: e.Slot.ClaimedAt, Slot: e.Slot.Slot})
		}
	}
	return begin
}

// Answered records of which leases a request has stored what Ask has returned. The others may be asked
// for again at retryAt: it is not known whether they have stored it. It returns a run of each of these.
func (l *Line[R]) Answered(begin []db.LeaseBegin, stored []int64, retryAt time.Duration) (unknown []R) {
	for _, b := range begin {
		isStored := slices.Contains(stored, b.Token)
		for i := range l.waiting {
			e := &l.waiting[i]
			switch {
			case !e.isOf(b) || e.lease.asked == 0:
			case isStored:
				e.lease.begun, e.lease.asked = max(e.lease.begun, b.Slot), 0
			default:
				e.lease.asked, e.lease.retryAt = 0, retryAt
				unknown = append(unknown, e.Run)
			}
		}
	}
	return unknown
}

// RetryAt is the first time after now at which a lease is to be asked for again; false if there is none.
func (l *Line[R]) RetryAt(now time.Duration) (at time.Duration, ok bool) {
	for i := range l.waiting {
		if of := l.waiting[i].lease; of.retryAt > now && (!ok || of.retryAt < at) {
			at, ok = of.retryAt, true
		}
	}
	return at, ok
}

// Ready removes the jobs that may begin, and returns their runs in order.
func (l *Line[R]) Ready() []R {
	return l.remove(func(e entry[R]) bool { return e.Slot.Slot <= e.lease.begun })
}

// Remove removes the jobs for whose runs is returns true, and returns these runs in order.
func (l *Line[R]) Remove(is func(R) bool) []R {
	return l.remove(func(e entry[R]) bool { return is(e.Run) })
}

func (l *Line[R]) remove(is func(entry[R]) bool) (runs []R) {
	l.waiting = slices.DeleteFunc(l.waiting, func(e entry[R]) bool {
		if !is(e) {
			return false
		}
		runs = append(runs, e.Run)
		return true
	})
	return runs
}
