package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
)

// slotsMax is the most slots that a queue, or a kind of its own, can have.
const slotsMax = 10_000

// ErrStalled is the cause of a context that ended because the run was silent
// for too long. It counts as a timeout.
var ErrStalled = fmt.Errorf("run stalled: %w", ErrTimedOut)

// HandleOptions are how a worker runs jobs of a kind, whatever runs them. They are
// given together with the kind's handler. The zero value, and nil, mean the defaults.
type HandleOptions struct {
	// Slots is how many jobs of the kind run at once, of each queue. These slots are
	// separate from the queue's own. 1 to 10,000; default 0: the kind uses the queue's
	// slots.
	Slots int
	// Timeout ends runs that take longer, of jobs that have no timeout of their own.
	// It counts as a failed attempt. Default 0: Config.Timeout. Negative: none.
	Timeout time.Duration
	// StallTimeout ends runs that have neither written output nor reported anything
	// for that long. It counts as a failed attempt. Default 0: none. Not negative.
	StallTimeout time.Duration
	// Backoff says how long the job waits after a failed attempt, instead of the
	// job's own backoff: attempt is the number of the one that has failed, from 1,
	// and err is what it returned or how it panicked. A wait below 0 is 0. What Retry
	// says wins, and a run that was lost with its worker has the job's own backoff. It
	// is called from several goroutines. Default nil: the job's own.
	Backoff func(attempt int, err error) time.Duration
}

// check refuses what cannot work.
func (o *HandleOptions) check() error {
	switch {
	case o.Slots < 0 || o.Slots > slotsMax:
		return fmt.Errorf("slots must be 0 to %d, not %d", slotsMax, o.Slots)
	case o.StallTimeout < 0:
		return fmt.Errorf("stall timeout must not be negative: %s", o.StallTimeout)
	}
	return nil
}

// within calls the handler, and ends it when it takes too long or stalls.
func (o *HandleOptions) within(ctx context.Context, r *Run, handler rawHandler) error {
	if o.Timeout > 0 && r.row.TimeoutMs == 0 {
		timer := time.AfterFunc(o.Timeout, func() { r.interrupt(ErrTimedOut) })
		defer timer.Stop()
	}
	if o.StallTimeout > 0 {
		ended := make(chan struct{})
		defer close(ended)
		go r.watch(o.StallTimeout, ended)
	}
	err := handler(ctx, r)
	switch cause := context.Cause(ctx); {
	case err == nil:
	case errors.Is(cause, ErrStalled):
		err = fmt.Errorf("no output and no progress for %s: %w", o.StallTimeout, err)
	case errors.Is(cause, ErrTimedOut):
		err = fmt.Errorf("timed out: %w", err)
	}
	return err
}

// delay sets how long a job waits before its next attempt, when one has failed. If the
// Backoff panics, the job's own backoff counts. If it ends the goroutine, see Run.exited.
func (o *HandleOptions) delay(ending *db.Ending, r *Run, err error) {
	if o.Backoff == nil || ending.Final || !isFailed(ending) || ending.Delay != (db.Delay{}) {
		return
	}
	if panicked := guard(func() error {
		ending.Delay = db.DelayOf(max(o.Backoff(r.Attempt(), err), 0))
		return nil
	}); panicked != nil {
		r.worker.log.Error("backoff of a kind panics", append(r.logAttrs(), "error", panicked)...)
	}
}
