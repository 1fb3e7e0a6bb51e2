package worker

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/worker/internal/clock"
	"github.com/jobq-dev/jobq/worker/internal/line"
)

const (
	// bufferTime is how long claimed jobs wait here while no slot comes free; then
	// others may have them.
	bufferTime = time.Second
	// assistMin is how many results gather during a round trip before a second one
	// is worth its commit.
	assistMin = 150
)

// load is what a queue has in hand: jobs that it has claimed, results that are not
// stored yet, and round trips under way with their claims. All that touches it is
// in this file; each method is one step.
type load struct {
	slots int

	mu sync.Mutex
	// guarded by mu
	inHand  int           // jobs in the buffer or with a handler
	movedAt time.Duration // when a job last ended, or jobs came into the buffer

	results []result // that the next round trip takes
	// later are results of leases that a round trip under way tells of other ends:
	// two at once would meet at the row of the lease. telling are these leases.
	later   []result
	telling map[int64]struct{}
	// refused are results that the database could not take, mostly because somebody
	// has locked their rows. They are sent again at resendAt.
	refused  []result
	resendAt time.Duration

	roundTrips int // under way
	claiming   int // jobs that these claim at most
	planner    *line.Planner
	endedByTx  int // runs that have ended in transactions of their handlers' own, not yet in the rate
	round      int // of the announcements, in which it claimed last
	// hasKeys says that the queue has jobs with partition keys, and keysNow that some of these
	// may wait to be claimed. keyNews counts what says so: the answer to a claim that was sent before does not speak of it.
	hasKeys bool
	keysNow bool
	keyNews int
	// keysNext is for the next claim.
	keysNext keysPlan
	// noKeyLimit says that the keys had no limit and no rate when they were claimed from last.
	noKeyLimit bool
	// keysAt is when the next key may start a job that its rate keeps from that.
	keysAt time.Duration

	// Claims wait until fullUntil because as many jobs of the queue run as may, and until
	// throttledUntil because as many have started. unblocks counts what may have changed
	// that: the answer to a claim that was sent before does not speak of it.
	fullUntil, throttledUntil time.Duration
	unblocks                  int
}

func newLoad(slots int) load {
	return load{slots: slots, planner: line.New(), keysNow: true, keysAt: clock.Never, telling: make(map[int64]struct{})}
}

// news makes the queue claim.
func (l *load) news() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.newsLocked()
}

func (l *load) newsLocked() {
	l.planner.News()
	l.keyNewsLocked()
}

func (l *load) keyNewsLocked() {
	l.keysNow = true
	l.keyNews++
}

// returned makes the next claim look at the whole line.
func (l *load) returned() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.planner.Returned()
	l.keyNewsLocked()
}

// take takes the results that have gathered, and says how many jobs to claim. What
// it returns has to travel in a round trip, and landed has to follow.
func (l *load) take(now time.Duration, mayClaim, ahead bool) (results []result, count int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.results) > 0 {
		results, l.results = l.results, make([]result, 0, len(l.results)) // about as many come next
	}
	ended := l.endedByTx
	for i := range results {
		if results[i].isFirstEnd() {
			ended++
		}
	}
	l.endedByTx = 0
	l.planner.Ended(now, ended)
	if len(l.refused) > 0 && now >= l.resendAt {
		results, l.refused = append(results, l.refused...), nil
	}
	if len(results) > 0 { // which make room
		l.fullUntil = 0
		l.unblocks++
	}
	for i := range results {
		if results[i].run.partitionKey != "" { // which may have been full
			l.keyNewsLocked()
			break
		}
	}
	if now >= l.keysAt {
		l.keysAt = clock.Never
		l.keyNewsLocked()
	}
	if (l.planner.ShouldClaim(now) || l.hasKeys && l.keysNow) && mayClaim && now >= l.blockedUntilLocked() {
		count = l.planner.Count(l.slots, l.inHand+l.claiming, ahead)
	}
	if len(results) > 0 || count > 0 {
		l.roundTrips++
		l.claiming += count
		for _, id := range leasesOf(results) {
			l.telling[id] = struct{}{}
		}
	}
	return results, count
}

// landed ends a round trip, which claimed up to so many jobs and has told the leases
// what has ended.
func (l *load) landed(count int, told []int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.roundTrips--
	l.claiming -= count
	for _, id := range told {
		delete(l.telling, id)
	}
	later := l.later
	l.later = nil
	for _, r := range later {
		l.addLocked(r)
	}
}

