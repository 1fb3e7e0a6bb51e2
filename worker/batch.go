package worker

import (
	"context"
	"errors"
	"time"
)

// A worker with ExitWhenEmpty looks for the first time emptyFirst after its start, since it may
// have little to do. Each pause after that is twice as long, up to emptyEvery.
const (
	emptyFirst = 10 * time.Millisecond
	emptyEvery = 250 * time.Millisecond
)

// ErrTooManyFailures is returned by Run when as many runs in a row have failed
// as Batch.MaxConsecutiveFailures says.
var ErrTooManyFailures = errors.New("too many runs in a row have failed")

// Batch says when a worker ends by itself. The zero value means never.
type Batch struct {
	// TimeLimit is how long the worker runs before it drains, from the time when the
	// database has answered. Default 0: no limit. Not negative.
	TimeLimit time.Duration
	// MaxConsecutiveFailures is after how many failed runs without a completed
	// one between them the worker drains; Run then returns ErrTooManyFailures.
	// Default 0: no limit. Not negative.
	MaxConsecutiveFailures int
	// ExitWhenEmpty drains the worker when its queues have nothing available of
	// its kinds, and nothing runs. These jobs do not count:
	//   - Jobs that are to start later.
	//   - Jobs with a partition key that such a job holds, or that a failed job stops (see
	//     jobq.KeyOrder). The worker checks 1,000 keys of a queue; if there are more, it waits.
	//   - Jobs of a kind that the worker leaves to others for a while, because it could not
	//     decode the last ones.
	//   - All jobs while an operator holds the worker's host.
	//
	// Default false.
	ExitWhenEmpty bool
	// LeaveDue is for ExitWhenEmpty if no janitor runs: scheduled jobs whose time has come do
	// not count either. Default false: the worker waits until a janitor has made them
	// available, and runs them.
	LeaveDue bool
}

// observe counts the end of a run for MaxConsecutiveFailures.
func (w *Worker) observe(failed, completed bool) {
	if limit := w.config.Batch.MaxConsecutiveFailures; limit > 0 {
		w.halt.observe(limit, failed, completed)
	}
}

// awaitEmpty ends the worker when there is nothing to do. Before it asks the
// database it must have nothing in hand, and afterwards as well: a job that it
// claimed meanwhile is no longer in the table.
//
// If the worker has nothing in hand although there is work, it may not know yet that a queue has its
// first job with a partition key. A heartbeat tells it. The reason may also be a limit of the queue,
// for hours, so the worker asks for a heartbeat at the first, second, fourth and eighth such look, and so on.
func (w *Worker) awaitEmpty(ctx context.Context) {
	timer := time.NewTimer(emptyFirst)
	defer timer.Stop()
	var claimed int64 // in all, at the last look that has found work
	looks := 0        // that have found work, since a job was claimed
	for wait := emptyFirst; ; timer.Reset(wait) {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		wait = min(2*wait, emptyEvery)
		before := w.counts.claimed.Load()
		if !w.isIdle() {
			continue
		}
		if w.hasWork(ctx) {
			if before != claimed {
				claimed, looks = before, 0
			}
			if looks++; looks&(looks-1) == 0 {
				signal(w.beatSoon)
			}
			continue
		}
		if !w.isIdle() || w.counts.claimed.Load() != before {
			continue
		}
		w.log.Info("nothing left to do")
		w.halt.begin(nil, true)
		return
	}
}

func (w *Worker) isIdle() bool {
	for _, q := range w.queues {
		for _, each := range q.all() {
			if !each.load.isIdle() {
				return false
			}
		}
	}
	return true
}

// hasWork says whether there is, or may be, a job that could run now. Kinds whose jobs cannot
// be decoded here, or that rest here, do not count: others may have the key, or succeed.
func (w *Worker) hasWork(ctx context.Context) bool {
	names := make([]string, 0, len(w.queues))
	for name := range w.queues {
		names = append(names, name)
	}
	now := time.Now()
	kinds := w.resting.Claimable(w.unreadable.Claimable(w.claims, now), now)
	if len(kinds) == 0 || w.isHeld() {
		return false // all are left to other workers, for longer than a batch should wait
	}
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	waiting, err := w.queries.WorkWaits(callCtx, !w.config.Batch.LeaveDue, kinds, names)
	if err != nil && ctx.Err() == nil {
		w.databaseTrouble(err) // whatever it is: while it lasts, the worker does not end
	}
	return err != nil || waiting
}
