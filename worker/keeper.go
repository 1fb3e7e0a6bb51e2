package worker

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jobq-dev/jobq/worker/internal/clock"
)

// keeper holds every run of the worker and the leases that these are under. It
// extends all leases that are due in one statement, or asks after them where the
// ticker does not extend, and gives up the runs of those that it could not extend
// in time. Its clock always ends a lease before the database's does: a deadline is
// the instant before the claim or the extension was sent, plus the lease, less the
// kill margin.
type keeper struct {
	worker *Worker
	wake   chan struct{} // a cancel notification: extend now, the answer tells

	mu sync.Mutex
	// guarded by mu
	held    map[int64]*Run   // by the job's id
	leases  map[int64]*lease // those with runs that are held
	astray  map[*Run]struct{}
	stopped error         // why no handler is to begin any more
	late    time.Duration // how late its clock rings, of late: the machine is overloaded
}

func newKeeper(w *Worker) *keeper {
	return &keeper{
		worker: w, wake: make(chan struct{}, 1),
		held: make(map[int64]*Run), leases: make(map[int64]*lease), astray: make(map[*Run]struct{}),
	}
}

// wakeFor makes the next extension happen at once when the job is held here.
func (k *keeper) wakeFor(id int64) {
	k.mu.Lock()
	r, ok := k.held[id]
	if ok {
		r.lease.extendAt = 0
	}
	k.mu.Unlock()
	if ok {
		signal(k.wake)
	}
}

// wakeAll makes the next extension of every lease happen at once: somebody may
// have cancelled a job while nobody listened.
func (k *keeper) wakeAll() {
	k.mu.Lock()
	for _, l := range k.leases {
		l.extendAt = 0
	}
	k.mu.Unlock()
	signal(k.wake)
}

// run checks deadlines, extends leases and stores progress until the context
// ends. What talks to the database runs beside the checks, one call of each
// sort at a time: a database that does not answer must not keep the deadlines
// from being seen.
func (k *keeper) run(ctx context.Context) {
	var calls sync.WaitGroup
	defer calls.Wait()
	extending, flushing := make(chan struct{}, 1), make(chan struct{}, 1)
	beside := func(busy chan struct{}, call func()) {
		select {
		case busy <- struct{}{}:
			calls.Go(func() {
				call()
				<-busy
			})
		default: // the one before has not ended
		}
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	planned := clock.SinceBoot()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			k.observeDelay(clock.SinceBoot() - planned)
		case <-k.wake:
		}
		k.expire()
		if due := k.due(); len(due) > 0 {
			beside(extending, func() { k.extend(ctx, due) })
		}
		if k.hasProgress() {
			beside(flushing, func() { k.flushProgress(ctx) })
		}
		tick := k.tick()
		planned = clock.SinceBoot() + tick
		timer.Reset(tick)
	}
}

// observeDelay remembers how late the keeper's clock rings when the machine is
// overloaded, and forgets it within some ticks. By so much the leases of programs
// are given up earlier: the signals that stop them will be as late. Steps of 50 ms,
// so that the programs' deadlines do not change all the time.
func (k *keeper) observeDelay(delay time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.late = max(delay, k.late*7/8).Truncate(50 * time.Millisecond)
}

// delayLocked is the part of that which counts for a run: nothing without a
// program, and its kill margin at most.
func (k *keeper) delayLocked(r *Run) time.Duration {
	if k.late == 0 || r.onLost.Load() == nil {
		return 0
	}
	return min(k.late, killMargin(r.lease.queue.settings().lease))
}

// tick is how long until the keeper looks again: a fraction of the shortest kill
// margin in use, or until the next deadline.
func (k *keeper) tick() time.Duration {
	tick := time.Second
	for _, q := range k.worker.queues {
		tick = min(tick, killMargin(q.settings().lease)/4)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := clock.SinceBoot()
	for _, r := range k.held {
		if !r.hold.completed {
			tick = min(tick, r.lease.deadline-k.delayLocked(r)-now)
		}
	}
	return max(tick, 20*time.Millisecond)
}

// expire gives up leases whose deadline has passed, for one of their runs.
func (k *keeper) expire() {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := clock.SinceBoot()
	for _, r := range k.held {
		if now+k.delayLocked(r) >= r.lease.deadline && !r.hold.completed {
			k.loseLocked(r.lease)
		}
	}
}

// due returns the leases that it is time to extend, by id.
func (k *keeper) due() []*lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := clock.SinceBoot()
	var due []*lease
	for _, l := range k.leases {
		if now >= l.extendAt {
			due = append(due, l)
		}
	}
	slices.SortFunc(due, func(a, b *lease) int { return cmp.Compare(a.id, b.id) })
	return due
}

// running returns the runs whose handlers have begun and have not completed the
// job, by id: the order in which rows are locked.
func (k *keeper) running() []*Run {
	k.mu.Lock()
	defer k.mu.Unlock()
	runs := make([]*Run, 0, len(k.held))
	for _, r := range k.held {
		if r.hold.cancel != nil && !r.hold.completed {
			runs = append(runs, r)
		}
	}
	slices.SortFunc(runs, func(a, b *Run) int { return cmp.Compare(a.row.ID, b.row.ID) })
	return runs
}

// stop cancels every running handler for the reason, and lets none begin.
func (k *keeper) stop(reason error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stopped = reason
	for _, r := range k.held {
		if r.hold.cancel != nil {
			r.hold.cancel(reason)
		}
	}
}

// abandon gives up on handlers that do not stop, and kills their programs:
// whatever they still report is not stored. It returns the runs that were
// held until now, and those that were lost, or that their handlers' own
// transactions have completed or may have, before. No other handler runs, nor will one, once stop was called.
func (k *keeper) abandon() (held, lost []*Run) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.held {
		switch {
		case r.hold.completing:
			r.hold.given = true
			k.forgetLocked(r)
			lost = append(lost, r)
		case r.hold.cancel != nil:
			r.hold.lost, r.hold.given = true, true
			if onLost := r.onLost.Load(); onLost != nil {
				(*onLost)()
			}
			k.forgetLocked(r)
			held = append(held, r)
		}
	}
	for r := range k.astray {
		r.hold.given = true
		lost = append(lost, r)
	}
	return held, lost
}
