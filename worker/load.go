package worker

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/worker/internal/ahead"
	"github.com/jobq-dev/jobq/worker/internal/clock"
	"github.com/jobq-dev/jobq/worker/internal/line"
)

const (
	// bufferTime is how long claimed jobs wait in the buffer while no slot becomes free.
	// After that the queue releases them, so that another worker can run them.
	bufferTime = time.Second
	// assistMin is how many results must gather during a round trip before a second,
	// concurrent round trip is worth the price of its commit.
	assistMin = 150
)

// load is the state of a queue in this worker: the jobs that it has claimed, the results
// that are not stored yet, and the round trips under way with their claims. Only the
// methods in this file touch the guarded fields. Each method is one step under the mutex.
type load struct {
	slots int

	mu sync.Mutex
	// guarded by mu
	inHand  int           // jobs in the buffer or with a handler, and those in ahead
	movedAt time.Duration // when a job last ended, or jobs came into the buffer

	results []result // that the next round trip takes
	// recording are the leases that a round trip under way updates. later are the results
	// of runs of these leases that arrived meanwhile. They wait until that round trip has
	// ended, because two round trips at once would lock the same row of the lease.
	later     []result
	recording map[int64]struct{}
	// refused are results that the database could not store, mostly because another
	// session has locked their rows. They are sent again at resendAt.
	refused  []result
	resendAt time.Duration

	ahead    ahead.Line[*Run] // claimed, and may not begin yet
	promised int              // slots that claims under way will fill at once

	roundTrips int // under way
	claiming   int // the most jobs that the round trips under way may claim
	planner    *line.Planner
	endedByTx  int // runs that ended in a transaction of their handler; the planner's rate does not count them yet
	round      int // the round of announcements in which the queue claimed last
	// hasKeys says that the queue has jobs with partition keys, and keysNow that some of
	// these jobs may wait to be claimed. keyNews counts the events that set keysNow: the
	// answer to a claim that was sent before the last one must not clear it.
	hasKeys bool
	keysNow bool
	keyNews int
	// keysNext is the plan of the next claim of jobs with keys.
	keysNext keysPlan
	// noKeyLimit says that at the last claim of jobs with keys, no key had a limit or a rate.
	noKeyLimit bool
	// keysAt is when the next throttled key may start a job; clock.Never for none.
	keysAt time.Duration

	// Claims wait until fullUntil if the queue's limit is reached, and until throttledUntil if
	// its rate is. unblocks counts the events that may have made room: the answer to a claim
	// that was sent before the last one must not block the queue.
	fullUntil, throttledUntil time.Duration
	unblocks                  int
}

func newLoad(slots int) load {
	return load{slots: slots, planner: line.New(), keysNow: true, keysAt: clock.Never, recording: make(map[int64]struct{})}
}

// news notes that there may be new jobs, so that the next round trip claims.
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

// notified notes that a notification of new jobs has come, and that the queue claims once more after lookAt.
func (l *load) notified(lookAt time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.planner.Notified(lookAt)
}

// isPaced says whether the queue claims without news, because jobs come fast, and so needs no
// notifications.
func (l *load) isPaced() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.planner.IsPaced()
}

// returned notes that jobs may have returned to their old places in the line, so that the
// next claim looks at the whole line.
func (l *load) returned() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.planner.Returned()
	l.keyNewsLocked()
}

// take removes the results that have gathered, and returns them with the number of jobs
// to claim. Unless there is neither, the caller must make a round trip with them, and
// call roundTripEnded after it.
func (l *load) take(now time.Duration, mayClaim, ahead bool) (results []result, count int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.results) > 0 {
		results, l.results = l.results, make([]result, 0, len(l.results)) // the next round trip usually has about as many
	}
	ended, took := l.endedByTx, time.Duration(0)
	for i := range results {
		if results[i].isFirstEnd() {
			ended++
			took += results[i].took()
		}
	}
	if ended > 0 {
		l.planner.Ran(took, ended)
	}
	l.endedByTx = 0
	l.planner.Ended(now, ended)
	if len(l.refused) > 0 && now >= l.resendAt {
		results, l.refused = append(results, l.refused...), nil
	}
	if len(results) > 0 { // runs that ended make room under the queue's limit
		l.fullUntil = 0
		l.unblocks++
	}
	for i := range results {
		if results[i].run.partitionKey != "" { // the key may have been at its limit, and now has room
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
			l.recording[id] = struct{}{}
		}
	}
	return results, count
}

// roundTripEnded notes that a round trip has ended. count is what take returned for it, and recorded
// are the leases in which it has recorded ends. Results that waited for these leases can go now.
func (l *load) roundTripEnded(count int, recorded []int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.roundTrips--
	l.claiming -= count
	for _, id := range recorded {
		delete(l.recording, id)
	}
	later := l.later
	l.later = nil
	for _, r := range later {
		l.addLocked(r)
	}
}

// begin sets the part of the line that a claim looks at in its request. partial says that
// the request is not for all kinds of the queue.
func (l *load) begin(now time.Duration, request *db.JobClaimParams, partial bool) line.Claim {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.planner.Begin(now, request, partial)
}

