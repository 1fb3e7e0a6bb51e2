// Package waking is how idle workers learn of new jobs: they announce that they
// wait, so that inserts notify, and spread their claims after a notification.
package waking

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/worker/internal/clock"
)

const (
	// announcedTime is the longest time for which an announcement holds. A queue renews its announcement when a
	// third of the time is left, but not earlier than renewedBefore its end: at 22 seconds of 30. Heartbeats come
	// every 10 seconds, so one that came at 20 seconds has renewed it before.
	announcedTime = 30 * time.Second
	renewedBefore = 8 * time.Second
	// announcedFirst is how long the first announcement holds. Each that follows holds twice as long.
	// So if jobs come so fast that the worker needs no notifications, these soon end.
	announcedFirst = time.Second
	// announceTimeout is the longest time of a call of Announce.
	announceTimeout = 4 * time.Second
	// An announcement that failed is made again after retryMin. The pause doubles with each
	// failure in a row, up to retryMax.
	retryMin = 100 * time.Millisecond
	retryMax = 4 * time.Second
	// recheckMin is after how long a worker asks whether transactions are still open that may have
	// inserted jobs without a notification. The time doubles with each answer, up to the poll
	// interval: a transaction that stays open for long must not keep an idle worker busy.
	recheckMin = 2 * time.Millisecond
	// rungPause is after how long a worker that was notified looks which transactions are open. An
	// insert that has left the notification to another one mostly has ended by then.
	rungPause = 2 * time.Millisecond
)

// Announcer announces that a worker waits for jobs of a queue, so that inserts into the
// queue notify. Inserts read it in the trigger pending_wake in sql/schema. For
// example, a worker has free slots at 0 s, for the first time:
//
//	 0.000 s  it announces that it waits until 1 s; transaction 7 is open, which has
//	          inserted a job and has looked for an announcement before this one
//	 0.001 s  it claims once more and finds nothing, since 7 has not committed
//	 0.003 s  7 is still open; it asks again after 4 ms
//	 0.007 s  7 has ended, so it claims once more, and finds the job
//	 0.667 s  a third is left: it announces that it waits until 2.667 s
//	 1.000 s  transactions 8 and 9 commit; 8 has notified, and 9 has left it to 8. The worker
//	          claims the job of 8
//	 1.002 s  it looks again which transactions are open: 9 is not any more. It claims the job of 9
//	22.667 s  the sixth announcement, which holds until 52.667 s; from now on the heartbeats renew it, every 20 s
type Announcer struct {
	Queue string
	// RecheckMax bounds the time between two looks at the transactions that are open.
	RecheckMax time.Duration
	// HoldsMax is how long an announcement holds at most, in whole seconds. Default 30 seconds.
	HoldsMax time.Duration

	// wasFast says that jobs have come so fast recently that no notifications were needed.
	wasFast atomic.Bool
	// rungAt is when the last notification came, by clock.SinceBoot, after which nobody has looked
	// yet which transactions are open; 0 for none.
	rungAt atomic.Int64
	// watches says that jobs may come without a notification: isNew, or some are open.
	watches atomic.Bool

	mu sync.Mutex
	// guarded by mu
	until     time.Duration // when the announcement ends, by clock.SinceBoot; a little earlier than in the database
	held      time.Duration // how long the last one holds
	retry     time.Duration // the pause before the next try, after one that failed
	isNew     bool          // open is not known yet: no announcement held before this one, or there was a notification
	open      []string      // transactions that may have inserted jobs without a notification
	checkedAt time.Duration // when the worker last asked whether these are still open
	recheck   time.Duration // the pause before it asks again
	round     int           // grows when all queues with this Announcer have to claim once more
}

// Rung records that a notification of new jobs has come. Inserts that committed beside the one that
// sent it have left the notification to that one, and may end later. It returns when Announce looks
// for these; the caller claims after that.
func (a *Announcer) Rung() (lookAt time.Duration) {
	now := clock.SinceBoot()
	a.rungAt.Store(int64(now))
	return now + rungPause
}

// Watches says whether jobs may still come without a notification, for a reason that was known before:
// until Announce has found that the transactions concerned have ended.
func (a *Announcer) Watches() bool { return a.rungAt.Load() != 0 || a.watches.Load() }

// Announce makes sure that inserts into the queue notify, and says after how long to call it again. If
// round differs from that of the caller's last claim, jobs may have come without a notification, and the
// caller must claim once more. If it returns an error, round and next are valid as well.
func (a *Announcer) Announce(ctx context.Context, queries *db.Queries) (round int, next time.Duration, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, announceTimeout)
	defer cancel()
	if err := a.renewLocked(ctx, queries); err != nil {
		a.retry = min(max(2*a.retry, retryMin), retryMax)
		return a.round, a.retry, err
	}
	a.retry = 0
	return a.round, max(a.nextAtLocked()-clock.SinceBoot(), 0), nil
}

