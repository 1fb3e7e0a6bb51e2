package worker

import (
	"context"
	"slices"
	"time"

	"github.com/jobq-dev/jobq/worker/internal/clock"
)

const (
	// agedLookEvery is how often a worker looks which priorities have waited for too long.
	agedLookEvery = 10 * time.Second
	// agedRestShare is how many times as long as a look took the next one waits at least: while
	// a transaction is held open, a look walks past what was claimed since.
	agedRestShare = 19
)

// lookForAged tells the queues which of their priorities have waited for too long, until
// the context ends. Only those that may have left jobs in the line are looked at: where all
// that came was claimed, nothing waits behind more urgent jobs.
func (w *Worker) lookForAged(ctx context.Context) {
	rest := w.agedLookEvery
	for !within(ctx.Done(), rest, nil) {
		var behind []string
		for name, q := range w.queues {
			if slices.ContainsFunc(q.all(), func(each *queue) bool { return each.load.isBehind() }) {
				behind = append(behind, name)
			} else {
				q.setAged(nil)
			}
		}
		rest = w.agedLookEvery
		if len(behind) == 0 {
			continue
		}
		began := clock.SinceBoot()
		w.lookForAgedIn(ctx, behind)
		rest = max(rest, agedRestShare*(clock.SinceBoot()-began))
	}
}

// lookForAgedIn is one look. When it fails, what the last one has found stands.
func (w *Worker) lookForAgedIn(ctx context.Context, queues []string) {
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	aged, err := w.schema.AgedPriorities(callCtx, w.pool, queues, w.claims)
	if err != nil {
		if ctx.Err() == nil {
			w.databaseTrouble(err)
		}
		return
	}
	for _, name := range queues {
		w.queues[name].setAged(aged[name])
	}
}
