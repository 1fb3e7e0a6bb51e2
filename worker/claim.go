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
	plain    bool // it takes jobs without a partition key, as planned
	keys     keysPlan
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
	now := clock.SinceBoot()
	if c.plain, c.keys = q.load.beginKeyed(now); c.plain {
		c.plan = q.load.begin(now, &c.request, len(c.request.Kinds) < len(q.kinds))
	}
	return c
}

// answered takes over the jobs that the claim, sent at the instant, has got, and
// tells the other workers when it left none.
func (c *claim) answered(answer db.Exchanged, sent, took time.Duration) {
	c.queue.worker.claimed.Answered(c.underWay, leasesMade(answer))
	now, admission := clock.SinceBoot(), answer.Admission
	if admission.Blocked != db.BlockedByNothing {
		if len(answer.Claimed)+len(answer.Keyed) >= admission.Jobs { // else there is room, and no job for it
			c.queue.load.blocked(now, admission, c.queue.worker.config.PollInterval, c.unblocks)
		}
		if admission.Jobs == 0 {
			c.notLooked(now, took)
			return
		}
		c.plan = c.plan.Admitted(admission.Jobs)
	}
	if c.settings.HasKeys {
		c.queue.load.keysAnswered(now, c.keys, answer, c.queue.worker.spreader.Delay(c.queue.idleWorkers.Load()))
		c.plan = c.plan.Admitted(admission.Jobs - len(answer.Keyed))
	}
	switch {
	case c.settings.HasKeys && len(answer.Keyed) == admission.Jobs:
		c.notLooked(now, took)
	case c.plain:
		leftNothing := c.queue.load.answered(now, c.plan, answer.Claimed, took)
		// With throttled keys, the others look as well: they learn when the next one may start a job.
		if leftNothing && !answer.KeysMore && answer.KeysWait == 0 {
			c.queue.notifications.TellOthers(c.notification)
		}
	}
	c.queue.accept(answer.Claimed, answer.Keyed, sent, c.settings)
}

// notLooked makes the queue claim again: the claim was not to take any job without a
// partition key.
func (c *claim) notLooked(now, took time.Duration) {
	if c.plain {
		c.queue.load.failed(now, c.plan, took, false)
	}
}

// failed makes the queue claim again, and has jobs given back that it may have got. A claim that took no
// jobs without a partition key had no plan, and so looked back at nothing.
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

// takeTurns puts the first run of each key before the second of any, and so on: a key of which
// many were claimed keeps no other one waiting. What has no key counts as one key.
func takeTurns(runs []*Run) []*Run {
	ofKey := make(map[string]int)
	var rounds [][]*Run
	for _, run := range runs {
		n := ofKey[run.partitionKey]
		ofKey[run.partitionKey]++
		if n == len(rounds) {
			rounds = append(rounds, nil)
		}
		rounds[n] = append(rounds[n], run)
	}
	return slices.Concat(rounds...)
}

// leasesMade are the leases of jobs that one claim has got, each once.
func leasesMade(answer db.Exchanged) []int64 {
	var ids []int64
	add := func(id int64) {
		if len(ids) == 0 || id != ids[len(ids)-1] {
			ids = append(ids, id)
		}
	}
	for i := range answer.Claimed {
		add(answer.Claimed[i].LeaseToken)
	}
	for i := range answer.Keyed {
		add(answer.Keyed[i].LeaseToken)
	}
	return ids
}

// accept takes charge of claimed jobs and hands them to the slots, first in line
// first.
func (q *queue) accept(claimed []db.JobClaimRow, keyed []db.KeyedJob, sent time.Duration, settings leases.Settings) {
	if len(claimed)+len(keyed) == 0 {
		return
	}
	runs := make([]*Run, 0, len(claimed)+len(keyed))
	for _, row := range claimed {
		runs = append(runs, &Run{worker: q.worker, queue: q, row: row, claimedAt: sent})
	}
	for _, job := range keyed {
		runs = append(runs, &Run{worker: q.worker, queue: q, row: job.JobClaimRow, partitionKey: job.PartitionKey, claimedAt: sent})
		claimed = append(claimed, job.JobClaimRow)
	}
	slices.SortFunc(runs, func(a, b *Run) int {
		return cmp.Or(cmp.Compare(a.row.Priority, b.row.Priority), cmp.Compare(a.row.Position.Int64, b.row.Position.Int64))
	})
	if len(keyed) > 0 {
		runs = takeTurns(runs)
	}
	holds := make([]*leases.Hold[*Run], len(runs))
	for i, run := range runs {
		run.hold = leases.NewHold(run, run.row.ID, run.row.LeaseToken, run.row.StartedAt.Time)
		holds[i] = &run.hold
	}
	q.worker.keeper.held.Add(holds, q.settings, settings, sent)
	q.worker.counts.claimed.Add(int64(len(runs)))
	q.worker.digests.Claimed(claimed)
	for _, run := range runs {
		q.buffer <- run // has room: no more is claimed than fits
	}
}
