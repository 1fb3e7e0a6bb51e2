package worker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// ErrStalled is the cause of a context that ended because the run was silent
// for too long. It counts as a timeout.
var ErrStalled = fmt.Errorf("run stalled: %w", ErrTimedOut)

// Policy is how a worker runs jobs of a kind, whatever runs them. The zero
// value changes nothing.
type Policy struct {
	// Slots is how many jobs of the kind run at once, of each queue. They are
	// then apart from the queue's own slots. Default: those of the queue.
	Slots int
	// Timeout ends runs that take longer, of jobs that have no timeout of their own.
	Timeout time.Duration
	// StallTimeout ends runs that have neither written output nor told anything
	// for so long.
	StallTimeout time.Duration
}

// SetPolicy says how jobs of a kind are run. To be called before Run, after
// the kind was given its handler.
func SetPolicy(w *Worker, kind string, policy Policy) error {
	handler, ok := w.handlers.byKind[kind]
	if !ok {
		return fmt.Errorf("policy of kind %q: it has no handler", kind)
	}
	if policy.Slots < 0 || policy.Slots > 10_000 || policy.Timeout < 0 || policy.StallTimeout < 0 {
		return fmt.Errorf("policy of kind %q: slots must be 0 to 10000, and timeouts not negative", kind)
	}
	w.handlers.byKind[kind] = policy.wrap(handler)
	if policy.Slots > 0 {
		w.kindSlots[kind] = policy.Slots
	}
	return nil
}

func (p Policy) wrap(handler rawHandler) rawHandler {
	return func(ctx context.Context, r *Run) error {
		if p.Timeout > 0 && r.row.TimeoutMs == 0 {
			timer := time.AfterFunc(p.Timeout, func() { r.interrupt(ErrTimedOut) })
			defer timer.Stop()
		}
		if p.StallTimeout > 0 {
			ended := make(chan struct{})
			defer close(ended)
			go r.watch(p.StallTimeout, ended)
		}
		err := handler(ctx, r)
		switch cause := context.Cause(ctx); {
		case err == nil:
		case errors.Is(cause, ErrStalled):
			err = fmt.Errorf("no output and no progress for %s: %w", p.StallTimeout, err)
		case errors.Is(cause, ErrTimedOut):
			err = fmt.Errorf("timed out: %w", err)
		}
		return err
	}
}

// watch interrupts the run when nothing was heard of it for the time.
func (r *Run) watch(patience time.Duration, ended <-chan struct{}) {
	ticker := time.NewTicker(max(patience/8, time.Millisecond))
	defer ticker.Stop()
	seen, seenAt := r.activity(), time.Now()
	for {
		select {
		case <-ended:
			return
		case <-ticker.C:
		}
		if now := r.activity(); now != seen {
			seen, seenAt = now, time.Now()
		} else if time.Since(seenAt) >= patience {
			r.interrupt(ErrStalled)
			return
		}
	}
}

// signs counts what a run has told.
type signs struct{ atomic.Int64 }

// activity changes with whatever the run tells or writes.
func (r *Run) activity() int64 {
	told := r.signs.Load()
	if live := r.live.Load(); live != nil {
		told += live.source.Written()
	}
	return told
}

// interrupt cancels the run's context for the reason.
func (r *Run) interrupt(reason error) {
	k := r.worker.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	if r.hold.cancel != nil {
		r.hold.cancel(reason)
	}
}