// begin completes the request for a claim.
func (l *load) begin(now time.Duration, request *db.JobClaimParams, partial bool) line.Claim {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.planner.Begin(now, request, partial)
}

// mayClaimAhead says whether jobs that wait here are in nobody's way: they count against the limits of their keys.
func (l *load) mayClaimAhead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.hasKeys || l.noKeyLimit
}

// setKeys takes into account whether the queue has jobs with partition keys.
func (l *load) setKeys(hasKeys bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hasKeys = hasKeys
}

// keysPlan is what a claim is to look at of the keys of a queue.
type keysPlan struct {
	pass    db.LanePass
	news    int  // keyNews when the pass began
	sharing bool // the claim before got all that it asked for: so there is more than enough, and another one need not find each job
}

// beginKeyed says whether a claim is to take jobs without a partition key as well, and where
// it begins with those that have one.
func (l *load) beginKeyed(now time.Duration) (plain bool, keys keysPlan) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if keys = l.keysNext; keys.pass == (db.LanePass{}) {
		keys.news = l.keyNews
	}
	return !l.hasKeys || l.planner.ShouldClaim(now), keys
}

// keysAnswered takes into account what a claim has found of jobs with partition keys. A pass
// that began before the last news says nothing of it, and another one follows. When the next
// throttled key is due, it claims after the delay.
func (l *load) keysAnswered(now time.Duration, keys keysPlan, answer db.Exchanged, delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inHand += len(answer.Keyed)
	if len(answer.Keyed) > 0 {
		l.movedAt = now
	}
	l.noKeyLimit = !answer.HasKeyLimit
	l.keysAt = clock.Never
	if answer.KeysWait > 0 {
		l.keysAt = now + answer.KeysWait + max(delay, 0)
	}
	keys.pass, keys.sharing = answer.LanePass, len(answer.Keyed) > 0 && len(answer.Keyed)+len(answer.Claimed) >= answer.Admission.Jobs
	l.keysNext = keys
	if keys.news == l.keyNews || answer.KeysMore {
		l.keysNow = answer.KeysMore
	}
}

// answered takes into account what a claim has found. It says whether no job was
// left for others.
func (l *load) answered(now time.Duration, claim line.Claim, claimed []db.JobClaimRow, took time.Duration) (leftNothing bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inHand += len(claimed)
	if len(claimed) > 0 {
		l.movedAt = now
	}
	return l.planner.Answered(now, claim, claimed, took)
}

// free are the slots that have no job, but for those that a claim under way of so many
// jobs is to fill.
func (l *load) free(count int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.slots-l.inHand-(l.claiming-count), 0)
}

// blocked takes into account that the limits of the queue have let a claim take less
// than it asked for, or nothing. Of room elsewhere, and of limits that were changed, there
// is a notification, and should that be lost the queue asks again after about the poll interval.
func (l *load) blocked(now time.Duration, admission db.Admission, poll time.Duration, unblocks int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if unblocks != l.unblocks {
		return
	}
	poll -= rand.N(poll/4 + 1) // #nosec G404 -- jitter
	switch admission.Blocked {
	case db.BlockedByLimit:
		l.fullUntil = now + poll
	case db.BlockedByRate:
		l.throttledUntil = now + min(admission.Wait, poll)
	case db.BlockedByOthers, db.BlockedByNothing:
	}
}

// unblock lets the next claim ask again what the limits of the queue admit.
func (l *load) unblock() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fullUntil, l.throttledUntil = 0, 0
	l.unblocks++
}

// unblockCount is how often that, or an end here, has made room.
func (l *load) unblockCount() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unblocks
}

// isBlocked says whether the limits of the queue keep it from claiming now.
func (l *load) isBlocked(now time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return now < l.blockedUntilLocked()
}

func (l *load) blockedUntilLocked() time.Duration { return max(l.fullUntil, l.throttledUntil) }

// failed takes into account that a claim has failed, perhaps because it took too
// long.
func (l *load) failed(now time.Duration, claim line.Claim, took time.Duration, tooLong bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.planner.Failed(now, claim, took, tooLong)
}

// isBehind says whether there may be more jobs than the queue has claimed.
func (l *load) isBehind() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.planner.WillClaim()
}

// setAged says which priorities are aged.
func (l *load) setAged(now time.Duration, aged []db.Aged) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.planner.SetAged(now, aged)
}

// isSeparate says whether results are not to wait for the next claim.
func (l *load) isSeparate() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.planner.IsSeparate()
}

// isNewRound says whether to claim once more for the announcements' sake.
func (l *load) isNewRound(round int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if round == l.round {
		return false
	}
	l.round = round
	l.newsLocked()
	return true
}

