package worker

import (
	"context"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
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
		began := clock.SinceBoot()
		for _, q := range w.queues {
			for _, each := range q.all() {
				each.load.setAged(clock.SinceBoot(), each.aged(ctx))
			}
		}
		rest = max(w.agedLookEvery, agedRestShare*(clock.SinceBoot()-began))
	}
}

// aged looks which priorities of the queue have waited for too long: none, when that cannot
// be found out. It asks for the kinds that the queue claims, since a claim that begins with a
// priority of which it asks for no job walks past all of them.
func (q *queue) aged(ctx context.Context) []db.Aged {
	kinds := q.worker.claimable(q.kinds)
	if len(kinds) < len(q.kinds) || !q.load.isBehind() { // a claim of some kinds begins with none of them
		return nil
	}
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	aged, err := q.worker.schema.AgedPriorities(callCtx, q.worker.pool, q.name, kinds)
	switch {
	case err == nil || ctx.Err() != nil:
	case db.IsTimeout(err): // so the database answers, but for this
		q.worker.log.DebugContext(ctx, "looking for jobs that wait behind more urgent ones took too long", "queue", q.name, "error", err)
	default:
		q.worker.databaseTrouble(err)
	}
	return aged
}
