package worker

import (
	"context"
	"slices"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/worker/internal/clock"
)

// killMarginMax is how long before a lease ends, by the worker's reckoning,
// the worker stops believing in it; a sixth of the lease when that is less.
// It covers the time that stopping a job takes.
const killMarginMax = 5 * time.Second

func killMargin(lease time.Duration) time.Duration { return min(killMarginMax, lease/6) }

// lease is the worker's knowledge of one lease that it holds: of all jobs of one
// claim. Times are of clock.SinceBoot.
type lease struct {
	id        int64     // the token of its jobs
	claimedAt time.Time // by the database's clock: with the id, it tells leases apart
	queue     *queue

	// guarded by keeper.mu
	open     int // runs of it that the keeper has in charge
	lost     bool
	deadline time.Duration // when the worker stops the jobs unless it has extended
	extendAt time.Duration
}

// hold is what the worker knows of its right to one run. Guarded by keeper.mu. A
// lease is lost as a whole: a run that was given up alone would be extended with
// the others of its lease, and nobody would ever run its job again.
type hold struct {
	lost      bool // nothing may be stored any more
	given     bool // given up while its handler would not stop
	cancelled bool // somebody has cancelled the job
	// completing: CompleteTx has ended the run in a transaction whose fate is not
	// known; completed: that has committed.
	completing, completed bool
	cancel                context.CancelCauseFunc // of the running handler; nil when none runs
}

// told is extendedLocked for leases that an exchange, sent at the instant, has told
// of ends.
func (k *keeper) told(ids []int64, sent time.Duration, settings queueSettings) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range ids {
		if l := k.leases[id]; l != nil {
			l.extendedLocked(sent, settings)
		}
	}
}

// extendedLocked takes into account that a request sent at the instant gave the
// lease its full time. It never shortens one, and nor does the database.
func (l *lease) extendedLocked(sent time.Duration, settings queueSettings) {
	l.deadline = max(l.deadline, sent+settings.lease-killMargin(settings.lease))
}

// add takes charge of runs claimed by a request that was sent at the instant, and
// gives them their leases. A job that was held already has been lost meanwhile,
// or else it could not have been claimed. Its earlier run must not go on, and not
// store anything: after an asynchronous standby has taken over, even the tokens
// may be equal.
func (k *keeper) add(q *queue, runs []*Run, sent time.Duration, settings queueSettings) {
	k.mu.Lock()
	defer k.mu.Unlock()
	claimed := make(map[int64]*lease, 1)
	for _, run := range runs {
		l := claimed[run.row.LeaseToken]
		if l == nil {
			l = &lease{id: run.row.LeaseToken, claimedAt: run.row.StartedAt.Time, queue: q, extendAt: sent + settings.extendEvery}
			l.extendedLocked(sent, settings)
			claimed[l.id] = l
		}
		run.lease = l
		if earlier := k.held[run.row.ID]; earlier != nil {
			k.loseLocked(earlier.lease)
		}
		if earlier := k.leases[l.id]; earlier != nil && earlier != l { // a standby has forgotten it
			k.loseLocked(earlier)
		}
		k.held[run.row.ID] = run
		l.open++
		k.leases[l.id] = l
	}
}

// extended is extendedLocked for a lease that may be given up already.
func (k *keeper) extended(l *lease, sent time.Duration, settings queueSettings) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l.extendedLocked(sent, settings)
}

// start says that the handler begins, and which function stops it. An error says
// why the handler must not begin: the run is lost already, or else forgotten
// here, and is to be ended for that reason.
func (k *keeper) start(r *Run, cancel context.CancelCauseFunc) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case r.hold.lost || clock.SinceBoot() >= r.lease.deadline:
		k.loseLocked(r.lease)
		return ErrLeaseLost
	case r.hold.cancelled:
		k.forgetLocked(r)
		return ErrCancelled
	case k.stopped != nil: // a job of a claim that was under way
		k.forgetLocked(r)
		return k.stopped
	}
	r.hold.cancel = cancel
	return nil
}

// drop forgets a run that has ended, and returns what was known of it. When it is
// lost, the result may not be stored.
func (k *keeper) drop(r *Run) hold {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.forgetLocked(r)
	r.hold.cancel = nil
	delete(k.astray, r)
	return r.hold
}

func (k *keeper) forgetLocked(r *Run) {
	if k.held[r.row.ID] != r { // the job may have come back under another token
		return
	}
	delete(k.held, r.row.ID)
	if r.lease.open--; r.lease.open == 0 && k.leases[r.lease.id] == r.lease {
		delete(k.leases, r.lease.id)
	}
}

// lose gives a lease up, under which the database would not store what this run
// says, and stops all its handlers. Where the run's handler may have ended it in
// its own transaction, the next extension tells.
func (k *keeper) lose(r *Run) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r.hold.completing {
		r.lease.extendAt = 0
		return
	}
	k.loseLocked(r.lease)
}

