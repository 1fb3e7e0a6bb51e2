package worker

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/mutant"
	"github.com/jobq-dev/jobq/worker/internal/clock"
)

const (
	// lookaheadMax bounds the jobs that are claimed before a slot is free for
	// them. They hold leases, which are extended, and released on drain.
	lookaheadMax = 1000
	// lookaheadTime is how much work, at the rate of late, is claimed ahead:
	// enough to keep the slots busy while the next claim travels, and little
	// enough that no other worker waits for jobs that lie here.
	lookaheadTime = 50 * time.Millisecond
	// bufferTime is how long claimed jobs wait here while no slot comes free; then
	// others may have them.
	bufferTime = time.Second
	// rateMemory is the time over which the rate of late is averaged.
	rateMemory = 100 * time.Millisecond
	// assistMin is how many results gather during a round trip before a second
	// one is worth its commit.
	assistMin = 150
	// exchangeBackoffMax bounds the wait after one that failed; an eighth of the
	// lease when that is less, since the leases of what has ended are not extended.
	exchangeBackoffMax = 5 * time.Second
	// hearsFactor is how much more rarely a queue polls that hears notifications,
	// with a poll as the net below them.
	hearsFactor = 3
	// never is a time that does not come.
	never time.Duration = math.MaxInt64
)

// queueSettings is what the database says about a queue.
type queueSettings struct {
	lease       time.Duration
	extendEvery time.Duration
	heartbeat   jobq.Heartbeat
}

// queue runs the jobs of one queue: one goroutine (run) talks to the
// database, and one per slot runs handlers. A result waits no longer than for
// the round trip before it; what has gathered by then travels together, with
// the next claim.
type queue struct {
	worker *Worker
	name   string
	slots  int
	kinds  []string          // that are claimed into these slots
	apart  map[string]*queue // of kinds with slots of their own
	buffer chan *Run         // claimed, not yet started
	wake   chan struct{}     // there may be work
	ended  chan struct{}     // there are results
	many   chan struct{}     // so many that a second round trip is worth while
	fleet  atomic.Int64      // workers that had room for such jobs, by the last heartbeat; kept where apart is

	mu sync.Mutex
	// guarded by mu
	results []result
	later   []result           // of leases that a round trip under way tells of others
	telling map[int64]struct{} // these leases
	busy    []result           // whose rows somebody else has locked
	busyTo  time.Duration      // when these are sent again, by clock.SinceBoot
	inHand  int                // in the buffer or with a handler
	movedAt time.Duration      // when a slot last came free, or jobs came into the buffer
	flying  int                // round trips under way
	asked   int                // jobs that they claim at most
	conf    queueSettings
	pace    pace
	line    db.Line
	words   words
	round   int // of waiting, in which it claimed last
}

func newQueue(w *Worker, name string, slots int) *queue {
	return &queue{
		worker: w, name: name, slots: slots,
		buffer: make(chan *Run, slots+lookaheadMax),
		wake:   make(chan struct{}, 1), ended: make(chan struct{}, 1), many: make(chan struct{}, 1),
		pace: pace{more: true}, line: make(db.Line), telling: make(map[int64]struct{}),
	}
}

// signal leaves a wake-up for a reader that may be busy; one is enough.
func signal(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

func (q *queue) settings() queueSettings {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.conf
}

func (q *queue) configure(settings queueSettings) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.conf = settings
	for _, each := range q.apart {
		each.configure(settings)
	}
}

// run claims, and stores results, until the context ends; then it releases
// what has not started, and goes on storing until every handler has returned
// or was given up, or flush ends. The slots' goroutines end with their handlers.
func (q *queue) run(ctx, flush context.Context, slots *sync.WaitGroup) {
	for range q.slots {
		slots.Go(q.runSlot)
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
	for flush.Err() == nil {
		if ctx.Err() != nil || q.isStuck() {
			q.releaseBuffered()
		}
		results, want := q.next(ctx)
		if len(results) == 0 && want == 0 {
			if ctx.Err() != nil && q.isIdle() {
				return
			}
			if again, alarms := q.announce(ctx); !again {
				q.await(ctx, flush, poll, alarms)
			}
			continue
		}
		if q.exchange(flush, results, want) {
			backoff.Reset()
			continue
		}
		backoff.Max = min(exchangeBackoffMax, q.settings().lease/8)
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
		results, want := q.next(ctx)
		if len(results) > 0 || want > 0 {
			q.exchange(flush, results, want) // a failure is the other's to wait after
		}
	}
}

// next takes the results that have gathered, and says how many jobs to claim:
// all that there is room for, once a slot is free or a good part of the
// lookahead is used up, so that claims are few and large. What it returns has to
// be exchanged.
func (q *queue) next(ctx context.Context) (results []result, want int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-q.wake:
		q.pace.hasNews()
	default:
	}
	if q.pace.awaited && clock.SinceBoot() >= q.pace.nextLook(q.line) {
		q.pace.awaited = false
		q.pace.hasNews()
	}
	if len(q.results) > 0 {
		results, q.results = q.results, make([]result, 0, len(q.results)) // about as many come next
	}
	q.pace.observe(results)
	if len(q.busy) > 0 && clock.SinceBoot() >= q.busyTo {
		results, q.busy = append(results, q.busy...), nil
	}
	if q.pace.more && ctx.Err() == nil && !q.worker.externals.forbidAll(q.kinds) {
		want = q.wantLocked()
	}
	if len(results) > 0 || want > 0 {
		q.flying++
		q.asked += want
		for _, id := range leasesOf(results) {
			q.telling[id] = struct{}{}
		}
	}
	return results, want
}

