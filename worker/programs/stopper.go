package programs

import (
	"context"
	"errors"
	"sync"
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

	run     worker.ExternalRun
	unhook  func() bool
	ask     context.CancelCauseFunc // ends asked
	release context.CancelCauseFunc // ends held
	killNow func()                  // closes kill
	ended   chan struct{}           // closed by end
}

// newStopper returns the stopper of a run. When the lease is lost, it kills the program at
// once. With lostTerminates it first asks the program to end, and kills it after half of
// the kill margin: then the lease still holds for the other half. tell, which must not block
// for long, is called before the program is asked to end.
func newStopper(ctx context.Context, run worker.ExternalRun, lostTerminates bool, tell func(cause error)) *stopper {
	s := &stopper{kill: make(chan struct{}), ended: make(chan struct{}), run: run}
	s.killNow = sync.OnceFunc(func() { close(s.kill) })
	s.asked, s.ask = context.WithCancelCause(context.WithoutCancel(ctx))
	s.held, s.release = context.WithCancelCause(context.WithoutCancel(ctx))
	lost := sync.OnceFunc(func() {
		s.release(worker.ErrLeaseLost)
		if !lostTerminates {
			s.killNow()
			return
		}
		time.AfterFunc(run.KillMargin()/2, s.killNow)
		tell(worker.ErrLeaseLost)
		s.ask(worker.ErrLeaseLost)
	})
	run.OnLeaseLost(lost)
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

// end is for when the program has ended.
func (s *stopper) end() {
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

// deadline is when the program must be dead even if this worker is stopped or hangs, as the
// time since boot. It is in the middle of the kill margin: as long after the time at which the
// worker would give the lease up as before the end of the lease.
func deadline(run worker.ExternalRun) time.Duration { return run.GivesUpAt() + run.KillMargin()/2 }

// deadlineEvery is how often the deadline is looked at: often enough for the
// lease, which is extended again and again.
func deadlineEvery(run worker.ExternalRun) time.Duration {
	return min(max(run.KillMargin()*3/5, deadlineEveryMin), deadlineEveryMax)
}
