package programs

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobq-dev/jobq/worker"
)

// stopper stops the program of a run: the end of asked asks the program to end,
// and the closed channel kill kills it. A lease can also be lost while the program
// has been asked already.
type stopper struct {
	asked context.Context
	kill  chan struct{}
	// held is for what the program says. It ends when the lease is lost and not
	// when the program is asked to end: a checkpoint in the grace counts.
	held context.Context
	// renew is signalled when the deadline has changed at once.
	renew  chan struct{}
	frozen atomic.Bool // the program must not go on

	run     worker.ExternalRun
	unhook  func() bool
	ask     context.CancelCauseFunc // ends asked
	release context.CancelCauseFunc // ends held
	killNow func()                  // closes kill
	ended   chan struct{}           // closed by end
}

// newStopper returns the stopper of a run. When the lease is lost, it kills the program at
// once. If the command LostTerminates, it first asks the program to end, and kills it after half of
// the kill margin: then the lease still holds for the other half. If it LostFreezes, the program
// freezes by its deadline when the lease could not be extended; renew has that looked at. tell, which must not
// block for long, is called before the program is asked to end.
func newStopper(ctx context.Context, run worker.ExternalRun, command Command, renew chan struct{}, tell func(cause error)) *stopper {
	s := &stopper{kill: make(chan struct{}), ended: make(chan struct{}), run: run, renew: renew}
	s.killNow = sync.OnceFunc(func() { close(s.kill) })
	s.asked, s.ask = context.WithCancelCause(context.WithoutCancel(ctx))
	s.held, s.release = context.WithCancelCause(context.WithoutCancel(ctx))
	lost := sync.OnceFunc(func() {
		s.release(worker.ErrLeaseLost)
		if !command.LostTerminates {
			s.killNow()
			return
		}
		time.AfterFunc(run.KillMargin()/2, s.killNow)
		tell(worker.ErrLeaseLost)
		s.ask(worker.ErrLeaseLost)
	})
	run.OnLeaseLost(lost)
	if command.LostFreezes {
		run.OnFreeze(s.freeze)
	}
	s.unhook = context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); !errors.Is(cause, worker.ErrLeaseLost) {
			tell(cause)
			s.ask(cause)
			return
		}
		lost() // the lease may have been lost before OnLeaseLost was called
	})
	return s
}

// freeze freezes the program, or lets it go on.
func (s *stopper) freeze(frozen bool) {
	s.frozen.Store(frozen)
	select {
	case s.renew <- struct{}{}:
	default: // it is to be looked at already
	}
}

// end is for when the program has ended.
func (s *stopper) end() {
	s.run.OnFreeze(nil)
	s.run.OnLeaseLost(nil)
	s.unhook()
	s.ask(nil)
	s.release(nil)
	close(s.ended)
}

const (
	// deadlineEveryMin and deadlineEveryMax bound how often a program's deadline is
	// looked at.
	deadlineEveryMin = 50 * time.Millisecond
	deadlineEveryMax = time.Second
)

// frozenDeadline is a deadline that has passed: the machine was not up yet. 0 would be none.
const frozenDeadline = 1

// deadline is when the program must be dead, or frozen, even if this worker is stopped or hangs, as the
// time since boot. It is in the middle of the kill margin: as long after the time at which the
// worker would give the lease up as before the end of the lease.
func (s *stopper) deadline() time.Duration {
	if s.frozen.Load() {
		return frozenDeadline
	}
	return s.run.GivesUpAt() + s.run.KillMargin()/2
}

// deadlineEvery is how often the deadline is looked at: often enough for the
// lease, which is extended again and again.
func deadlineEvery(run worker.ExternalRun) time.Duration {
	return min(max(run.KillMargin()*3/5, deadlineEveryMin), deadlineEveryMax)
}
