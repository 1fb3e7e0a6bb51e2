package worker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/mutant"
	"github.com/jobq-dev/jobq/worker/internal/clock"
	"github.com/jobq-dev/jobq/worker/internal/leases"
)

// callTimeout is the longest time of a call to the database for which no queue waits.
const callTimeout = 5 * time.Second

const (
	// keeperTickMin and keeperTickMax limit the time between two checks of the deadlines
	// of the held leases.
	keeperTickMin = 20 * time.Millisecond
	keeperTickMax = time.Second
)

// keeper looks after the leases that the worker holds:
//   - It extends those that are due, with one statement for all. Where only progress extends
//     a lease (see jobq.HeartbeatProgress), the statement asks whether it is still held.
//   - It gives up those that it could not extend in time.
//   - It finds out which jobs were cancelled, or ended by their handlers' own transactions.
//   - It stores the progress that runs report.
type keeper struct {
	worker *Worker
	held   *leases.Set[*Run]
	wake   chan struct{} // extend now: somebody may have cancelled a job
	// failing says that the last extension has failed.
	failing atomic.Bool
}

func newKeeper(w *Worker) *keeper {
	k := &keeper{worker: w, wake: make(chan struct{}, 1)}
	k.held = leases.NewSet(k.reportLost)
	return k
}

// reportLost counts and logs a run whose lease is lost.
func (k *keeper) reportLost(r *Run) {
	r.queue.someLost.Store(true)
	signal(r.queue.ended)
	k.worker.counts.lost.Add(1)
	k.worker.log.Warn("lease lost", r.logAttrs()...)
}

// wakeFor extends the lease of a job at once if this worker holds it. After the extension, the
// keeper asks which jobs were cancelled, and so stops the handler.
func (k *keeper) wakeFor(job int64) {
	if k.held.MakeDue(job) {
		signal(k.wake)
	}
}

// wakeAll extends every lease at once. It is for a new connection that listens: a notification
// that a job was cancelled may have been lost before.
func (k *keeper) wakeAll() {
	k.held.MakeAllDue()
	signal(k.wake)
}

// run checks deadlines, extends leases and stores progress until the context ends.
//
// Calls to the database run in goroutines of their own, at most one of each sort (extend, ask,
// flush) at a time. So the deadlines are checked even when the database does not answer. And
// leases are extended even when a day of the history is locked: only ask waits for that.
func (k *keeper) run(ctx context.Context) {
	var calls sync.WaitGroup
	defer calls.Wait()
	extending, asking, flushing := make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)
	beside := func(busy chan struct{}, call func()) (begun bool) {
		select {
		case busy <- struct{}{}:
			calls.Go(func() {
				call()
				<-busy
			})
			return true
		default: // the call before has not ended
			return false
		}
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	planned := clock.SinceBoot()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			k.held.ObserveDelay(clock.SinceBoot() - planned)
		case <-k.wake:
		}
		now := clock.SinceBoot()
		k.held.Expire(now)
		if due := k.held.Due(now); len(due) > 0 {
			beside(extending, func() {
				held, unsure := k.extend(ctx, due)
				if !beside(asking, func() { k.ask(ctx, held, unsure) }) {
					k.askAgain(held)
				}
			})
		}
		if k.hasProgress() {
			beside(flushing, func() { k.flushProgress(ctx) })
		}
		tick := k.tick()
		planned = clock.SinceBoot() + tick
		timer.Reset(tick)
	}
}

// tick is how long until the keeper checks the deadlines again: a quarter of the shortest kill
// margin in use, or until the next deadline if that is sooner; keeperTickMin to keeperTickMax.
func (k *keeper) tick() time.Duration {
	tick := keeperTickMax
	for _, q := range k.worker.queues {
		tick = min(tick, q.settings.Load().KillMargin()/4)
	}
	if deadline, ok := k.held.NextDeadline(); ok {
		tick = min(tick, deadline-clock.SinceBoot())
	}
	return max(tick, keeperTickMin)
}

// extend extends the leases that are due and acts on the answers. When that fails, the leases
// stay due and are tried again soon, until their deadlines pass. It returns what ask has to
// find out: held are the leases that are still held, whose jobs may have been cancelled; and
// unsure are the runs of lost leases that their handlers' own transactions may have ended.
func (k *keeper) extend(ctx context.Context, due []*leases.Lease) (held []*leases.Lease, unsure []*Run) {
	extensions := make([]db.Extension, len(due))
	settings := make([]leases.Settings, len(due))
	patience := callTimeout
	for i, l := range due {
		settings[i] = l.Settings()
		extensions[i] = db.Extension{ID: l.ID(), ClaimedAt: l.ClaimedAt(), Lease: db.Interval(settings[i].TickerExtends()), Longest: db.Interval(settings[i].Longest)}
		patience = min(patience, settings[i].KillMargin())
	}
	sent := clock.SinceBoot()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answers, err := k.worker.schema.ExtendLeases(ctx, k.worker.pool, k.worker.id, extensions)
	k.failing.Store(err != nil)
	if err != nil {
		k.worker.databaseTrouble(err)
		return nil, nil
	}
	for i, l := range due {
		answer := answerOf(answers[l.ID()])
		if answer == leases.Lost && !mutant.HoldsFrozen() {
			answer = leases.OK
		}
		unsure = append(unsure, k.held.Answered(l, answer, settings[i], sent)...)
		if answer != leases.Lost {
			held = append(held, l)
		}
	}
	return held, unsure
}

// ask finds out what the answers to an extension leave open. Both parts share one deadline. The
// part that can wait for fewer locks comes first: stopCancelled waits for locks on the days of
// its leases only, settle for locks on any day of the history.
func (k *keeper) ask(ctx context.Context, held []*leases.Lease, unsure []*Run) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	k.stopCancelled(ctx, held)
	k.settle(ctx, unsure)
}

// stopCancelled stops the handlers of those jobs of held leases that somebody has cancelled.
func (k *keeper) stopCancelled(ctx context.Context, held []*leases.Lease) {
	if len(held) == 0 {
		return
	}
	ids := make([]int64, len(held))
	for i, l := range held {
		ids[i] = l.ID()
	}
	cancelled, err := k.worker.schema.CancelledJobs(ctx, k.worker.pool, ids)
	if err != nil {
		k.worker.databaseTrouble(err)
		k.askAgain(held)
		return
	}
	for _, l := range held {
		k.held.Cancel(l, cancelled[l.ID()])
	}
}

// askAgain makes leases due again soon, as if they had been locked: it is not known yet which
// of their jobs were cancelled.
func (k *keeper) askAgain(held []*leases.Lease) {
	for _, l := range held {
		k.held.AskAgain(l, clock.SinceBoot())
	}
}

func answerOf(answer string) leases.Answer {
	switch answer {
	case db.LeaseOK:
		return leases.OK
	case db.LeaseBusy:
		return leases.Busy
	}
	return leases.Lost
}
