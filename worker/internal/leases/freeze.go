package leases

import "time"

// OnFreeze sets the function that freezes a run, which then has no effects, and lets it go on. A run
// that has such a function can freeze; nil takes it back. The function must not call the set.
//
// The lease of such runs is not given up at its deadline: they freeze until the database says whether
// it was taken away. If it was not, it is extended, and they go on. Otherwise the runs are lost.
func (s *Set[R]) OnFreeze(h *Hold[R], call func(frozen bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.freeze = call
}

// IsFrozen says whether a run is frozen.
func (s *Set[R]) IsFrozen(h *Hold[R]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return h.lease.frozen && s.held[h.job] == h
}

// expireLocked freezes a lease whose deadline has passed, or gives it up. It says whether the lease is
// frozen.
func (s *Set[R]) expireLocked(l *Lease) (frozen bool) {
	switch {
	case l.frozen:
		return true
	case !s.canFreezeLocked(l):
		s.loseLocked(l)
		return false
	}
	l.frozen = true
	s.freezeLocked(l)
	return true
}

// canFreezeLocked says whether all runs of a lease can freeze that have begun, and at least one has. If
// one cannot, it is lost, and nobody could run its job while the worker extends the lease for the
// others. A lease that only progress extends cannot freeze either: what is frozen reports none.
func (s *Set[R]) canFreezeLocked(l *Lease) bool {
	begun := false
	for _, h := range s.held {
		if h.lease != l || h.cancel == nil || h.state.Completed {
			continue
		}
		if h.freeze == nil {
			return false
		}
		begun = true
	}
	return begun && l.Settings().TickerExtends() > 0
}

// freezeLocked tells the runs of a lease that it is frozen, or is no longer.
func (s *Set[R]) freezeLocked(l *Lease) {
	for _, h := range s.held {
		if h.lease == l && h.freeze != nil && !h.state.Completed {
			h.freeze(l.frozen)
		}
	}
}

// extendLocked records that a request sent at sent gave a lease its full time. If it was frozen, its
// runs go on.
func (s *Set[R]) extendLocked(l *Lease, sent time.Duration, settings Settings) {
	before := l.deadline
	l.extendLocked(sent, settings)
	if l.frozen && l.deadline > before {
		l.frozen = false
		s.freezeLocked(l)
	}
}
