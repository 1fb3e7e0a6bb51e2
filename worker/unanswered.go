package worker

import (
	"context"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/worker/internal/clock"
)

// unansweredBatch is the most leases that one search returns.
const unansweredBatch = 100

// lookForUnanswered releases the jobs of claims whose answers were lost, for example because the
// server was restarted. No handler runs these jobs, and their leases keep other workers from
// them. It searches as soon as the database answers. It searches again, with growing pauses,
// until the leases would have ended, because the server may still execute a claim for which the
// worker no longer waits.
func (w *Worker) lookForUnanswered(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.unanswered:
		}
		for backoff := (db.Backoff{}); w.giveBackUnanswered(ctx); {
			if backoff.Wait(ctx) != nil {
				return
			}
		}
	}
}

// giveBackUnanswered searches once, and says whether to search again.
func (w *Worker) giveBackUnanswered(ctx context.Context) (again bool) {
	after, known, again := w.claimed.Search(clock.SinceBoot())
	if !again {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, exchangeTimeoutMax)
	defer cancel()
	found, err := w.schema.UnansweredLeases(ctx, w.pool, w.id, after, known, unansweredBatch)
	if err != nil {
		if ctx.Err() == nil || db.IsTimeout(err) {
			w.databaseTrouble(err)
		}
		return true
	}
	if len(found) == 0 {
		w.claimed.FoundNone()
		return true
	}
	// A lease that was found may be of a claim whose answer is about to arrive: wait for these.
	for _, over := range w.claimed.UnderWay() {
		select {
		case <-over:
		case <-ctx.Done():
			return true
		}
	}
	for _, lease := range found {
		if w.claimed.IsUnknown(lease.ID) {
			w.giveBack(ctx, lease)
		}
	}
	return true
}

// giveBack releases all jobs of a lease that the worker did not know of. This costs them no
// attempt. If it fails, the next search finds the lease again.
func (w *Worker) giveBack(ctx context.Context, lease db.LeaseUnansweredRow) {
	q := w.queues[lease.Queue]
	request := db.Exchange{Owner: w.id, Queue: lease.Queue, HasLimits: q.settings.Load().HasLimits}
	for i, job := range lease.JobIds {
		slot := db.Slot{ID: job, Token: lease.ID, Slot: int16(i + 1), ClaimedAt: lease.ClaimedAt.Time} // #nosec G115 -- bounded by line.ClaimMax
		request.Endings = append(request.Endings, db.Ending{Slot: slot, Outcome: string(jobq.OutcomeReleased)})
	}
	answer, err := w.schema.Exchange(ctx, w.pool, request)
	if returned := len(answer.Ended); returned > 0 {
		w.log.Warn("jobs given back: the answer to their claim was lost", "queue", lease.Queue, "jobs", returned, "token", lease.ID)
		for _, each := range q.all() {
			each.lookAgain()
		}
	}
	// While another session has locked the lease, the lease counts the jobs as running. If it
	// is still locked when the context ends, it counts them until it expires.
	for backoff := (db.Backoff{}); err == nil && len(answer.Unrecorded) > 0 && backoff.Wait(ctx) == nil; {
		request.Endings, request.Unrecorded = nil, answer.Unrecorded
		answer, err = w.schema.Exchange(ctx, w.pool, request)
	}
	if err != nil {
		w.log.Debug("jobs not given back yet", "queue", lease.Queue, "token", lease.ID, "error", err)
	}
}
