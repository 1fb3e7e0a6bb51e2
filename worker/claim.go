package worker

import (
	"cmp"
	"slices"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/worker/internal/clock"
	"github.com/jobq-dev/jobq/worker/internal/leases"
	"github.com/jobq-dev/jobq/worker/internal/line"
)

// claim is a claim under way, of one round trip.
type claim struct {
	queue    *queue
	request  db.JobClaimParams
	plan     line.Claim
	settings leases.Settings
	// notification is the last of new jobs that was received before it was sent.
	notification string
	unblocks     int // of the load, before it was sent
	underWay     *leases.Claim
}

// newClaim returns a claim of up to so many jobs.
func (q *queue) newClaim(count int, settings leases.Settings) *claim {
	c := &claim{queue: q, settings: settings, notification: q.notifications.Last(), unblocks: q.load.unblockCount(), underWay: q.worker.claimed.Begin()}
	c.request = db.JobClaimParams{
		Lease: db.Interval(settings.Length), Owner: q.worker.id, Queue: q.name, Kinds: q.worker.claimable(q.kinds),
		JobCount: int32(count), // #nosec G115 -- bounded by line.ClaimMax
	}
	c.plan = q.load.begin(clock.SinceBoot(), &c.request, len(c.request.Kinds) < len(q.kinds))
	return c
}

// answered takes over the jobs that the claim, sent at the instant, has got, and
// tells the other workers when it left none.
func (c *claim) answered(answer db.Exchanged, sent, took time.Duration) {
	c.queue.worker.claimed.Answered(c.underWay, leasesMade(answer.Claimed))
	now, admission := clock.SinceBoot(), answer.Admission
	if admission.Blocked != db.BlockedByNothing {
		if len(answer.Claimed) >= admission.Jobs { // else there is room, and no job for it
			c.queue.load.blocked(now, admission, c.queue.worker.config.PollInterval, c.unblocks)
		}
		if admission.Jobs == 0 { // so it has not looked
			c.queue.load.failed(now, c.plan, took, false)
			return
		}
		c.plan = c.plan.Admitted(admission.Jobs)
	}
	if leftNothing := c.queue.load.answered(now, c.plan, answer.Claimed, took); leftNothing {
		c.queue.notifications.TellOthers(c.notification)
	}
	c.queue.accept(answer.Claimed, sent, c.settings)
}

// failed makes the queue claim again, and has jobs given back that it may have got.
func (c *claim) failed(took time.Duration, err error) {
	w, now := c.queue.worker, clock.SinceBoot()
	if db.MayHaveCommitted(err) {
		w.claimed.Unanswered(c.underWay, now+c.settings.Length)
		signal(w.unanswered)
	} else {
		w.claimed.Answered(c.underWay, nil)
	}
	c.queue.load.failed(now, c.plan, took, db.IsTimeout(err))
}

// leasesMade are the leases of jobs that one claim has got, each once.
func leasesMade(claimed []db.JobClaimRow) []int64 {
	var ids []int64
	for i := range claimed {
		if id := claimed[i].LeaseToken; i == 0 || id != claimed[i-1].LeaseToken {
			ids = append(ids, id)
		}
	}
	return ids
}

// accept takes charge of claimed jobs and hands them to the slots, first in line
// first.
func (q *queue) accept(claimed []db.JobClaimRow, sent time.Duration, settings leases.Settings) {
	if len(claimed) == 0 {
		return
	}
	slices.SortFunc(claimed, func(a, b db.JobClaimRow) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Position.Int64, b.Position.Int64))
	})
	runs, holds := make([]*Run, len(claimed)), make([]*leases.Hold[*Run], len(claimed))
	for i, row := range claimed {
		run := &Run{worker: q.worker, queue: q, row: row, claimedAt: sent}
		run.hold = leases.NewHold(run, row.ID, row.LeaseToken, row.StartedAt.Time)
		runs[i], holds[i] = run, &run.hold
	}
	q.worker.keeper.held.Add(holds, q.settings, settings, sent)
	q.worker.counts.claimed.Add(int64(len(runs)))
	q.worker.digests.Claimed(claimed)
	for _, run := range runs {
		q.buffer <- run // has room: no more is claimed than fits
	}
}
