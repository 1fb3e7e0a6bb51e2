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
	// exchangeBackoffMax is the longest wait after a round trip that failed, or an eighth of
	// the lease if that is shorter: a run that has ended must be stored before its lease
	// ends, since that is not extended any more.
	exchangeBackoffMax = 5 * time.Second
	// notifiedPollFactor multiplies the poll interval while notifications arrive. Then a
	// poll is needed only for a notification that was lost.
	notifiedPollFactor = 3
)

// queue runs the jobs of one queue, or of one kind in it that has slots of its own. One
// goroutine (run) talks to the database, another (assist) helps it when many results gather, a
// third (setApart) looks for jobs that no claim can read, and one for each slot runs handlers. A result waits for the round trip under way;
// the next one stores all results that have gathered, and claims jobs.
type queue struct {
	worker *Worker
	name   string
	kinds  []string // the kinds that it claims; set before run
	ofKind []*queue // the queues of the same name for kinds that have slots of their own; set before run
	load   load
	// claimsNoneAhead says that it claims no more jobs than it has free slots.
	claimsNoneAhead bool
	shared
	notifications *waking.Notifications
	keysLookAt    time.Duration // of run's goroutine
	announcing    announcing    // likewise
	apart         apart

	buffer chan *Run // claimed, not yet started; those that may not begin yet are in load
	// someLost says that leases of jobs that may not begin yet may be lost.
	someLost atomic.Bool
	asked    chan chan bool // it is to claim a suspect, and to answer whether it has one: see alone.go
	wake     chan struct{}  // there may be work
	ended    chan struct{}  // there are results
	many     chan struct{}  // there are so many results that assist should make a second round trip
}

// shared is what the queues of the same name in one worker have in common.
type shared struct {
	// settings and idleWorkers are what the last heartbeat has read.
	settings    *leases.QueueSettings
	idleWorkers *atomic.Int64 // workers that had free slots for jobs of the queue
	announcer   *waking.Announcer
	// emptyAt is when the last heartbeat was sent that has found no job, by clock.SinceBoot; 0 for never.
	emptyAt *atomic.Int64
}

func newShared(name string, pollInterval time.Duration) shared {
	return shared{new(leases.QueueSettings), new(atomic.Int64), &waking.Announcer{Queue: name, RecheckMax: pollInterval}, new(atomic.Int64)}
}

func newQueue(w *Worker, name string, slots int, shared shared) *queue {
	q := &queue{
		worker: w, name: name, load: newLoad(slots), shared: shared,
		buffer: make(chan *Run, slots+line.AheadMax), asked: make(chan chan bool, 1),
		wake: make(chan struct{}, 1), ended: make(chan struct{}, 1), many: make(chan struct{}, 1),
		apart: apart{failures: make(chan error, 1)},
	}
	q.notifications = w.spreader.Notifications(name, q.idleWorkers, func() {
		if mutant.LooksAfterBell() {
			q.load.notified(shared.announcer.Rung())
		}
		signal(q.wake)
	})
	return q
}

// setKinds says which kinds are claimed into the queue's slots.
func (q *queue) setKinds(kinds []string) {
	q.kinds = kinds
	q.notifications.SetKinds(kinds)
}

// divide makes a queue of the same name for each kind that has slots of its own. So a claim
// never takes more jobs of that kind than it has slots, and jobs of other kinds do not wait
// behind them.
func (q *queue) divide(kinds []string, kindSlots map[string]int) {
	for kind, slots := range kindSlots {
		ofKind := newQueue(q.worker, q.name, slots, q.shared)
		ofKind.claimsNoneAhead = q.claimsNoneAhead
		ofKind.setKinds([]string{kind})
		q.ofKind = append(q.ofKind, ofKind)
	}
	q.setKinds(slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return kindSlots[kind] > 0 }))
}

// all are the queue and those that divide has made. The queue itself is left out when it has no
// kinds: then it has nothing to claim.
func (q *queue) all() []*queue {
	if len(q.kinds) == 0 {
		return q.ofKind
	}
	return append([]*queue{q}, q.ofKind...)
}

// set stores the settings that the database has for all queues of the name. When the queue gets
// its first limit or its first key, or loses the last one, it claims again: the claim before
// was made for the old settings, and may have found nothing for that reason.
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

