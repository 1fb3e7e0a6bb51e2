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
	// announcedTime is the longest time for which an announcement holds. An idle queue
	// renews it when a third of its time is left.
	announcedTime = 30 * time.Second
	// announcedFirst is how long the first announcement holds. Each that follows holds twice as long.
	// So if jobs come so fast that the worker needs no notifications, these soon end.
	announcedFirst = time.Second
	// announceTimeout is the longest time of a call of Announce.
	announceTimeout = 4 * time.Second
	// An announcement that failed is made again after retryMin. The pause doubles with each
	// failure in a row, up to retryMax.
	retryMin = 100 * time.Millisecond
	retryMax = 4 * time.Second
	// recheckMin is after how long a worker claims without a notification while transactions are
	// open that may have inserted jobs before they could see the announcement. The time doubles
	// with each such claim, up to the poll interval: a transaction that stays open for long,
	// perhaps in another database, must not keep an idle worker busy.
	recheckMin = 100 * time.Millisecond
)

// Announcer announces that a worker waits for jobs of a queue, so that inserts into the
// queue notify. Inserts read it in the trigger pending_wake in sql/migrations. For
// example, a worker has free slots at 0 s, for the first time:
//
//	 0.000 s  it announces that it waits until 1 s; transaction 7 is open, which has
//	          inserted a job and has looked for an announcement before this one
//	 0.001 s  it claims once more and finds nothing, since 7 has not committed
//	 0.100 s  7 is still open; it asks again at 0.3 s
//	 0.300 s  7 has ended, so it claims once more, and finds the job
//	 0.667 s  a third is left: it announces that it waits until 2.667 s
//	20.667 s  the sixth one, which holds until 50.667 s; from now on there is one every 20 s
type Announcer struct {
	Queue string
	// RecheckMax bounds the time between two looks at the transactions that are open.
	RecheckMax time.Duration
	// HoldsMax is how long an announcement holds at most, in whole seconds. Default 30 seconds.
	HoldsMax time.Duration

	// wasFast says that jobs have come so fast recently that no notifications were needed.
	wasFast atomic.Bool

	mu sync.Mutex
	// guarded by mu
	until     time.Duration // when the announcement ends, by clock.SinceBoot; a little earlier than in the database
	held      time.Duration // how long the last one holds
	retry     time.Duration // the pause before the next try, after one that failed
	isNew     bool          // no announcement held before this one, and open is not known yet
	open      []string      // transactions that may not have seen the announcement
	checkedAt time.Duration // when the worker last asked whether these are still open
	recheck   time.Duration // the pause before it asks again
	round     int           // grows when all queues with this Announcer have to claim once more
}

// Alarms are how long an idle queue sleeps at most.
type Alarms struct {
	Recheck time.Duration // until it claims, since jobs may come without a notification
	Renew   time.Duration // until the announcement is made again
}

// NoAlarms do not limit how long a queue sleeps.
var NoAlarms = Alarms{clock.Never, clock.Never}

// Announce makes sure that inserts into the queue notify, and says when to call it again. If round
// differs from that of the caller's last claim, jobs may have come without a notification, and the
// caller must claim once more. If it returns an error, round and next are valid as well.
func (a *Announcer) Announce(ctx context.Context, queries *db.Queries) (round int, next Alarms, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, announceTimeout)
	defer cancel()
	if err := a.renewLocked(ctx, queries); err != nil {
		a.retry = min(max(2*a.retry, retryMin), retryMax)
		return a.round, Alarms{Recheck: clock.Never, Renew: a.retry}, err
	}
	a.retry = 0
	next = Alarms{Recheck: clock.Never, Renew: max(a.renewAtLocked()-clock.SinceBoot(), 0)}
	if len(a.open) > 0 {
		next.Recheck = a.recheck
	}
	return a.round, next, nil
}

func (a *Announcer) renewAtLocked() time.Duration { return a.until - a.held/3 }

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
		// Another worker's announcement is not enough: that worker may have other kinds, and may
		// no longer look for transactions that did not see the announcement.
		a.isNew = a.isNew || news || sent >= a.until
		a.until, a.held = sent+hold, hold
	}
	switch {
	case a.isNew:
		if err := queries.TransactionMark(ctx); err != nil {
			return err
		}
		open, err := queries.TransactionsOpen(ctx)
		if err != nil {
			return err
		}
		a.open, a.isNew = open, false
		a.checkedAt, a.recheck = sent, recheckMin
		a.round++
	case len(a.open) > 0 && sent >= a.checkedAt+a.recheck:
		open, err := queries.TransactionsStillOpen(ctx, a.open)
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
