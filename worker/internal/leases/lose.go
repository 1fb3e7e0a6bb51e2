package leases

import "time"

// Lose gives up the lease of a run, because the database has refused a report of the run, and
// stops all handlers under that lease. If the run's own transaction may have ended it, that may
// be why, so Lose only makes the next extension due, which tells.
func (s *Set[R]) Lose(h *Hold[R]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.state.Completing {
		h.lease.extendAt = 0
		return
	}
	s.loseLocked(h.lease)
}

// GiveUp gives up the lease of a run that was killed, even if a transaction of the run may have
// ended it before.
func (s *Set[R]) GiveUp(h *Hold[R]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loseLocked(h.lease)
}

// Expire gives up each lease whose deadline has passed for at least one of its runs, or freezes it
// if all its runs can freeze.
func (s *Set[R]) Expire(now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.held {
		switch {
		case now+s.delayLocked(h) < h.lease.deadline:
		case h.state.Completed:
			if h.freeze != nil && h.onLost != nil { // its program is not killed by its supervisor, and has done its work
				h.onLost()
			}
		default:
			s.expireLocked(h.lease)
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

// loseRunLocked gives up a run that is held; it is not held afterwards. It calls report, unless a
// transaction of the run's handler may have ended the run: then whoever finds out that none has
// reports the loss.
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

// NextDeadline is when the next deadline is; false when there is none.
func (s *Set[R]) NextDeadline() (at time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.held {
		if deadline := h.lease.deadline - s.delayLocked(h); !h.state.Completed && !h.lease.frozen && (!ok || deadline < at) {
			at, ok = deadline, true
		}
	}
	return at, ok
}

// Deadline is when the lease of a run is given up unless it is extended before.
func (s *Set[R]) Deadline(h *Hold[R]) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return h.lease.deadline - s.delayLocked(h)
}

// ObserveDelay records how late the caller's timer fired, for example 250 ms on an
// overloaded machine. The leases of runs with an OnLost function are then given up 250 ms
// earlier, because the signals that the function sends to programs may be as late. The
// delay counts in steps of 50 ms, so that deadlines do not change all the time. Each call
// reduces an earlier delay by an eighth, so it is soon forgotten.
func (s *Set[R]) ObserveDelay(delay time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late = max(delay, s.late*7/8).Truncate(50 * time.Millisecond)
}

// delayLocked is how much earlier a run's lease is given up because of such a delay: 0
// without an OnLost function, at most the kill margin.
func (s *Set[R]) delayLocked(h *Hold[R]) time.Duration {
	if s.late == 0 || h.onLost == nil {
		return 0
	}
	return min(s.late, h.lease.Settings().KillMargin())
}
