package worker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/worker/internal/clock"
	"github.com/jobq-dev/jobq/worker/internal/leases"
)

// callTimeout bounds a call to the database that others do not wait for.
const callTimeout = 5 * time.Second

const (
	// keeperTickMin and keeperTickMax bound the time between two looks at the
	// deadlines of the leases that are held.
	keeperTickMin = 20 * time.Millisecond
	keeperTickMax = time.Second
)

// keeper extends the leases that the worker holds, in one statement for all that
// are due, or asks after them where the ticker does not extend; gives up those that
// it could not extend in time; finds out which jobs were cancelled, or completed by
// their handlers; and stores what runs report.
type keeper struct {
	worker *Worker
	held   *leases.Set[*Run]
	wake   chan struct{} // extend now: somebody may have cancelled a job
	// failing says that the last extension got no answer.
	failing atomic.Bool
}

func newKeeper(w *Worker) *keeper {
	k := &keeper{worker: w, wake: make(chan struct{}, 1)}
	k.held = leases.NewSet(k.reportLost)
	return k
}

// reportLost tells of a run whose lease is lost.
func (k *keeper) reportLost(r *Run) {
	k.worker.counts.lost.Add(1)
	k.worker.log.Warn("lease lost", r.logAttrs()...)
}

// wakeFor makes the next extension happen at once when the job is held here: its
// answer says that the job was cancelled.
func (k *keeper) wakeFor(job int64) {
	if k.held.MakeDue(job) {
		signal(k.wake)
	}
}

// wakeAll makes the next extension of every lease happen at once: somebody may
// have cancelled a job while nobody listened.
func (k *keeper) wakeAll() {
	k.held.MakeAllDue()
	signal(k.wake)
}

// run checks deadlines, extends leases and stores progress until the context
// ends. What talks to the database runs beside the checks, one call of each
// sort at a time: a database that does not answer must not keep the deadlines
// from being seen. Nor may a locked day of the history, for which alone asking
// waits, keep leases from being extended.
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
		default: // the one before has not ended
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

// tick is how long until the keeper looks again: a quarter of the shortest kill
// margin in use, or until the next deadline.
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

// extend sends one extension of leases and acts on its answers. When it fails, the
// leases stay due and are tried again soon, until their deadlines pass. It returns
// what is still to be asked: the leases that are held, whose jobs may have been
// cancelled, and the runs of lost ones that their handlers may have completed.
func (k *keeper) extend(ctx context.Context, due []*leases.Lease) (held []*leases.Lease, unsure []*Run) {
	extensions := make([]db.Extension, len(due))
	settings := make([]leases.Settings, len(due))
	patience := callTimeout
	for i, l := range due {
		settings[i] = l.Settings()
		extensions[i] = db.Extension{ID: l.ID(), ClaimedAt: l.ClaimedAt(), Lease: db.Interval(settings[i].TickerExtends())}
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
		unsure = append(unsure, k.held.Answered(l, answer, settings[i], sent)...)
		if answer != leases.Lost {
			held = append(held, l)
		}
	}
	return held, unsure
}

// ask finds out what the answers to an extension leave open. Both parts share one
// deadline, and the one that waits for fewer locks comes first: stopCancelled for
// those of the days of its leases, settle for those of all days.
func (k *keeper) ask(ctx context.Context, held []*leases.Lease, unsure []*Run) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	k.stopCancelled(ctx, held)
	k.settle(ctx, unsure)
}

// stopCancelled stops the handlers of jobs that somebody has cancelled, of leases
// that are held.
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

// askAgain makes leases due again as soon as if they had been busy: it could not be
// found out which of their jobs were cancelled.
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
