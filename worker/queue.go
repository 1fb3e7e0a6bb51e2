package worker

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/mutant"
	"github.com/jobq-dev/jobq/worker/internal/clock"
	"github.com/jobq-dev/jobq/worker/internal/leases"
	"github.com/jobq-dev/jobq/worker/internal/line"
	"github.com/jobq-dev/jobq/worker/internal/waking"
)

const (
	// exchangeBackoffMax bounds the wait after a round trip that failed; an eighth of
	// the lease when that is less, since the leases of what has ended are not extended.
	exchangeBackoffMax = 5 * time.Second
	// notifiedPollFactor is how much more rarely a queue polls while notifications
	// arrive, so that it needs polls only for one that was lost.
	notifiedPollFactor = 3
)

// queue runs the jobs of one queue, or those of one kind in it that has slots of
// its own: one goroutine (run) talks to the database, and one per slot runs
// handlers. A result waits no longer than for the round trip before it; what has
// gathered by then travels together, with the next claim.
type queue struct {
	worker *Worker
	name   string
	kinds  []string // that are claimed into its slots; set before run
	ofKind []*queue // of the same name, for kinds that have slots of their own; set before run
	load   load
	// settings and idleWorkers are as the last heartbeat has found them, for all
	// queues of the name.
	settings      *leases.QueueSettings
	idleWorkers   *atomic.Int64 // workers that had room for such jobs
	notifications *waking.Notifications

	buffer chan *Run     // claimed, not yet started
	wake   chan struct{} // there may be work
	ended  chan struct{} // there are results
	many   chan struct{} // so many that a second round trip is worth while
}

func newQueue(w *Worker, name string, slots int, settings *leases.QueueSettings, idleWorkers *atomic.Int64) *queue {
	q := &queue{
		worker: w, name: name, load: newLoad(slots), settings: settings, idleWorkers: idleWorkers,
		buffer: make(chan *Run, slots+line.AheadMax),
		wake:   make(chan struct{}, 1), ended: make(chan struct{}, 1), many: make(chan struct{}, 1),
	}
	q.notifications = w.spreader.Notifications(name, idleWorkers, func() { signal(q.wake) })
	return q
}

// setKinds says which kinds are claimed into the queue's slots.
func (q *queue) setKinds(kinds []string) {
	q.kinds = kinds
	q.notifications.SetKinds(kinds)
}

// divide gives each kind with slots of its own a queue of its own, with the same
// name: a claim then never takes more of the kind than can run, and the others need
// not wait behind it.
func (q *queue) divide(kinds []string, kindSlots map[string]int) {
	for kind, slots := range kindSlots {
		ofKind := newQueue(q.worker, q.name, slots, q.settings, q.idleWorkers)
		ofKind.setKinds([]string{kind})
		q.ofKind = append(q.ofKind, ofKind)
	}
	q.setKinds(slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return kindSlots[kind] > 0 }))
}

// all are the queue and those divided from it. One without kinds has nothing to do.
func (q *queue) all() []*queue {
	if len(q.kinds) == 0 {
		return q.ofKind
	}
	return append([]*queue{q}, q.ofKind...)
}

// set takes over the settings that the database has for all queues of the name. With
// the first limit, or without the last, and with the first key, the queue looks again: it may have found
// nothing because it claimed as if that were otherwise.
func (q *queue) set(settings leases.Settings) {
	before := q.settings.Load()
	q.settings.Store(settings)
	for _, each := range q.all() {
		each.load.setKeys(settings.HasKeys)
		each.notifications.SetKeys(settings.HasKeys)
	}
	if before.HasLimits != settings.HasLimits || before.HasKeys != settings.HasKeys {
		for _, each := range q.all() {
			each.load.unblock()
			each.lookAgain()
		}
	}
}

// unblock makes the queue claim again that its limits have blocked: they were changed,
// or leave room.
func (q *queue) unblock() {
	q.load.unblock()
	signal(q.wake)
}

// lookAgain makes the queue look whether there is work, wherever in the line.
func (q *queue) lookAgain() {
	q.load.returned()
	signal(q.wake)
}

