package worker

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/worker/internal/clock"
)

// A job that was lost with its worker twice in a row is a suspect (jobq.pending_suspect_idx): it may be
// what ends the workers, or it was beside the job that does. No claim takes it but one, which a worker
// makes only when it runs nothing else and holds nothing. While the suspect runs, the worker claims
// nothing. If that worker is lost as well, no other job was there, so it is known which one did it. A
// suspect that ends by itself is none any more.
//
// For example, with runs of 5 minutes in 10 slots, which never all end at once:
//
//	12:00:00  a suspect is due. The worker claims nothing for 5 s, in vain, and goes on
//	12:00:50  it claims nothing for 10 s; at 12:02:30 for 20 s; and so on, each time twice as long,
//	          and never for more than a tenth of its time
//	12:52:30  it claims nothing for up to 320 s. At 12:57 the last run has ended, and the suspect begins
//	13:07:00  the suspect still runs: others begin beside it
//
// So a suspect waits for about ten times as long as the longest run takes, unless a worker is alone
// sooner, and nobody is interrupted.
const (
	// holdMin is the shortest time for which a worker claims nothing, so that what runs may end.
	holdMin = 5 * time.Second
	// holdRests is how many times as long as that, in vain, the worker goes on before it tries again.
	holdRests = 9
	// aloneMax is the longest time that a suspect keeps others from beginning beside it: a job that
	// takes days must not cost a worker days. It also limits the rest after a suspect.
	aloneMax = 10 * time.Minute
	// aloneLook is how often a worker that waits to be alone looks whether it is.
	aloneLook = 10 * time.Millisecond
	// refusedRest is the pause after a claim that found no suspect that may start, for example
	// because of the limit of its queue.
	refusedRest = 10 * time.Second
)

// solitude is what a worker does about suspects. Only runSuspects changes held.
type solitude struct {
	holdMin, aloneMax time.Duration // the constants of these names; tests shorten them

	gate sync.RWMutex // locked for reading while a queue decides to claim
	// guarded by gate
	held  bool          // nothing is claimed but a suspect
	dueAt time.Duration // when the next suspect is due, as far as is known; clock.Never for none

	news chan struct{} // dueAt has changed
}

func newSolitude() *solitude {
	return &solitude{holdMin: holdMin, aloneMax: aloneMax, dueAt: clock.Never, news: make(chan struct{}, 1)}
}

// know stores when the next suspect is due.
func (s *solitude) know(at time.Duration) {
	s.gate.Lock()
	defer s.gate.Unlock()
	s.dueAt = at
	signal(s.news)
}

func (s *solitude) due() time.Duration {
	s.gate.RLock()
	defer s.gate.RUnlock()
	return s.dueAt
}

// hold says whether nothing is to be claimed but a suspect. When it returns, the claims that were
// decided before count in their queues.
func (s *solitude) hold(held bool) {
	s.gate.Lock()
	defer s.gate.Unlock()
	s.held = held
}

// suspectDue is the earliest time at which a suspect of the queues is due.
func suspectDue(rows []db.WorkerBeatRow) time.Duration {
	at := clock.Never
	for _, row := range rows {
		if row.SuspectMs >= 0 {
			at = min(at, clock.SinceBoot()+time.Duration(row.SuspectMs)*time.Millisecond)
		}
	}
	return at
}

// pace is for how long a worker claims nothing, so that it comes to be alone, and for how long it goes on in
// between.
type pace struct {
	holdMin, aloneMax time.Duration // the constants of these names
	hold              time.Duration // of the next try
}

// waitedInVain returns for how long others begin now. The next try may take twice as long.
func (p *pace) waitedInVain() (rest time.Duration) {
	rest = holdRests * p.hold
	p.hold *= 2
	return rest
}

// ranAlone returns the same after a suspect that kept others from beginning for so long.
func (p *pace) ranAlone(took time.Duration) (rest time.Duration) {
	p.hold = p.holdMin
	return min(took, p.aloneMax)
}

// foundNone returns the same after a claim that found no suspect that may start.
func (p *pace) foundNone() (rest time.Duration) {
	p.hold = p.holdMin
	return refusedRest
}

// runSuspects runs suspects, one after the other, until the context ends. They get at most half of the
// worker's time while it has other jobs. held says that nothing was claimed yet, since a suspect was due
// when the worker began.
func (w *Worker) runSuspects(ctx context.Context, held bool) {
	p := pace{holdMin: w.solitude.holdMin, aloneMax: w.solitude.aloneMax, hold: w.solitude.holdMin}
	for ctx.Err() == nil {
		if !held && !w.awaitSuspect(ctx) {
			return
		}
		suspects := w.suspects(ctx)
		began := clock.SinceBoot()
		var rest time.Duration
		switch {
		case len(suspects) == 0:
			w.holdBack(false)
		case !w.becomeAlone(ctx, p.hold):
			rest = p.waitedInVain()
			w.log.Warn("a job is to run alone and waits, since other runs do not end", "job_id", suspects[0].ID, "queue", suspects[0].Queue,
				"kind", suspects[0].Kind, "overdue", -time.Duration(suspects[0].DueMs)*time.Millisecond, "next_try", rest)
		case w.runAlone(ctx, suspects):
			rest = p.ranAlone(clock.SinceBoot() - began)
		default:
			rest = p.foundNone()
		}
		held = false
		w.goOn(ctx, rest, len(suspects) > 0 && rest != refusedRest)
	}
}

