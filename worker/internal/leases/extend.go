package leases

import (
	"cmp"
	"slices"
	"time"
)

// Answer is what the database has said of a lease that was to be extended.
type Answer int

// The answers.
const (
	Lost Answer = iota // not the worker's any more
	Busy               // another transaction has locked it, so it was not extended
	OK                 // extended; or still held, if the ticker does not extend it
)

// Due returns the leases that it is time to extend, by id.
func (s *Set[R]) Due(now time.Duration) []*Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	var due []*Lease
	for _, l := range s.leases {
		if now >= l.extendAt {
			due = append(due, l)
		}
	}
	slices.SortFunc(due, func(a, b *Lease) int { return cmp.Compare(a.id, b.id) })
	return due
}

// MakeDue makes it time to extend the lease of a job, and says whether it is held.
func (s *Set[R]) MakeDue(job int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, ok := s.held[job]
	if ok {
		h.lease.extendAt = 0
	}
	return ok
}

// MakeAllDue makes it time to extend every lease.
func (s *Set[R]) MakeAllDue() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.leases {
		l.extendAt = 0
	}
}

// Cancel stops the handlers of those of the jobs that are held under the lease:
// somebody has cancelled them.
func (s *Set[R]) Cancel(l *Lease, jobs []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, job := range jobs {
		if h := s.held[job]; h != nil && h.lease == l && !h.state.Cancelled {
			h.state.Cancelled = true
			if h.cancel != nil {
				h.cancel(ErrCancelled)
			}
		}
	}
}

// AskAgain makes a lease due again as soon as if it had been busy. The caller could not find
// out which of its jobs were cancelled, and asks that after each extension.
func (s *Set[R]) AskAgain(l *Lease, now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.extendAt = min(l.extendAt, now+l.Settings().busyRetry())
}

// Answered acts on the answer to an extension that was sent at sent. It returns the
// runs of a lost lease that their handlers' own transactions may have ended: the
// caller must call Settle for each. If the worker has given the lease up meanwhile, the
// answer changes nothing.
func (s *Set[R]) Answered(l *Lease, answer Answer, settings Settings, sent time.Duration) (unsure []R) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch answer {
	case OK:
		if settings.TickerExtends() > 0 {
			s.extendLocked(l, sent, settings)
		}
		l.extendAt = sent + settings.ExtendEvery
	case Busy:
		l.extendAt = sent + settings.busyRetry()
	case Lost:
		l.extendAt = sent + settings.busyRetry() // until Settle is through
		return s.answeredLostLocked(l)
	}
	return nil
}

func (s *Set[R]) answeredLostLocked(l *Lease) (unsure []R) {
	for _, h := range s.held {
		switch {
		case h.lease != l || h.state.Completed:
		case h.state.Completing:
			unsure = append(unsure, h.run)
		default:
			s.loseRunLocked(h)
		}
	}
	if len(unsure) == 0 {
		s.loseLocked(l)
	}
	return unsure
}

// Settle records what has become of a run that its handler's own transaction may have ended.
// completed says that it has, and held that the lease is still held.
func (s *Set[R]) Settle(h *Hold[R], completed, held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.held[h.job] != h: // the handler has returned meanwhile
	case completed:
		h.state.Completed = true
	case !held:
		s.loseRunLocked(h)
	}
}

// Extended records that a request sent at sent gave the leases with these ids their full
// time.
func (s *Set[R]) Extended(ids []int64, settings Settings, sent time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if l := s.leases[id]; l != nil {
			s.extendLocked(l, sent, settings)
		}
	}
}

// ExtendedBy is Extended for the lease of a run, which has reported something.
func (s *Set[R]) ExtendedBy(h *Hold[R], settings Settings, sent time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.extendLocked(h.lease, sent, settings)
}

// NotReported records that the database did not store what a run has reported: the lease
// is lost, or another transaction has locked its row. It makes the lease due soon, since
// the next extension tells which. It says whether the run is still held.
func (s *Set[R]) NotReported(h *Hold[R], settings Settings, sent time.Duration) (held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if held = s.held[h.job] == h; held {
		h.lease.extendAt = min(h.lease.extendAt, sent+settings.busyRetry())
	}
	return held
}