// signal leaves a wake-up for a reader that may be busy; one is enough.
func signal(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// untoldLooks is how often a queue that drains looks after leases which somebody has
// locked and which are to be told of ends that are stored: for about a second. It then
// leaves them, to be reaped when their time is over; until then, their jobs would count
// against the limit of the queue.
const untoldLooks = 20

// run claims, and stores results, until the context ends; then it releases
// what has not started, and goes on storing until every handler has returned
// or was given up, or flush ends. The slots' goroutines end with their handlers.
func (q *queue) run(ctx, flush context.Context, slots *sync.WaitGroup) {
	for range q.load.slots {
		slots.Go(func() { q.runSlot(slots) })
	}
	defer close(q.buffer)
	over := make(chan struct{})
	var assistant sync.WaitGroup
	assistant.Go(func() { q.assist(ctx, flush, over) })
	defer assistant.Wait()
	defer close(over)

	poll := time.NewTimer(q.pollInterval())
	defer poll.Stop()
	var backoff db.Backoff
	looks := 0 // at leases that are to be told of ends, since all else was done
	for flush.Err() == nil {
		if ctx.Err() != nil || len(q.buffer) > 0 && q.load.isStuck(clock.SinceBoot()) {
			q.releaseBuffered()
		}
		results, count := q.next(ctx)
		if len(results) == 0 && count == 0 {
			switch {
			case ctx.Err() == nil || !q.load.isIdle():
				looks = 0
			case looks == untoldLooks || !q.load.hasUntold():
				return
			default:
				looks++
			}
			if again, alarms := q.announce(ctx); !again {
				q.await(ctx, flush, poll, alarms)
			}
			continue
		}
		if q.exchange(flush, results, count) {
			backoff.Reset()
			continue
		}
		backoff.Max = min(exchangeBackoffMax, q.settings.Load().Length/8)
		_ = backoff.Wait(flush) // its error is flush's, which ends the loop
	}
}

// assist makes a second round trip beside the one that is under way, when that
// takes so long that many results have gathered: the server works on the one
// while the other travels and commits. At lower rates it sleeps.
func (q *queue) assist(ctx, flush context.Context, over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		case <-q.many:
		}
		results, count := q.next(ctx)
		if len(results) > 0 || count > 0 {
			q.exchange(flush, results, count) // a failure is the other's to wait after
		}
	}
}

// next takes the results that have gathered, and says how many jobs to claim. What
// it returns has to be exchanged.
func (q *queue) next(ctx context.Context) (results []result, count int) {
	select {
	case <-q.wake:
		q.load.news()
	default:
	}
	mayClaim := ctx.Err() == nil && q.worker.mayClaim(q.kinds)
	mayClaimAhead := q.load.mayClaimAhead() && q.settings.Load().TickerExtends() > 0 // else a job's lease runs out while it waits here
	return q.load.take(clock.SinceBoot(), mayClaim, mayClaimAhead)
}

// announce makes sure that those who insert notify, when this queue has slots
// to fill. It says whether to claim once more first, because jobs may have come
// unnoticed, and when to come back.
func (q *queue) announce(ctx context.Context) (again bool, next waking.Alarms) {
	if q.worker.unnotified.Load() || ctx.Err() != nil || !q.load.hasRoom() || q.load.isBlocked(clock.SinceBoot()) {
		return false, waking.NoAlarms
	}
	round, next, err := q.worker.announcer.Announce(ctx, q.worker.queries)
	if err != nil && ctx.Err() == nil {
		q.worker.databaseTrouble(err)
	}
	return q.load.isNewRound(round), next
}

// await blocks until there is a reason to look again, or something else to do.
func (q *queue) await(ctx, flush context.Context, poll *time.Timer, next waking.Alarms) {
	stop := ctx.Done()
	if ctx.Err() != nil {
		stop = nil // draining: only results matter
	}
	now := clock.SinceBoot()
	lookAt, otherAt := q.load.wakeTimes(now, len(q.buffer) > 0)
	look, other := time.NewTimer(min(lookAt-now, next.Recheck)), time.NewTimer(min(otherAt-now, next.Renew))
	defer look.Stop()
	defer other.Stop()
	select {
	case <-q.ended:
		return
	case <-stop:
		return
	case <-flush.Done():
		return
	case <-other.C:
		return
	case <-look.C:
	case <-q.wake:
	case <-poll.C:
		poll.Reset(q.pollInterval())
	}
	q.load.news()
}

// pollInterval is between three quarters of the interval and the whole, so
// that workers started together do not poll together; and notifiedPollFactor times
// that while notifications arrive.
func (q *queue) pollInterval() time.Duration {
	interval := q.worker.config.PollInterval
	if q.worker.present.Load() {
		interval *= notifiedPollFactor
	}
	if !mutant.Polls() {
		return clock.Never
	}
	return interval - rand.N(interval/4+1) // #nosec G404 -- jitter
}

// releaseBuffered gives jobs back that no handler has begun, which costs them no
// attempt.
func (q *queue) releaseBuffered() {
	for {
		select {
		case run := <-q.buffer:
			if q.worker.keeper.held.Drop(&run.hold).Lost {
				q.discard()
			} else {
				q.end(run.released(false))
			}
		default:
			return
		}
	}
}

// end records a result for the next round trip.
func (q *queue) end(r result) {
	if many := q.load.ended(clock.SinceBoot(), r); many {
		signal(q.many)
	}
	signal(q.ended)
}

// endByTx records that a run's own transaction has completed its job.
func (q *queue) endByTx(run *Run) {
	q.load.endByTx(clock.SinceBoot(), run)
	signal(q.ended)
}

// discard records that a run has ended without a result to store, since its lease
// was lost.
func (q *queue) discard() {
	q.load.discarded(clock.SinceBoot())
	signal(q.ended)
}
