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
	// After a look, the worker waits at least agedRestShare times as long as the look took. A look
	// can take long: while a transaction is open, it reads the entries of all jobs claimed since.
	agedRestShare = 19
)

// lookForAged tells the queues which of their priorities have waited for too long, until
// the context ends. It looks only at queues that may have left jobs in the line: if a queue has
// claimed all its jobs, none waits behind more urgent ones.
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

// aged returns the priorities of the queue that have waited for too long, or none if the query
// fails. It asks only about the kinds that the queue claims: a claim that begins with a priority
// which has no job of these kinds would read past all jobs of that priority.
func (q *queue) aged(ctx context.Context) []db.Aged {
	kinds := q.worker.claimable(q.kinds)
	if len(kinds) < len(q.kinds) || !q.load.isBehind() { // a claim of only some kinds does not use aged priorities
		return nil
	}
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	aged, err := q.worker.schema.AgedPriorities(callCtx, q.worker.pool, q.name, kinds)
	switch {
	case err == nil || ctx.Err() != nil:
	case db.IsTimeout(err): // the database works, and only this query is slow
		q.worker.log.DebugContext(ctx, "looking for jobs that wait behind more urgent ones took too long", "queue", q.name, "error", err)
	default:
		q.worker.databaseTrouble(err)
	}
	return aged
}
