package leases

import "time"

// Lose gives a lease up, under which the database would not store what this run
// says, and stops all its handlers. Where the run's handler may have ended it in
// its own transaction, the next extension tells.
func (s *Set[R]) Lose(h *Hold[R]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.state.Completing {
		h.lease.extendAt = 0
		return
	}
	s.loseLocked(h.lease)
}

// GiveUp gives a lease up for a run that goes on no more, whatever a transaction of its
// handler's own may have done before.
func (s *Set[R]) GiveUp(h *Hold[R]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loseLocked(h.lease)
}

// Expire gives up leases whose deadline has passed, for one of their runs.
func (s *Set[R]) Expire(now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.held {
		if now+s.delayLocked(h) >= h.lease.deadline && !h.state.Completed {
			s.loseLocked(h.lease)
		}
	}
}

// loseLocked gives a lease up, with all its runs that are held and not known to be
// completed.
func (s *Set[R]) loseLocked(l *Lease) {
	for _, h := range s.held {
		if h.lease == l && !h.state.Completed {
			s.loseRunLocked(h)
		}
	}
	if s.leases[l.id] == l {
		delete(s.leases, l.id)
	}
}

// loseRunLocked gives up a run that is held: one that is lost is no longer. One whose handler's own transaction may have ended
// it is not reported: whoever finds out that it has not reports it.
func (s *Set[R]) loseRunLocked(h *Hold[R]) {
	h.state.Lost = true
	if h.cancel != nil {
		h.cancel(ErrLost)
		s.unstopped[h] = struct{}{}
	}
	if h.onLost != nil {
		h.onLost()
	}
	s.forgetLocked(h)
	if !h.state.Completing {
		s.report(h.run)
	}
}

// NextDeadline is the instant of the next deadline; false when there is none.
func (s *Set[R]) NextDeadline() (at time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.held {
		if deadline := h.lease.deadline - s.delayLocked(h); !h.state.Completed && (!ok || deadline < at) {
			at, ok = deadline, true
		}
	}
	return at, ok
}

// Deadline is the instant at which the lease of a run is given up unless it is
// extended before.
func (s *Set[R]) Deadline(h *Hold[R]) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return h.lease.deadline - s.delayLocked(h)
}

// ObserveDelay remembers how late the caller's timer rings when the machine is
// overloaded, and forgets it within some calls. By so much the leases of runs with
// a function that is to be called when they are lost are given up earlier: the
// signals that it sends will be as late. Steps of 50 ms, so that the deadlines do
// not change all the time.
func (s *Set[R]) ObserveDelay(delay time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late = max(delay, s.late*7/8).Truncate(50 * time.Millisecond)
}

// delayLocked is the part of that which counts for a run: nothing without such a
// function, and its kill margin at most.
func (s *Set[R]) delayLocked(h *Hold[R]) time.Duration {
	if s.late == 0 || h.onLost == nil {
		return 0
	}
	return min(s.late, h.lease.Settings().KillMargin())
}
