package leases

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// Set are the leases that a worker holds, with their runs of the type R.
type Set[R any] struct {
	report func(R)

	mu sync.Mutex
	// guarded by mu
	held   map[int64]*Hold[R] // by the job's id
	leases map[int64]*Lease   // those with runs that are held
	// unstopped are runs that were lost while their handlers ran, which have not
	// returned yet.
	unstopped map[*Hold[R]]struct{}
	stopped   error         // why no handler may begin any more; nil: it may
	late      time.Duration // the recent delay of the caller's timer: see ObserveDelay
}

// NewSet returns an empty set. It calls report for each run that is lost, unless a
// transaction of the run's handler may have ended it. report must not call the set.
func NewSet[R any](report func(R)) *Set[R] {
	return &Set[R]{
		report: report, held: make(map[int64]*Hold[R]), leases: make(map[int64]*Lease), unstopped: make(map[*Hold[R]]struct{}),
	}
}

// Add adds runs that were claimed by a request sent at sent. If a job is held already, its
// earlier run was lost: otherwise the job could not have been claimed. That run must not go
// on or store anything. After an asynchronous standby has taken over, even the tokens of both
// runs may be equal.
func (s *Set[R]) Add(holds []*Hold[R], queue *QueueSettings, settings Settings, sent time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	claimed := make(map[int64]*Lease, 1)
	for _, h := range holds {
		l := claimed[h.token]
		if l == nil {
			l = &Lease{id: h.token, claimedAt: h.claimedAt, settings: queue, extendAt: sent + settings.ExtendEvery}
			l.extendLocked(sent, settings)
			claimed[l.id] = l
		}
		h.lease = l
		if earlier := s.held[h.job]; earlier != nil {
			s.replaceLocked(earlier)
		}
		if earlier := s.leases[l.id]; earlier != nil && earlier != l { // a standby has forgotten it
			s.loseLocked(earlier)
		}
		s.held[h.job] = h
		l.open++
		s.leases[l.id] = l
	}
}

// replaceLocked ends a run whose job was claimed again. If a transaction of its handler may have
// put the job back into the line, the lease need not be lost: the next extension tells, and decides
// about the other runs of the lease.
func (s *Set[R]) replaceLocked(earlier *Hold[R]) {
	if earlier.state.Completing {
		earlier.lease.extendAt = 0
		s.loseRunLocked(earlier)
		return
	}
	s.loseLocked(earlier.lease)
}

// Start records that the handler of a run begins, and which function stops it. If it returns
// an error, the handler must not begin, and the run is no longer held. ErrLost means that the
// run is lost; any other error is the reason for which the caller must end the run. ErrFrozen
// means that it is to be released.
func (s *Set[R]) Start(h *Hold[R], now time.Duration, cancel context.CancelCauseFunc) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case h.state.Lost:
		s.loseLocked(h.lease)
		return ErrLost
	case h.lease.frozen || now >= h.lease.deadline:
		if !s.expireLocked(h.lease) {
			return ErrLost
		}
		s.forgetLocked(h)
		return ErrFrozen
	case h.state.Cancelled:
		s.forgetLocked(h)
		return ErrCancelled
	case s.stopped != nil: // a job of a claim that was under way
		s.forgetLocked(h)
		return s.stopped
	}
	h.cancel = cancel
	return nil
}

// Drop forgets a run that has ended, and returns what has become of it. When it is
// lost, the result may not be stored.
func (s *Set[R]) Drop(h *Hold[R]) State {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLocked(h)
	h.cancel = nil
	delete(s.unstopped, h)
	return h.state
}

func (s *Set[R]) forgetLocked(h *Hold[R]) {
	if s.held[h.job] != h { // the job may have come back under another token
		return
	}
	delete(s.held, h.job)
	if h.lease.open--; h.lease.open == 0 && s.leases[h.lease.id] == h.lease {
		delete(s.leases, h.lease.id)
	}
}

// State returns what has become of a run so far.
func (s *Set[R]) State(h *Hold[R]) State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return h.state
}

// Status is how a run is held.
type Status struct {
	State
	Deadline time.Duration // when its lease is given up unless it is extended before
	ExtendAt time.Duration // when the next extension is due
}

// Status returns how the run of a job is held; false when it is not.
func (s *Set[R]) Status(job int64) (Status, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, ok := s.held[job]
	if !ok {
		return Status{}, false
	}
	return Status{State: h.state, Deadline: h.lease.deadline - s.delayLocked(h), ExtendAt: h.lease.extendAt}, true
}

// Completing records that the handler's own transaction has ended the run, or will when it
// commits. If the database then says that the run is over, that need not mean that the lease
// is lost.
func (s *Set[R]) Completing(h *Hold[R]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.ending++
	h.state.Completing = true
}

// GoesOn undoes one call of Completing: what could have ended the run has not.
func (s *Set[R]) GoesOn(h *Hold[R]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.ending--
	if !h.state.Lost { // if it is lost, the loss was not reported, and Completing says so
		h.state.Completing = h.ending > 0
	}
}

// Running returns the runs whose handlers have begun and have not completed the
// job, by the job's id: the order in which rows are locked.
func (s *Set[R]) Running() []R {
	s.mu.Lock()
	defer s.mu.Unlock()
	holds := make([]*Hold[R], 0, len(s.held))
	for _, h := range s.held {
		if h.cancel != nil && !h.state.Completed {
			holds = append(holds, h)
		}
	}
	slices.SortFunc(holds, func(a, b *Hold[R]) int { return cmp.Compare(a.job, b.job) })
	return runsOf(holds)
}

func runsOf[R any](holds []*Hold[R]) []R {
	runs := make([]R, len(holds))
	for i, h := range holds {
		runs[i] = h.run
	}
	return runs
}

// OnLost sets the function that is called when the run is lost, even if its context has
// ended before; nil for none. The function must not call the set.
func (s *Set[R]) OnLost(h *Hold[R], call func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.onLost = call
}

// Interrupt cancels the context of a running handler.
func (s *Set[R]) Interrupt(h *Hold[R], cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.cancel != nil {
		h.cancel(cause)
	}
}

// Stop cancels every running handler for the reason, and lets none begin.
func (s *Set[R]) Stop(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = reason
	for _, h := range s.held {
		if h.cancel != nil {
			h.cancel(reason)
		}
	}
}

// Abandon gives up on handlers that do not stop: what they still report is not stored.
// held are their runs that were held until now. lost are those that were lost before, or
// that a transaction of the handler has ended or may have. Stop must be called before, so
// that no other handler runs or begins.
func (s *Set[R]) Abandon() (held, lost []R) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.held {
		switch {
		case h.state.Completing:
			h.state.Abandoned = true
			s.forgetLocked(h)
			lost = append(lost, h.run)
		case h.cancel != nil:
			h.state.Lost, h.state.Abandoned = true, true
			if h.onLost != nil {
				h.onLost()
			}
			s.forgetLocked(h)
			held = append(held, h.run)
		}
	}
	for h := range s.unstopped {
		h.state.Abandoned = true
		lost = append(lost, h.run)
	}
	return held, lost
}