// unblock makes the queue claim again after its limits have blocked it: a limit was changed, or
// a run has ended.
func (q *queue) unblock() {
	q.load.unblock()
	signal(q.wake)
}

// lookAgain makes the queue look at the whole line for work.
func (q *queue) lookAgain() {
	q.load.returned()
	signal(q.wake)
}

// signal wakes the reader of a channel of size 1 without waiting for it. If a wake-up is there
// already, another one is not needed.
func signal(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// recordTries limits how often a queue that drains, and has nothing else to do, wakes up because
// other sessions have locked leases whose runs have ended. Each try to update the leases wakes it
// twice: when the try ends, and busyDelay later for the next one. So it tries ten times, in about
// half a second. Then it gives up, and the leases are reaped when they expire. Until then, their
// jobs count against the limit of the queue.
const recordTries = 20

// run claims jobs and stores results until the context ends. Then it releases the jobs that have
// not started, and goes on storing until every handler has returned or was abandoned, or until
// flush ends. The slots' goroutines end with their handlers.
func (q *queue) run(ctx, flush context.Context, slots *sync.WaitGroup) {
	for range q.load.slots {
		slots.Go(func() { q.runSlot(slots) })
	}
	defer close(q.buffer)
	over := make(chan struct{})
	lookCtx, stopLooks := context.WithCancel(ctx)
	var assistants sync.WaitGroup
	assistants.Go(func() { q.assist(ctx, flush, over) })
	assistants.Go(func() { q.setApart(lookCtx) })
	defer assistants.Wait()
	defer stopLooks()
	defer close(over)
	defer q.announcing.calls.Wait()

	poll := time.NewTimer(q.pollInterval())
	defer poll.Stop()
	var backoff db.Backoff
	looks := 0 // how often it woke up since nothing but locked leases was left: see recordTries
	for flush.Err() == nil {
		q.dropLost()
		if ctx.Err() != nil || q.hasWaiting() && (q.worker.isHeld() || q.load.isStuck(clock.SinceBoot())) {
			q.releaseBuffered()
		}
		if ctx.Err() == nil {
			q.answerAlone(flush)
		}
		next := q.next(ctx)
		if next.isEmpty() {
			switch {
			case ctx.Err() == nil || !q.load.isIdle():
				looks = 0
			case looks == recordTries || !q.load.hasUnrecorded():
				return
			default:
				looks++
			}
			if again, next := q.announce(ctx); !again {
				q.await(ctx, flush, poll, next)
			}
			continue
		}
		if q.exchange(flush, next) {
			backoff.Reset()
			continue
		}
		backoff.Max = min(exchangeBackoffMax, q.settings.Load().Length/8)
		_ = backoff.Wait(flush) // it fails only when flush has ended, which ends the loop
	}
}

// assist makes a second round trip beside the one under way, when that takes so long that many
// results have gathered. The server works on one of them while the other is on the network or
// waits for its commit. At lower rates assist sleeps.
func (q *queue) assist(ctx, flush context.Context, over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		case <-q.many:
		}
		next := q.next(ctx)
		if next.isEmpty() { // it may have taken a wake-up, and run has decided before that for how long to sleep
			signal(q.ended)
			continue
		}
		q.exchange(flush, next) // after a failure, run waits before its next round trip
	}
}

// work is what a round trip is to do: store results and which jobs may begin, and claim count jobs.
type work struct {
	results []result
	begin   []db.LeaseBegin
	count   int
}

func (w *work) isEmpty() bool { return len(w.results) == 0 && len(w.begin) == 0 && w.count == 0 }

// next takes the results that have gathered, and says how many jobs to claim, and which jobs that
// were claimed may begin. Unless it is empty, the caller must pass it to exchange.
func (q *queue) next(ctx context.Context) (next work) {
	select {
	case <-q.wake:
		q.load.news()
	default:
	}
	q.worker.solitude.gate.RLock()
	defer q.worker.solitude.gate.RUnlock()
	mayClaim := ctx.Err() == nil && !q.worker.solitude.held && q.worker.mayClaim(q.kinds)
	// Without the keeper's extensions, the lease of a job could end while the job waits for a slot.
	mayClaimAhead := !q.claimsNoneAhead && q.load.mayClaimAhead() && q.settings.Load().TickerExtends() > 0
	next.results, next.count = q.load.take(clock.SinceBoot(), mayClaim, mayClaimAhead)
	next.begin = q.nextBegin(ctx, next.results, next.count)
	return next
}

