package worker

import (
	"context"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/worker/internal/ahead"
	"github.com/jobq-dev/jobq/worker/internal/clock"
)

// nextBegin says which jobs that were claimed ahead are to begin, for the round trip with these
// results and a claim of count jobs, as take has returned them. If there is neither, and a slot is
// free for such a job, a round trip is made for it alone.
func (q *queue) nextBegin(ctx context.Context, results []result, count int) []db.LeaseBegin {
	if ctx.Err() != nil {
		return nil // they are released
	}
	return q.load.askBegin(clock.SinceBoot(), results, count)
}

// putAhead has runs of a claim begin when that is stored in their leases. The claim has stored soon in
// leases of which no run can be the last that its job may lose, and begun in the others.
func (q *queue) putAhead(runs []*Run, begun, soon int16) {
	jobs := make([]ahead.Job[*Run], len(runs))
	for i, run := range runs {
		jobs[i] = ahead.Job[*Run]{Run: run, Slot: run.slot(), Last: run.row.Attempts+1 >= run.row.MaxAttempts || run.row.Lost > 0}
	}
	q.load.putAhead(jobs, begun, soon, q.buffer)
}

// began gives the slots the jobs of a request that may begin. stored are the leases that say so.
func (q *queue) began(begin []db.LeaseBegin, stored []int64, err error) {
	if len(begin) == 0 {
		return
	}
	retryAt := clock.SinceBoot()
	if err == nil {
		retryAt += busyDelay
	}
	for _, run := range q.load.began(begin, stored, retryAt, q.buffer) {
		if err == nil { // another session has locked the lease, or it is lost: the keeper finds out
			q.worker.keeper.wakeFor(run.row.ID)
		}
	}
}

// dropLost forgets the jobs claimed ahead whose leases are lost. The loss was reported.
func (q *queue) dropLost() {
	if !q.someLost.Swap(false) {
		return
	}
	for range q.load.removeAhead(func(run *Run) bool { return q.worker.keeper.held.State(&run.hold).Lost }) {
		q.discard()
	}
}

// askBegin is the part of nextBegin that is one step under the mutex.
func (l *load) askBegin(now time.Duration, results []result, count int) []db.LeaseBegin {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ahead.Len() == 0 {
		return nil
	}
	alone, more := len(results) == 0 && count == 0, 0
	if !alone {
		more = l.planner.BeginAhead(l.slots)
	}
	own := make(map[int64]bool)
	for _, id := range leasesOf(results) {
		own[id] = true
	}
	isBusy := func(token int64) bool {
		_, recording := l.recording[token]
		return recording && !own[token]
	}
	begin := l.ahead.Ask(now, l.slots-(l.inHand-l.ahead.Len())-l.promised, more, isBusy)
	for _, b := range begin {
		l.recording[b.Token] = struct{}{}
	}
	if alone && len(begin) > 0 {
		l.roundTrips++
	}
	return begin
}

func (l *load) putAhead(jobs []ahead.Job[*Run], begun, soon int16, buffer chan<- *Run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ahead.Add(jobs, begun, soon)
	l.startLocked(buffer)
}

func (l *load) began(begin []db.LeaseBegin, stored []int64, retryAt time.Duration, buffer chan<- *Run) (unknown []*Run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	unknown = l.ahead.Answered(begin, stored, retryAt)
	l.startLocked(buffer)
	return unknown
}

// startLocked moves the jobs that may begin into the buffer. It never blocks: there are never more jobs
// in hand than the buffer has room for.
func (l *load) startLocked(buffer chan<- *Run) {
	for _, run := range l.ahead.Ready() {
		buffer <- run
	}
}

// exchanged records how long a round trip took.
func (l *load) exchanged(took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.planner.Exchanged(took)
}

func (l *load) removeAhead(is func(*Run) bool) []*Run {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ahead.Remove(is)
}

// aheadCount is how many jobs were claimed ahead and may not begin yet.
func (l *load) aheadCount() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ahead.Len()
}

// promise returns how many slots are free for a claim of count jobs: those that have no job, and that
// other claims under way will not fill. That many of its jobs begin at once, and soon so many. fulfilled
// must follow.
func (l *load) promise(count int) (free, soon int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	free = l.slots - l.inHand - (l.claiming - count)
	soon = max(free+l.planner.BeginAhead(l.slots), 0)
	free = max(free, 0)
	l.promised += free
	return free, soon
}

func (l *load) fulfilled(promised int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.promised -= promised
}