// awaitSuspect waits until a suspect is due, and returns false when the context has ended. Where other
// jobs run, it waits a little longer, at random: another worker may be alone already, and not all of a
// fleet are to stop claiming at once.
func (w *Worker) awaitSuspect(ctx context.Context) bool {
	for {
		wait := max(w.solitude.due()-clock.SinceBoot(), 0)
		if wait == 0 && !w.isIdle() {
			wait = rand.N(w.solitude.holdMin) // #nosec G404 -- jitter
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C:
			return true
		case <-w.solitude.news:
			timer.Stop()
		}
	}
}

// suspects are those that are due, the first one of each queue.
func (w *Worker) suspects(ctx context.Context) (due []db.SuspectNextRow) {
	callCtx, cancel := context.WithTimeout(ctx, exchangeTimeoutMax)
	defer cancel()
	var names []string
	for name := range w.queues {
		names = append(names, name)
	}
	rows, err := w.queries.SuspectNext(callCtx, names, w.claimable(w.claims))
	if err != nil {
		if ctx.Err() == nil {
			w.databaseTrouble(err)
		}
		w.solitude.know(clock.Never) // until the next heartbeat
		return nil
	}
	next := clock.Never
	for _, row := range rows {
		next = min(next, clock.SinceBoot()+time.Duration(row.DueMs)*time.Millisecond)
		if row.DueMs <= 0 {
			due = append(due, row)
		}
	}
	slices.SortFunc(due, func(a, b db.SuspectNextRow) int { return int(a.DueMs - b.DueMs) })
	w.solitude.know(next)
	return due
}

// becomeAlone stops claims, and waits until the worker holds nothing. If that takes too long it lets claims
// go on, and returns false.
func (w *Worker) becomeAlone(ctx context.Context, patience time.Duration) bool {
	w.solitude.hold(true)
	alone := w.await(ctx, patience, w.holdsNothing)
	if !alone {
		w.holdBack(false)
	}
	return alone
}

// runAlone claims one of these suspects and returns when it has ended, or others may begin beside it. It
// returns false if none may start.
func (w *Worker) runAlone(ctx context.Context, suspects []db.SuspectNextRow) bool {
	defer w.holdBack(false)
	for _, suspect := range suspects {
		for _, q := range w.queues[suspect.Queue].all() {
			if !w.holdsNothing() { // the answer to the last try was lost
				return false
			}
			if slices.Contains(q.kinds, suspect.Kind) && q.askAlone(ctx) {
				w.await(ctx, w.solitude.aloneMax, w.isIdle)
				return true
			}
		}
	}
	return false
}

// holdBack stops claims, or lets them go on.
func (w *Worker) holdBack(held bool) {
	w.solitude.hold(held)
	for _, q := range w.queues {
		for _, each := range q.all() {
			signal(each.wake)
		}
	}
}

// goOn waits, so that other jobs get their share, and not for long while there are none.
func (w *Worker) goOn(ctx context.Context, rest time.Duration, early bool) {
	if early && rest > time.Second {
		if !within(ctx.Done(), time.Second, nil) {
			w.await(ctx, rest-time.Second, w.isIdle)
		}
		return
	}
	within(ctx.Done(), rest, nil)
}

// holdsNothing says whether nothing runs, all results are stored, and no claim whose answer was lost may
// have made a lease: its jobs would be lost with a suspect.
func (w *Worker) holdsNothing() bool {
	return w.isIdle() && !w.claimed.MayHaveUnknown(clock.SinceBoot())
}

// await waits until the condition holds, and returns whether it does.
func (w *Worker) await(ctx context.Context, patience time.Duration, condition func() bool) bool {
	ticker := time.NewTicker(aloneLook)
	defer ticker.Stop()
	for end := clock.SinceBoot() + patience; !condition(); {
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C:
			if clock.SinceBoot() >= end {
				return false
			}
		}
	}
	return true
}

// askAlone has the queue claim a suspect, and says whether it has one.
func (q *queue) askAlone(ctx context.Context) bool {
	answer := make(chan bool, 1)
	select {
	case q.asked <- answer:
	case <-ctx.Done():
		return false
	}
	signal(q.wake)
	select {
	case claimed := <-answer:
		return claimed
	case <-ctx.Done():
		return false
	}
}

// answerAlone claims a suspect if the worker has asked for that. It is for run's goroutine, so that the
// queue cannot end meanwhile.
func (q *queue) answerAlone(ctx context.Context) {
	select {
	case answer := <-q.asked:
		answer <- q.claimAlone(ctx)
	default:
	}
}

func (q *queue) claimAlone(ctx context.Context) bool {
	w, settings := q.worker, q.settings.Load()
	underWay := w.claimed.Begin()
	ctx, cancel := context.WithTimeout(ctx, min(exchangeTimeoutMax, settings.Length/2))
	defer cancel()
	sent := clock.SinceBoot()
	q.load.beginAlone()
	jobs, err := w.schema.ClaimAlone(ctx, w.pool, db.JobClaimAloneParams{
		Queue: q.name, Kinds: w.claimable(q.kinds), Owner: w.id, Lease: db.Interval(settings.Length),
	})
	q.load.endAlone(clock.SinceBoot(), len(jobs))
	if err != nil {
		if db.MayHaveCommitted(err) {
			w.claimed.Unanswered(underWay, clock.SinceBoot()+settings.Length)
			signal(w.unanswered)
		} else {
			w.claimed.Answered(underWay, nil)
		}
		w.databaseTrouble(err)
		return false
	}
	w.claimed.Answered(underWay, leasesMade(db.Exchanged{Keyed: jobs}))
	(&claim{queue: q, settings: settings, begun: 1, begunSoon: 1}).accept(nil, jobs, sent)
	return len(jobs) > 0
}