// announce tells the database that this queue has free slots, so that inserts send
// notifications. It says whether to claim once more before waiting, because jobs may have been
// inserted before the announcement, without a notification; and when to announce again. It does not
// wait for the database: the answer ends await. While jobs come fast, so that it claims without news,
// it announces nothing: line/pace.go says why.
func (q *queue) announce(ctx context.Context) (again bool, next time.Duration) {
	if q.worker.unnotified.Load() || q.worker.isHeld() || ctx.Err() != nil || !q.load.hasRoom() || q.load.isBlocked(clock.SinceBoot()) {
		return false, clock.Never
	}
	if q.load.isPaced() {
		q.announcer.JobsComeFast()
		q.lookForKeys()
		return false, clock.Never
	}
	round, next := q.announcing.announce(ctx, q)
	return q.load.isNewRound(round), next
}

// keysLookEvery is how often a queue that claims without news asks whether its first job with a
// partition key has come. The insert of that job sends a notification only if a worker waits.
const keysLookEvery = time.Second

// lookForKeys asks for a heartbeat, which reads the settings, at most once in keysLookEvery while the
// queue is not known to have partition keys. Until it is known, no claim takes a job with one.
func (q *queue) lookForKeys() {
	if now := clock.SinceBoot(); !q.settings.Load().HasKeys && now >= q.keysLookAt {
		q.keysLookAt = now + keysLookEvery
		signal(q.worker.beatSoon)
	}
}

// await blocks until there is a reason to claim, or something else to do, such as a result to
// store.
func (q *queue) await(ctx, flush context.Context, poll *time.Timer, announceAfter time.Duration) {
	stop := ctx.Done()
	if ctx.Err() != nil {
		stop = nil // draining: only results matter
	}
	now := clock.SinceBoot()
	lookAt, otherAt := q.load.wakeTimes(now, q.hasWaiting())
	look, other := time.NewTimer(lookAt-now), time.NewTimer(min(otherAt-now, announceAfter))
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
	case q.announcing.last = <-q.announcing.underWay:
		q.announcing.underWay = nil
		return
	case <-look.C:
	case <-q.wake:
	case <-poll.C:
		interval := q.pollInterval()
		if at := time.Duration(q.emptyAt.Load()); at > 0 && at+interval > now && !q.hasTurns() { // a heartbeat has polled
			poll.Reset(at + interval - now)
			return
		}
		poll.Reset(interval)
	}
	q.load.news()
}

// pollInterval is a random time between three quarters of Config.PollInterval and all of it, so
// that workers which started together do not poll together. While notifications arrive, it is
// notifiedPollFactor times as long.
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

// hasWaiting says whether jobs were claimed that no handler has started.
func (q *queue) hasWaiting() bool { return len(q.buffer) > 0 || q.load.aheadCount() > 0 }

// releaseBuffered releases the jobs that no handler has started. This costs them no attempt.
func (q *queue) releaseBuffered() {
	for _, run := range q.load.removeAhead(func(*Run) bool { return true }) {
		q.releaseUnstarted(run)
	}
	for {
		select {
		case run := <-q.buffer:
			q.releaseUnstarted(run)
		default:
			return
		}
	}
}

func (q *queue) releaseUnstarted(run *Run) {
	if q.worker.keeper.held.Drop(&run.hold).Lost {
		q.discard()
	} else {
		q.end(run.released(false))
	}
}

// end records a result for the next round trip.
func (q *queue) end(r result) {
	if many := q.load.ended(clock.SinceBoot(), r); many {
		signal(q.many)
	}
	signal(q.ended)
}

// endByTx records that a transaction of the handler has ended the run, so that only its lease is
// to be updated.
func (q *queue) endByTx(run *Run) {
	q.load.endByTx(clock.SinceBoot(), run)
	signal(q.ended)
}

// discard records that a run has ended whose result is not stored, because its lease is lost.
func (q *queue) discard() {
	q.load.discarded(clock.SinceBoot())
	signal(q.ended)
}
