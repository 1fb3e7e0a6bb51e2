package worker

import (
	"sync/atomic"
	"time"
)

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
	r.worker.keeper.held.Interrupt(&r.hold, reason)
}
