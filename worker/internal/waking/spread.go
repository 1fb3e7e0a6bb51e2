package waking

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
)

// A notification of new jobs reaches every worker that listens. So that fifty idle
// ones do not all claim one job, a few claim at once, and the others later, each
// after a delay of its own. A worker whose claim has left nothing says so on another
// channel, and names the last notification that it had received before it sent the
// claim; the others then need not claim after that notification, nor after an
// earlier one. Notifications arrive in the same order everywhere, and so one that
// has received a later one still claims. For example, with 50 idle workers:
//
//	0 ms  notification 71 arrives at all; about two claim at once, the others
//	      wait for up to 200 ms
//	2 ms  one has got the job, the other has found nothing: it says that nothing
//	      is left after 71
//	3 ms  48 workers receive that and do not claim, unless 72 has arrived
const (
	// allAtOnceMax: up to this many idle workers claim at once, without a delay.
	allAtOnceMax = 4
	// The longest delay is delayEach for each idle worker, at most delayMax; on average
	// two workers have none. delayEach is about as long as a claim and the notification
	// of its outcome take.
	delayEach = 4 * time.Millisecond
	delayMax  = 200 * time.Millisecond
	// outcomeTimeout is how long it may take to send an outcome. If it cannot be sent,
	// each of the other workers makes a claim that finds nothing.
	outcomeTimeout = 2 * time.Second
)

// Spreader delays the claims of a worker so that workers which wait for the same jobs do not
// all claim at once.
type Spreader struct {
	// DelayMax is the longest delay before a claim. Default 200 ms.
	DelayMax time.Duration
	outcomes chan string // to be sent
}

// NewSpreader returns a spreader.
func NewSpreader() *Spreader { return &Spreader{outcomes: make(chan string, 1)} }

// Run tells the others what claims have left, until the context ends. It calls
// failed for each error of the database.
func (s *Spreader) Run(ctx context.Context, queries *db.Queries, failed func(error)) {
	for {
		select {
		case <-ctx.Done():
			return
		case outcome := <-s.outcomes:
			callCtx, cancel := context.WithTimeout(ctx, outcomeTimeout)
			if err := queries.TakenSend(callCtx, outcome); err != nil && ctx.Err() == nil {
				failed(err)
			}
			cancel()
		}
	}
}

// Delay is how long this worker waits before it claims after a notification; 0 or less: not
// at all. idle is how many workers had room for such jobs at their last heartbeats.
func (s *Spreader) Delay(idle int64) time.Duration {
	if idle <= allAtOnceMax {
		return 0
	}
	spread := min(time.Duration(idle)*delayEach, cmp.Or(s.DelayMax, delayMax))
	return rand.N(spread) - 2*spread/time.Duration(idle) // #nosec G404 -- no secret
}

// Notifications are what a queue has been told of new jobs.
type Notifications struct {
	spreader *Spreader
	queue    string
	idle     *atomic.Int64
	wake     func()

	mu sync.Mutex
	// guarded by mu
	kinds   uint32      // the hash of the kinds that the queue claims
	hasKeys bool        // it claims jobs with partition keys as well
	last    string      // received
	woken   string      // the last one after which wake was called, at once or after the delay
	settled string      // after which somebody has claimed and left nothing
	delayed *time.Timer // until this worker claims after one; nil when it does not wait to
}

// Notifications returns what a queue is told. Idle is how many workers have room
// for jobs of the queue. Wake makes the queue claim; it must not block.
func (s *Spreader) Notifications(queue string, idle *atomic.Int64, wake func()) *Notifications {
	return &Notifications{spreader: s, queue: queue, idle: idle, wake: wake}
}

// SetKinds says which kinds the queue claims.
func (n *Notifications) SetKinds(kinds []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.kinds = kindsHash(kinds)
}

// SetKeys says whether the queue claims jobs with partition keys as well. A worker that does not
// know yet that the queue has such jobs can only say that it left no other jobs.
func (n *Notifications) SetKeys(hasKeys bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hasKeys = hasKeys
}

// claimsLocked is a number that differs for workers which claim different jobs of the queue.
func (n *Notifications) claimsLocked() uint32 {
	if n.hasKeys {
		return ^n.kinds
	}
	return n.kinds
}

// Received wakes the queue after a notification of new jobs, at once or after the delay.
// claimsAnyhow says that the queue needs no delay: it will claim in any case, or has no room.
func (n *Notifications) Received(notification string, delay time.Duration, claimsAnyhow bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last = notification
	switch {
	case n.delayed != nil:
	case delay <= 0 || claimsAnyhow:
		n.wakeLocked()
	default:
		n.delayed = time.AfterFunc(delay, func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.delayed = nil
			n.wakeLocked()
		})
	}
}

func (n *Notifications) wakeLocked() {
	n.wake()
	n.woken = n.last
}

// LeftNothing records that a worker has claimed after a notification and left no job. If it
// claims the same jobs as this one (claims), and this one has received no later notification,
// this one need not claim.
func (n *Notifications) LeftNothing(notification string, claims uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.last != notification || n.claimsLocked() != claims {
		return
	}
	n.settled = notification
	if n.delayed != nil && n.delayed.Stop() {
		n.delayed = nil
	}
}

// Last is the last notification that was received; "" for none.
func (n *Notifications) Last() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.last
}

// Woken is the last notification after which this worker claims or has claimed; "" for none.
func (n *Notifications) Woken() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.woken
}

// IsDelayed says whether the queue is going to be woken after a delay.
func (n *Notifications) IsDelayed() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.delayed != nil
}

// TellOthers tells the other workers that a claim, sent after the notification was received,
// has left no job.
func (n *Notifications) TellOthers(notification string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if notification == "" || notification == n.settled || n.idle.Load() <= allAtOnceMax {
		return
	}
	n.settled = notification
	select {
	case n.spreader.outcomes <- fmt.Sprintf("%s %x %s", notification, n.claimsLocked(), n.queue):
	default: // one is waiting to be sent; without this one, the others make a claim each
	}
}

// kindsHash is a number that differs, most likely, for other kinds.
func kindsHash(kinds []string) uint32 {
	hash := fnv.New32a()
	for _, kind := range slices.Sorted(slices.Values(kinds)) {
		_, _ = hash.Write(append([]byte(kind), 0)) // never fails
	}
	return hash.Sum32()
}

// ParseNew reads a notification of new jobs, as the schema's function wake sends it.
func ParseNew(payload string) (notification, queue string) {
	notification, queue, _ = strings.Cut(payload, " ")
	return notification, queue
}

// ParseLeftNothing reads what TellOthers has sent; false for anything else.
func ParseLeftNothing(payload string) (notification string, claims uint32, queue string, ok bool) {
	notification, rest, _ := strings.Cut(payload, " ")
	hash, queue, _ := strings.Cut(rest, " ")
	number, err := strconv.ParseUint(hash, 16, 32)
	return notification, uint32(number), queue, err == nil
}
