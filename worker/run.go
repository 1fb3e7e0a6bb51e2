package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jobq-dev/jobq/internal/steps"
	"github.com/jobq-dev/jobq/worker/internal/clock"
	"github.com/jobq-dev/jobq/worker/internal/leases"
)

// errExited is the failure of a run whose handler has ended its goroutine.
var errExited = errors.New("the handler called runtime.Goexit, as FailNow of a test does")

// runSlot runs handlers, one after the other, until the buffer is closed. When a handler ends the
// goroutine with runtime.Goexit, its run fails, and a new goroutine takes over the slot.
func (q *queue) runSlot(slots *sync.WaitGroup) {
	closed := false
	defer func() {
		if !closed {
			slots.Go(func() { q.runSlot(slots) })
		}
	}()
	for run := range q.buffer {
		q.execute(run)
	}
	closed = true
}

// execute runs the handler of one job, and then finish.
func (q *queue) execute(run *Run) {
	may, tries := q.worker.resting.Begin(run.row.Kind, time.Now())
	if tries {
		defer q.worker.resting.Untried(run.row.Kind) // for an end that says nothing; Ended has done so otherwise
	}
	if !may || q.worker.isHeld() { // claimed before the kind had to rest, or before somebody held the host
		q.releaseUnstarted(run)
		return
	}
	ctx, cancel := context.WithCancelCause(q.worker.handlers.ctx)
	defer cancel(nil)
	if run.row.TimeoutMs > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, time.Duration(run.row.TimeoutMs)*time.Millisecond, ErrTimedOut)
		defer stop()
	}
	run.began = time.Now()
	if err := q.worker.keeper.held.Start(&run.hold, clock.SinceBoot(), cancel); err != nil {
		q.refuse(run, err)
		return
	}
	err := errExited
	defer func() { q.finish(ctx, run, err) }() // also when the handler ends the goroutine
	err = guard(func() error { return run.call(steps.With(ctx, (*stepRun)(run))) })
}

// finish records how the run has ended, for the next round trip.
func (q *queue) finish(ctx context.Context, run *Run, err error) {
	run.ran = time.Since(run.began)
	cause := context.Cause(ctx)
	state := q.worker.keeper.held.Drop(&run.hold)
	if state.Abandoned {
		return // counted when it was abandoned
	}
	if state.Completing {
		var settled bool
		if settled, err = q.settleTx(run, err, state); settled {
			return
		}
	}
	if state.Lost {
		q.discard() // reported when it was lost
		return
	}
	var r result
	defer func() {
		if r.run == nil { // user code has ended the goroutine: exited calls none of it
			r = run.exited()
		}
		q.worker.observe(r.failed(), r.completion != nil)
		q.worker.runEnded(run.row.Kind, r.failed() && !r.ending.Final, r.completion != nil)
		q.end(r)
	}()
	r = run.result(err, cause)
}

// refuse ends a run whose handler was not called. reason says why.
func (q *queue) refuse(run *Run, reason error) {
	if errors.Is(reason, ErrLeaseLost) {
		q.discard() // reported when it was lost
		return
	}
	if errors.Is(reason, leases.ErrFrozen) {
		q.end(run.released(false))
		return
	}
	ending := endingOf(reason, reason)
	ending.Slot, ending.Started = run.slot(), false
	q.end(result{run: run, ending: &ending})
}

// call decodes the job, and then runs the handler within the middleware.
func (r *Run) call(ctx context.Context) error {
	if err := r.decode(ctx); err != nil {
		return err
	}
	handled, ok := r.worker.handlers.byKind[r.row.Kind]
	if !ok { // the claim asks for handled kinds only
		return errors.New("no handler for kind " + r.row.Kind)
	}
	next := func(ctx context.Context) error { return handled.options.within(ctx, r, handled.call) }
	for i := len(r.worker.config.Middleware) - 1; i >= 0; i-- {
		middleware, inner := r.worker.config.Middleware[i], next
		next = func(ctx context.Context) error { return middleware(ctx, r, inner) }
	}
	return next(ctx)
}
