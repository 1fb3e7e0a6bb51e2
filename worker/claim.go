package worker

import (
	"cmp"
	"slices"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/worker/internal/clock"
	"github.com/jobq-dev/jobq/worker/internal/leases"
	"github.com/jobq-dev/jobq/worker/internal/line"
)

// claim is the claim of one round trip: what it asks for, and what was known before it was sent.
type claim struct {
	queue    *queue
	request  db.JobClaimParams
	plan     line.Claim
	plain    bool // it takes jobs without a partition key, as planned
	keys     keysPlan
	settings leases.Settings
	// notification is the last notification of new jobs that arrived before the claim was sent; "" while
	// jobs may come without one.
	notification string
	unblocks     int // load.unblockCount before the claim was sent
	// begun and begunSoon are up to which slot jobs of its leases begin at once, and soon if no
	// run of them is the job's last.
	begun, begunSoon int16
	underWay         *leases.Claim
}

// newClaim returns a claim of up to count jobs.
func (q *queue) newClaim(count int, settings leases.Settings) *claim {
	c := &claim{queue: q, settings: settings, notification: q.notifications.Woken(), unblocks: q.load.unblockCount(), underWay: q.worker.claimed.Begin()}
	c.request = db.JobClaimParams{
		Lease: db.Interval(settings.Length), Owner: q.worker.id, Queue: q.name, Kinds: q.worker.claimable(q.kinds),
		JobCount:    int32(count), // #nosec G115 -- bounded by line.ClaimMax
		LeasePerJob: settings.Heartbeat == jobq.HeartbeatProgress,
	}
	if q.announcer.Watches() { // after Woken, which comes after Rung
		c.notification = ""
	}
	now := clock.SinceBoot()
	if c.plain, c.keys = q.load.beginKeyed(now); c.plain {
		c.plan = q.load.begin(now, &c.request, len(c.request.Kinds) < len(q.kinds))
	}
	return c
}

// answered accepts the jobs of the claim, which was sent at sent and took took, and tells the
// other workers when it has left no job in the line.
func (c *claim) answered(answer db.Exchanged, sent, took time.Duration) {
	c.queue.worker.claimed.Answered(c.underWay, leasesMade(answer))
	now, admission := clock.SinceBoot(), answer.Admission
	c.queue.load.claimed(now, len(answer.Claimed)+len(answer.Keyed), int(c.request.JobCount), took)
	if admission.Blocked != db.BlockedByNothing {
		if len(answer.Claimed)+len(answer.Keyed) >= admission.Jobs { // with fewer, the limits left room and there was no job for it
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
		// While keys are throttled, the other workers must look as well: each learns from its own
		// claim when the next key may start a job.
		if leftNothing && !answer.KeysMore && answer.KeysWait == 0 {
			c.queue.notifications.TellOthers(c.notification)
		}
	}
	c.accept(answer.Claimed, answer.Keyed, sent)
}

// notLooked makes the queue claim again. The limits, or jobs with partition keys, left no room
// in this claim, so it has not looked for jobs without a key.
func (c *claim) notLooked(now, took time.Duration) {
	if c.plain {
		c.queue.load.failed(now, c.plan, took, false)
	}
}

// failed makes the queue claim again. If the claim may have committed, the jobs that it may have
// taken are released: see lookForUnanswered. A claim for jobs with partition keys only has an
// empty plan, which is safe to hand to load.failed.
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

// takeTurns orders runs so that keys take turns, for example a1 a2 a3 b1 b2 into a1 b1 a2 b2 a3.
// So a key with many claimed jobs does not delay the others. Runs without a key count as one key.
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

// leasesMade are the ids of the leases that a claim has made, each once.
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

// accept makes runs of claimed jobs, has the keeper extend their leases, and puts those that may
// begin into the buffer, from which the slots take them in the order of the line.
func (c *claim) accept(claimed []db.JobClaimRow, keyed []db.KeyedJob, sent time.Duration) {
	q := c.queue
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
		return cmp.Or(cmp.Compare(a.row.Priority, b.row.Priority), cmp.Compare(a.row.Position.Int64, b.row.Position.Int64), cmp.Compare(a.row.Slot, b.row.Slot))
	})
	if len(keyed) > 0 {
		runs = takeTurns(runs)
	}
	holds := make([]*leases.Hold[*Run], len(runs))
	for i, run := range runs {
		run.hold = leases.NewHold(run, run.row.ID, run.row.LeaseToken, run.row.StartedAt.Time)
		holds[i] = &run.hold
	}
	q.worker.keeper.held.Add(holds, q.settings, c.settings, sent)
	q.worker.counts.claimed.Add(int64(len(runs)))
	q.worker.digests.Claimed(claimed)
	q.putAhead(runs, c.begun, c.begunSoon)
}
