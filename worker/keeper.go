package worker

import (
	"context"
	"slices"
	"sync"
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
// it could not extend in time; and stores what runs report.
type keeper struct {
	worker *Worker
	held   *leases.Set[*Run]
	wake   chan struct{} // extend now: somebody may have cancelled a job
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
// from being seen.
func (k *keeper) run(ctx context.Context) {
	var calls sync.WaitGroup
	defer calls.Wait()
	extending, flushing := make(chan struct{}, 1), make(chan struct{}, 1)
	beside := func(busy chan struct{}, call func()) {
		select {
		case busy <- struct{}{}:
			calls.Go(func() {
				call()
				<-busy
			})
		default: // the one before has not ended
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
			beside(extending, func() { k.extend(ctx, due) })
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
// leases stay due and are tried again soon, until their deadlines pass.
func (k *keeper) extend(ctx context.Context, due []*leases.Lease) {
	extensions := make([]db.Extension, len(due))
	settings := make([]leases.Settings, len(due))
	patience := callTimeout
	for i, l := range due {
		settings[i] = l.Settings()
		extensions[i] = db.Extension{ID: l.ID(), ClaimedAt: l.ClaimedAt(), Lease: db.Interval(settings[i].TickerExtends())}
		patience = min(patience, settings[i].KillMargin())
	}
	sent := clock.SinceBoot()
	extendCtx, cancel := context.WithTimeout(ctx, patience)
	answers, err := k.worker.schema.ExtendLeases(extendCtx, k.worker.pool, k.worker.id, extensions)
	cancel()
	if err != nil {
		k.worker.databaseTrouble(err)
		return
	}
	var unsure []*Run
	for i, l := range due {
		unsure = append(unsure, k.held.Answered(l, answerOf(answers[l.ID()]), settings[i], sent)...)
	}
	ctx, cancel = context.WithTimeout(ctx, patience)
	defer cancel()
	k.settle(ctx, unsure)
	k.stopCancelled(ctx, slices.DeleteFunc(due, func(l *leases.Lease) bool { return answers[l.ID()] == db.LeaseLost }))
}

// stopCancelled stops the handlers of jobs that somebody has cancelled, of leases
// that are held. When these cannot be found out, they are asked for again as soon as
// after a lease that was busy.
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
		for _, l := range held {
			k.held.AskAgain(l, clock.SinceBoot())
		}
		return
	}
	for _, l := range held {
		k.held.Cancel(l, cancelled[l.ID()])
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
