package worker

import (
	"sync/atomic"
	"time"
)

// watch interrupts the run with ErrStalled when it has reported and written nothing for patience. The
// time in which it is frozen does not count. It returns when ended is closed.
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
		if now := r.activity(); now != seen || r.worker.keeper.held.IsFrozen(&r.hold) {
			seen, seenAt = now, time.Now()
		} else if time.Since(seenAt) >= patience {
			r.interrupt(ErrStalled)
			return
		}
	}
}

// signs counts the reports of a run.
type signs struct{ atomic.Int64 }

// activity is a number that changes whenever the run reports or writes something.
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