// ended takes the result of a job, and says whether so many have gathered that a
// second round trip is worth while.
func (l *load) ended(now time.Duration, r result) (many bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addLocked(r)
	l.freedLocked(now)
	return l.roundTrips == 1 && len(l.results) >= assistMin
}

// completedByTx notes that a run's own transaction has completed its job. The lease
// has to be told.
func (l *load) completedByTx(now time.Duration, run *Run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endedByTx++
	l.addLocked(result{run: run})
	l.freedLocked(now)
}

// discarded notes that a job has ended which has no result to store.
func (l *load) discarded(now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.freedLocked(now)
}

func (l *load) freedLocked(now time.Duration) {
	l.inHand--
	l.movedAt = now
}

// addLocked adds a result to those that travel next, or to those that wait for a
// round trip to land.
func (l *load) addLocked(r result) {
	if _, ok := l.telling[r.run.row.LeaseToken]; ok {
		l.later = append(l.later, r)
		return
	}
	l.results = append(l.results, r)
}

// putBack returns results that could not be stored, of whose fate nothing is known.
func (l *load) putBack(results []result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range results {
		results[i].retried = true
	}
	l.results = append(results, l.results...)
}

// setAside keeps the results of jobs that the database cannot take now, as when
// somebody else has locked their rows, to be sent again after a delay. It returns the
// others, which need not wait for these.
func (l *load) setAside(now time.Duration, results []result, jobs []int64, delay time.Duration) (others []result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range results {
		if !r.isUntold() && slices.Contains(jobs, r.run.row.ID) {
			l.refuseLocked(r, now+delay)
		} else {
			others = append(others, r)
		}
	}
	return others
}

// keepUntold keeps those of the results that are stored and of which somebody has
// kept the lease from being told.
func (l *load) keepUntold(now time.Duration, results []result, untold []db.Slot) {
	if len(untold) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range results {
		if slices.Contains(untold, r.run.slot()) {
			l.refuseLocked(result{run: r.run}, now+busyDelay)
		}
	}
}

func (l *load) refuseLocked(r result, resendAt time.Duration) {
	if len(l.refused) == 0 { // else what waits already would wait on and on
		l.resendAt = resendAt
	}
	l.refused = append(l.refused, r)
}

// hasRoom says whether there is a slot without a job.
func (l *load) hasRoom() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hasRoomLocked()
}

func (l *load) hasRoomLocked() bool { return l.inHand+l.claiming < l.slots }

// needsNoDelay says whether a notification of new jobs changes nothing: the queue claims
// anyhow, or cannot.
func (l *load) needsNoDelay() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.planner.WillClaim() || !l.hasRoomLocked()
}

// isStuck says whether jobs in the buffer have waited for so long that others are to
// have them: they wait for runs that are not as short as those of late.
func (l *load) isStuck(now time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return now >= l.stuckAtLocked()
}

// stuckAtLocked is when the jobs in the buffer have waited for long enough; never
// while each has a slot: it begins as soon as the machine has time for it, and to
// give it back would only make every worker look for it.
func (l *load) stuckAtLocked() time.Duration {
	if l.inHand <= l.slots {
		return clock.Never
	}
	return l.movedAt + bufferTime
}

// isIdle says whether nothing is in hand and nothing is to be stored. What only a
// lease was not told does not count: see hasUntold.
func (l *load) isIdle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inHand == 0 && len(l.results) == 0 && l.roundTrips == 0 && !slices.ContainsFunc(l.refused, func(r result) bool { return !r.isUntold() })
}

// hasUntold says whether there are leases to be told of ends that are stored. Where
// nobody tells them, whoever reaps them finds out.
func (l *load) hasUntold() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.refused, result.isUntold)
}

// dues are the instants by which the queue has to do something although nothing
// happens: to claim for a look back, and to send results again or to give jobs in
// the buffer, if there are some, to others. An instant that does not come is
// clock.Never.
func (l *load) dues(now time.Duration, buffered bool) (look, other time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	look, other = clock.Never, clock.Never
	if at, ok := l.planner.NextLook(); ok {
		look = at
	}
	if until := l.blockedUntilLocked(); until > now && (l.planner.WillClaim() || l.hasKeys && l.keysNow) {
		look = min(look, until)
	}
	if l.hasKeys {
		look = min(look, l.keysAt)
	}
	if len(l.refused) > 0 {
		other = l.resendAt
	}
	if buffered {
		other = min(other, l.stuckAtLocked())
	}
	return look, other
}
