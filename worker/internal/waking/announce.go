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
	// announcedTime is how long an announcement holds at most that this worker waits for
	// jobs. An idle queue renews it when a third of its time is left.
	announcedTime = 30 * time.Second
	// announcedFirst is how long the first one holds, and each that follows twice as long: if jobs
	// come so fast that the worker needs no notifications, these end with the announcement.
	announcedFirst = time.Second
	// announceTimeout bounds an announcement.
	announceTimeout = 4 * time.Second
	// One that failed is made again after retryMin. Each time that it fails again it is twice as
	// long, up to retryMax.
	retryMin = 100 * time.Millisecond
	retryMax = 4 * time.Second
	// recheckMin is when a worker claims anyhow while transactions are open that may
	// have inserted jobs without noticing the announcement. It doubles, up to the poll
	// interval: one that has been open for long, perhaps of another database, is not
	// to keep an idle worker busy.
	recheckMin = 100 * time.Millisecond
)

// Announcer is what a worker has announced to those who insert into a queue: that they
// are to notify. Inserts read it in the trigger pending_wake in sql/migrations. For
// example, of a worker whose slots come free at 0 s, for the first time:
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

	// wasFast says that jobs came so fast of late that no notifications were needed.
	wasFast atomic.Bool

	mu sync.Mutex
	// guarded by mu
	until     time.Duration // by clock.SinceBoot, a little earlier than the database's
	held      time.Duration // how long the last one held
	retry     time.Duration // how long until it is made again, after one that failed
	isNew     bool          // this worker did not wait before, and what is open is not known yet
	open      []string      // transactions that may not have seen it
	checkedAt time.Duration // when their fate was last asked for
	recheck   time.Duration // how long until it is asked for again
	round     int           // grows whenever all queues have to claim once more
}

// Alarms are how long an idle queue sleeps at most.
type Alarms struct {
	Recheck time.Duration // until it claims anyhow, since jobs may come without a notification
	Renew   time.Duration // until the announcement is made again
}

// NoAlarms are those of a queue that is not to sleep for any time in particular.
var NoAlarms = Alarms{clock.Never, clock.Never}

// Announce makes sure that inserts into the queue notify, and says when to come back. Jobs may
// have come in between whenever the round is another than that of the last claim.
// An error says that it could not be announced; the others are valid all the same.
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

// holdLocked is how long an announcement of now holds. While one queue lets it end, another
// one of the same name, for other kinds, may renew it: then it is not short.
func (a *Announcer) holdLocked(now time.Duration) time.Duration {
	if wasFast := a.wasFast.Swap(false); a.held == 0 || wasFast && now >= a.until {
		return announcedFirst
	}
	return min(2*a.held, cmp.Or(a.HoldsMax, announcedTime))
}

// JobsComeFast makes the next announcement short, like the first, if the last one has ended by then:
// jobs come so fast that no notifications are needed, and may do so again.
func (a *Announcer) JobsComeFast() { a.wasFast.Store(true) }

// Forget makes the next announcement be made anew: a standby that has become the
// server may never have heard of the last one.
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
		// Another worker's announcement is not enough: that one may have other
		// kinds, and may no longer look for what did not see it.
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
			a.round++ // what these have committed is there to be claimed
		}
		a.open = open
	}
	return nil
}
