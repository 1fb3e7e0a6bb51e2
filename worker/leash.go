package worker

import (
	"context"
	"errors"
	"sync"
	"time"
)

// leash is what stops the program of a run: the end of its context asks the
// program to end, and the closed channel kills it. A lease can also be lost
// while the program has been asked already.
type leash struct {
	ctx  context.Context
	kill chan struct{}
	// held is for what the program says. It ends when the lease is lost and not
	// when the program is asked to end: a checkpoint in the grace counts.
	held context.Context

	run     *Run
	unhook  func() bool
	cancel  context.CancelCauseFunc
	release context.CancelCauseFunc // of held
	killed  sync.Once
	dropped chan struct{} // closed by drop
}

// newLeash returns the leash of a run. When the lease is lost it kills at
// once, or after half of the kill margin if there is to be a SIGTERM before:
// the lease then still has the other half of its margin to run.
func newLeash(ctx context.Context, r *Run, lostTerminates bool) *leash {
	l := &leash{kill: make(chan struct{}), dropped: make(chan struct{}), run: r}
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	l.held, l.release = context.WithCancelCause(context.WithoutCancel(ctx))
	lost := func() {
		l.release(ErrLeaseLost)
		if !lostTerminates {
			l.killNow()
			return
		}
		l.cancel(ErrLeaseLost)
		time.AfterFunc(r.queue.settings.Load().KillMargin()/2, l.killNow)
	}
	r.worker.keeper.held.OnLost(&r.hold, lost)
	l.unhook = context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); !errors.Is(cause, ErrLeaseLost) {
			l.cancel(cause)
			return
		}
		lost() // perhaps before it could be told above
	})
	return l
}

// deadline is when the program must be dead even if this worker is stopped or
// hangs: half of the kill margin after the worker would have given the lease
// up, and as long before it ends.
func (r *Run) deadline() time.Duration {
	return r.worker.keeper.held.Deadline(&r.hold) + r.queue.settings.Load().KillMargin()/2
}

// deadlineEvery is how often the deadline is looked at: often enough for the
// lease, which is extended every third of it.
func (r *Run) deadlineEvery() time.Duration {
	return min(max(r.queue.settings.Load().Length/10, 50*time.Millisecond), time.Second)
}

func (l *leash) killNow() { l.killed.Do(func() { close(l.kill) }) }

// drop is for when the program has ended.
func (l *leash) drop() {
	l.run.worker.keeper.held.OnLost(&l.run.hold, nil)
	l.unhook()
	l.cancel(nil)
	l.release(nil)
	close(l.dropped)
}