// loseLocked gives a lease up, with all its runs that are held and not known to be
// completed.
func (k *keeper) loseLocked(l *lease) {
	l.lost = true
	for _, r := range k.held {
		if r.lease == l && !r.hold.completed {
			k.loseRunLocked(r)
		}
	}
	if k.leases[l.id] == l {
		delete(k.leases, l.id)
	}
}

// loseRunLocked gives a run up. One whose handler has called CompleteTx may be
// completed: settleTx finds out, and reports it if it is lost.
func (k *keeper) loseRunLocked(r *Run) {
	if r.hold.lost {
		return
	}
	r.hold.lost = true
	if r.hold.cancel != nil {
		r.hold.cancel(ErrLeaseLost)
		k.astray[r] = struct{}{}
	}
	if onLost := r.onLost.Load(); onLost != nil {
		(*onLost)()
	}
	k.forgetLocked(r)
	if !r.hold.completing {
		k.worker.reportLost(r)
	}
}

func (w *Worker) reportLost(r *Run) {
	w.counts.lost.Add(1)
	w.log.Warn("lease lost", r.logAttrs()...)
}

// isLost says whether nothing may be stored for the run any more.
func (r *Run) isLost() bool {
	k := r.worker.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	return r.hold.lost
}

// extend sends one extension of leases and acts on its answers. When it fails, the
// leases stay due and are tried again soon, until their deadlines pass.
func (k *keeper) extend(ctx context.Context, due []*lease) {
	extensions := make([]db.Extension, len(due))
	settings := make([]queueSettings, len(due))
	patience := killMarginMax
	for i, l := range due {
		settings[i] = l.queue.settings()
		extensions[i] = db.Extension{ID: l.id, ClaimedAt: l.claimedAt, Lease: db.Interval(settings[i].tickerExtends())}
		patience = min(patience, killMargin(settings[i].lease))
	}
	sent := clock.SinceBoot()
	extendCtx, cancel := context.WithTimeout(ctx, patience)
	answers, err := k.worker.schema.ExtendLeases(extendCtx, k.worker.pool, k.worker.id, extensions)
	cancel()
	if err != nil {
		k.worker.databaseTrouble(err)
		return
	}
	k.mu.Lock()
	var unsure []*Run
	for i, l := range due {
		if !l.lost { // meanwhile
			unsure = append(unsure, k.answerLocked(l, answers[l.id], sent, settings[i])...)
		}
	}
	k.mu.Unlock()
	ctx, cancel = context.WithTimeout(ctx, patience)
	defer cancel()
	k.settle(ctx, unsure)
	k.lookForCancelled(ctx, due, answers)
}

// lookForCancelled stops the handlers of jobs that somebody has asked to cancel,
// of the leases that the answers say are still held. When it cannot be found out, it
// is asked again as soon as after a lease that was busy.
func (k *keeper) lookForCancelled(ctx context.Context, asked []*lease, answers map[int64]string) {
	held := slices.DeleteFunc(slices.Clone(asked), func(l *lease) bool { return answers[l.id] == db.LeaseLost })
	if len(held) == 0 {
		return
	}
	ids := make([]int64, len(held))
	for i, l := range held {
		ids[i] = l.id
	}
	cancelled, err := k.worker.schema.CancelledJobs(ctx, k.worker.pool, ids)
	if err != nil {
		k.worker.databaseTrouble(err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, l := range held {
		if err != nil {
			l.extendAt = min(l.extendAt, clock.SinceBoot()+l.queue.settings().busyRetry())
		}
		for _, id := range cancelled[l.id] {
			k.cancelLocked(l, id)
		}
	}
}

// cancelLocked stops the handler of a job that somebody has asked to cancel.
func (k *keeper) cancelLocked(l *lease, id int64) {
	r := k.held[id]
	if r == nil || r.lease != l || r.hold.cancelled {
		return
	}
	r.hold.cancelled = true
	if r.hold.cancel != nil {
		r.hold.cancel(ErrCancelled)
	}
}

// answerLocked acts on the answer for one lease. It returns the runs of a lost one
// that their handlers' own transactions may have completed.
func (k *keeper) answerLocked(l *lease, answer string, sent time.Duration, settings queueSettings) (unsure []*Run) {
	switch answer {
	case db.LeaseOK:
		if settings.tickerExtends() > 0 {
			l.extendedLocked(sent, settings)
		}
		l.extendAt = sent + settings.extendEvery
	case db.LeaseBusy:
		l.extendAt = sent + settings.busyRetry()
	default:
		for _, r := range k.held {
			switch {
			case r.lease != l || r.hold.completed:
			case r.hold.completing:
				unsure = append(unsure, r)
			default:
				k.loseRunLocked(r)
			}
		}
		if len(unsure) == 0 {
			k.loseLocked(l)
		}
	}
	return unsure
}