// mayClaimAhead says whether the queue may claim more jobs than it has free slots. It must not
// while keys have limits: a job in the buffer counts as one of its key that runs.
func (l *load) mayClaimAhead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.hasKeys || l.noKeyLimit
}

// setKeys stores whether the queue has jobs with partition keys.
func (l *load) setKeys(hasKeys bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hasKeys = hasKeys
}

// keysPlan says where a claim begins among the partition keys of a queue.
type keysPlan struct {
	pass db.LanePass
	news int // keyNews when the pass began
	// sharing says that the claim before got as many jobs as it asked for. Then there are
	// more than enough jobs, and the claim may run beside others and miss some of them.
	sharing bool
}

// beginKeyed plans the part of a claim that is about partition keys: plain says whether the
// claim also takes jobs without a key, and keys where it begins among the jobs with one.
func (l *load) beginKeyed(now time.Duration) (plain bool, keys keysPlan) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if keys = l.keysNext; keys.pass == (db.LanePass{}) {
		keys.news = l.keyNews
	}
	return !l.hasKeys || l.planner.ShouldClaim(now), keys
}

// claimed records how many jobs a claim has got, with and without keys, of those that it has asked for,
// and how long it took.
func (l *load) claimed(now time.Duration, jobs, asked int, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.planner.Claimed(now, jobs, asked, took)
}

// keysAnswered records which jobs with partition keys a claim has found. A pass that began
// before the last news cannot have seen it, so another pass follows. The delay is added to the
// time at which the next throttled key may start a job: the queue claims then.
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

// answered records what a claim has found. It returns true when the claim left no job in
// the line for other workers.
func (l *load) answered(now time.Duration, claim line.Claim, claimed []db.JobClaimRow, took time.Duration) (leftNothing bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inHand += len(claimed)
	if len(claimed) > 0 {
		l.movedAt = now
	}
	return l.planner.Answered(now, claim, claimed, took)
}

// beginAlone records that a claim of a suspect has begun.
func (l *load) beginAlone() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.roundTrips++
}

// endAlone records that it has ended, with one job or none.
func (l *load) endAlone(now time.Duration, jobs int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.roundTrips--
	l.inHand += jobs
	l.movedAt = now
}

// blocked records that the limits of the queue let a claim take fewer jobs than it asked for,
// or none. A notification tells when another worker makes room, or when a limit changes. In
// case that is lost, the queue asks again after three quarters to all of the poll interval.
// unblocks is unblockCount before the claim was sent: if there was room since, the claim's
// answer is out of date and is ignored.
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

// unblock lets the queue claim again at once: its limits may admit more jobs now.
func (l *load) unblock() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fullUntil, l.throttledUntil = 0, 0
	l.unblocks++
}

// unblockCount is how often unblock, or a run that ended in this worker, may have made room.
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

// failed records that a claim has failed after took. tooLong says that it ran into a timeout.
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

// setAged stores which priorities are aged: their first jobs have waited so long that they
// get turns among more urgent ones.
func (l *load) setAged(now time.Duration, aged []db.Aged) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.planner.SetAged(now, aged)
}

// isSeparate says whether results go in a round trip of their own, before the next claim, so
// that they need not wait for a slow claim.
func (l *load) isSeparate() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.planner.IsSeparate()
}

// isNewRound says whether a new round of announcements has begun. Then the queue must claim once
// more: jobs that came before the announcement caused no notification.
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

// hasRoom says whether there is a slot without a job.
func (l *load) hasRoom() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hasRoomLocked()
}

func (l *load) hasRoomLocked() bool { return l.inHand+l.claiming < l.slots }

// needsNoDelay says whether a notification of new jobs changes nothing for this queue: it
// will claim anyhow, or it has no free slot.
func (l *load) needsNoDelay() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.planner.WillClaim() || !l.hasRoomLocked()
}

// isStuck says whether jobs in the buffer must be released to other workers. They were claimed
// ahead because runs had been short, and the runs that they wait for take longer.
func (l *load) isStuck(now time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return now >= l.stuckAtLocked()
}

// stuckAtLocked is when the jobs in the buffer must be released. It is clock.Never while there is
// a slot for each job: they wait only for the machine, and each worker would look for them anew.
func (l *load) stuckAtLocked() time.Duration {
	if l.inHand <= l.slots {
		return clock.Never
	}
	return l.movedAt + bufferTime
}

// isIdle says whether the queue has no job in hand and no result to store. An end that is
// stored, and of which only the lease does not know, does not count: see hasUnrecorded.
func (l *load) isIdle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inHand == 0 && len(l.results) == 0 && l.roundTrips == 0 && !slices.ContainsFunc(l.refused, func(r result) bool { return !r.isUnrecorded() })
}

// wakeTimes are the times at which the queue must wake without an event: look, to claim again,
// and other, to send refused results again or to release the jobs in the buffer. buffered says
// whether there are such jobs. A time that does not come is clock.Never.
func (l *load) wakeTimes(now time.Duration, buffered bool) (look, other time.Duration) {
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
	if at, ok := l.ahead.RetryAt(now); ok {
		other = min(other, at)
	}
	return look, other
}
