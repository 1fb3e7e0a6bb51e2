package worker

import (
	"context"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/worker/internal/clock"
)

// unansweredBatch is how many leases one look takes.
const unansweredBatch = 100

// lookForUnanswered gives jobs back that claims took whose answers were lost, as when the
// server was restarted: nobody runs them, and their leases would keep everybody from
// them. It looks as soon as the database answers, and, since the server may still work
// on a claim that was given up, now and then until the leases would have ended.
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

// giveBackUnanswered looks once, and says whether it is worth while to look again.
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
		return true
	}
	for _, over := range w.claimed.UnderWay() { // what one of them has made is about to be known
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

// giveBack returns all jobs of a lease of which the worker has not known, which costs
// them no attempt. What fails is found again.
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
	// While somebody has locked the lease, it counts the jobs as running. Beyond the time
	// of the context, it does so until it ends.
	for backoff := (db.Backoff{}); err == nil && len(answer.Untold) > 0 && backoff.Wait(ctx) == nil; {
		request.Endings, request.Untold = nil, answer.Untold
		answer, err = w.schema.Exchange(ctx, w.pool, request)
	}
	if err != nil {
		w.log.Debug("jobs not given back yet", "queue", lease.Queue, "token", lease.ID, "error", err)
	}
}