func (q *queue) wantLocked() int {
	target := q.slots
	if q.conf.tickerExtends() > 0 { // else a job's lease runs out while it waits here
		target += min(lookaheadMax, int(q.pace.rate*lookaheadTime.Seconds()))
	}
	inHand := q.inHand + q.asked
	want := min(target-inHand, lookaheadMax)
	if inHand >= q.slots && want < target/4 {
		want = 0
	}
	return max(want, 0)
}

// announce makes sure that those who insert notify, when this queue has slots
// to fill. It says whether to claim once more first, because jobs may have come
// unnoticed, and when to come back.
func (q *queue) announce(ctx context.Context) (again bool, next alarms) {
	if q.worker.deaf.Load() || ctx.Err() != nil || !q.hasRoom() {
		return false, noAlarms
	}
	round, next := q.worker.wait.announce(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	if again = round != q.round; again {
		q.round = round
		q.pace.hasNews()
	}
	return again, next
}

func (q *queue) hasRoom() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.inHand+q.asked < q.slots
}

// await blocks until there is a reason to look again, or something else to do.
func (q *queue) await(ctx, flush context.Context, poll *time.Timer, next alarms) {
	stop := ctx.Done()
	if ctx.Err() != nil {
		stop = nil // draining: only results matter
	}
	back, other := q.dues()
	look, rest := time.NewTimer(min(back, next.recheck)), time.NewTimer(min(other, next.renew))
	defer look.Stop()
	defer rest.Stop()
	select {
	case <-q.ended:
		return
	case <-stop:
		return
	case <-flush.Done():
		return
	case <-rest.C:
		return
	case <-look.C:
	case <-q.wake:
	case <-poll.C:
		poll.Reset(q.pollInterval())
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pace.hasNews()
}

// dues are how long until what lies behind the bound is to be looked at, if
// somebody waits for that; and until results are to be sent again whose rows were locked, or
// jobs to be given back that no slot has come free for.
func (q *queue) dues() (back, other time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	back, other = never, never
	if q.pace.awaited {
		back = max(q.pace.nextLook(q.line)-clock.SinceBoot(), 0)
	}
	if len(q.busy) > 0 {
		other = max(q.busyTo-clock.SinceBoot(), 0)
	}
	if len(q.buffer) > 0 {
		other = min(other, max(q.movedAt+bufferTime-clock.SinceBoot(), 0))
	}
	return back, other
}

// isStuck says whether what was claimed ahead waits for runs that are not as
// short as those of late.
func (q *queue) isStuck() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.buffer) > 0 && clock.SinceBoot() >= q.movedAt+bufferTime
}

// pollInterval is between three quarters of the interval and the whole, so
// that workers started together do not poll together; and hearsFactor times that
// while notifications arrive.
func (q *queue) pollInterval() time.Duration {
	interval := q.worker.config.PollInterval
	if q.worker.present.Load() {
		interval *= hearsFactor
	}
	if !mutant.Polls() {
		return never
	}
	return interval - rand.N(interval/4+1) // #nosec G404 -- jitter
}

// releaseBuffered gives jobs back that no handler has begun, which costs them no
// attempt.
func (q *queue) releaseBuffered() {
	for {
		select {
		case run := <-q.buffer:
			if !q.worker.keeper.drop(run).lost {
				q.end(run.released(false))
			} else {
				q.discard()
			}
		default:
			return
		}
	}
}

// end records a result for the next round trip.
func (q *queue) end(r result) {
	q.mu.Lock()
	q.sortInLocked(r)
	q.freedLocked()
	many := q.flying == 1 && len(q.results) >= assistMin
	q.mu.Unlock()
	if many {
		signal(q.many)
	}
	signal(q.ended)
}

// completedTx records that a run's own transaction has completed its job. The
// lease has to be told.
func (q *queue) completedTx(run *Run) {
	q.mu.Lock()
	q.pace.byTx++
	q.sortInLocked(result{run: run})
	q.mu.Unlock()
	q.discard()
}

// discard records that a run has no result to store: its lease was lost, or
// its own transaction has completed it.
func (q *queue) discard() {
	q.mu.Lock()
	q.freedLocked()
	q.mu.Unlock()
	signal(q.ended)
}

func (q *queue) freedLocked() {
	q.inHand--
	q.movedAt = clock.SinceBoot()
}

func (q *queue) isIdle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	// What only a lease was not told does not keep the worker: whoever ends the lease finds out.
	return q.inHand == 0 && len(q.results) == 0 && q.flying == 0 && !slices.ContainsFunc(q.busy, func(r result) bool { return !r.isUntold() })
}

var (
	// errStuck: handlers did not return after their contexts were cancelled.
	errStuck = errors.New("handlers did not stop")
	// errUnstored: the database did not take the last results in time.
	errUnstored = errors.New("results could not be stored; their leases will expire")
)