func (a *Announcer) renewAtLocked() time.Duration { return a.until - min(a.held/3, renewedBefore) }

// Standing is what Announce would return if it need not ask the database anything now; false if it has to, or does.
func (a *Announcer) Standing() (round int, next time.Duration, ok bool) {
	if !a.mu.TryLock() {
		return 0, 0, false
	}
	defer a.mu.Unlock()
	if a.isNew || a.retry > 0 {
		return 0, 0, false
	}
	next = a.nextAtLocked() - clock.SinceBoot()
	return a.round, next, next > 0
}

// Renewal is for how long a heartbeat is to announce that a worker waits, which comes every so often: 0 if that is not
// due before the next one, or if the announcement is not made at all now, or not for as long as it may be yet.
func (a *Announcer) Renewal(every time.Duration) (hold time.Duration) {
	if !a.mu.TryLock() {
		return 0
	}
	defer a.mu.Unlock()
	now, longest := clock.SinceBoot(), cmp.Or(a.HoldsMax, announcedTime)
	if a.held < longest || now >= a.until || now+every < a.renewAtLocked() {
		return 0
	}
	return longest
}

// Renewed records that a heartbeat, sent at that time, has announced that a worker waits, and what the database has
// answered: whether no worker waited before.
func (a *Announcer) Renewed(sent, hold time.Duration, news bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.until == 0 { // Forget: the answer may be of another server
		return
	}
	a.announcedLocked(sent, hold, news)
	a.watches.Store(a.isNew || len(a.open) > 0)
}

func (a *Announcer) announcedLocked(sent, hold time.Duration, news bool) {
	// Another worker's announcement is not enough: that worker may have other kinds, and may
	// no longer look for transactions that did not see the announcement. The statement may have come
	// to the database as late as its answer.
	a.isNew = a.isNew || news || clock.SinceBoot() >= a.until
	a.until, a.held = sent+hold, hold
}

// nextAtLocked is when Announce has something to ask.
func (a *Announcer) nextAtLocked() time.Duration {
	at := a.renewAtLocked()
	if len(a.open) > 0 {
		at = min(at, a.checkedAt+a.recheck)
	}
	if rung := a.rungAt.Load(); rung != 0 {
		at = min(at, time.Duration(rung)+rungPause)
	}
	return at
}

// holdLocked is how long an announcement holds that is made now. It is short again after jobs came
// fast, but only if the last announcement has ended. It may not have: another queue of the same
// name, for other kinds, may have renewed it.
func (a *Announcer) holdLocked(now time.Duration) time.Duration {
	if wasFast := a.wasFast.Swap(false); a.held == 0 || wasFast && now >= a.until {
		return announcedFirst
	}
	return min(2*a.held, cmp.Or(a.HoldsMax, announcedTime))
}

// JobsComeFast makes the next announcement short, like the first, if the last one has ended by then:
// jobs come so fast that no notifications are needed, and may do so again.
func (a *Announcer) JobsComeFast() { a.wasFast.Store(true) }

// Forget makes the next call of Announce announce again. A standby that has become the primary
// may not have the last announcement.
func (a *Announcer) Forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.until = 0
}

func (a *Announcer) renewLocked(ctx context.Context, queries *db.Queries) error {
	sent := clock.SinceBoot()
	if sent >= a.renewAtLocked() {
		hold := a.holdLocked(sent)
		news, err := queries.WaitAnnounce(ctx, a.Queue, int64(hold/time.Second))
		if err != nil {
			return err
		}
		a.announcedLocked(sent, hold, news)
	}
	if rung := a.rungAt.Load(); rung != 0 && sent >= time.Duration(rung)+rungPause {
		a.isNew = true
		a.watches.Store(true)
		a.rungAt.CompareAndSwap(rung, 0) // unless there was another one just now
	}
	defer func() { a.watches.Store(a.isNew || len(a.open) > 0) }()
	switch {
	case a.isNew:
		open, err := queries.LineChangers(ctx)
		if err != nil {
			return err
		}
		a.open, a.isNew = open, false
		a.checkedAt, a.recheck = sent, recheckMin
		a.round++
	case len(a.open) > 0 && sent >= a.checkedAt+a.recheck:
		open, err := queries.StillOpen(ctx, a.open)
		if err != nil {
			return err
		}
		a.checkedAt, a.recheck = sent, min(2*a.recheck, a.RecheckMax)
		if len(open) < len(a.open) {
			a.round++ // some have ended, and the jobs that they committed can be claimed
		}
		a.open = open
	}
	return nil
}
