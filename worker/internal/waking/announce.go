// Package waking is how idle workers learn of new jobs: they announce that they
// wait, so that inserts notify, and spread their claims after a notification.
package waking

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/worker/internal/clock"
)

const (
	// announcedTime is how long an announcement holds that this worker waits for
	// jobs. An idle queue renews it when a third of that is left.
	announcedTime = 30 * time.Second
	// announceTimeout bounds an announcement, and is how long the worker waits after
	// one that failed.
	announceTimeout = 4 * time.Second
	// recheckMin is when a worker claims anyhow while transactions are open that may
	// have inserted jobs without noticing the announcement. It doubles, up to the poll
	// interval: one that has been open for long, perhaps of another database, is not
	// to keep an idle worker busy.
	recheckMin = 100 * time.Millisecond
)

// Announcer is what a worker has announced to those who insert: that they are to
// notify. Inserts read it in the function pending_wake in sql/migrations. For
// example, of a worker whose slots come free at 0 s:
//
//	 0.000 s  it announces that it waits until 30 s; transaction 7 is open, which has
//	          inserted a job and has looked for an announcement before this one
//	 0.001 s  it claims once more and finds nothing, since 7 has not committed
//	 0.100 s  7 is still open; it asks again at 0.3 s
//	 0.300 s  7 has ended, so it claims once more, and finds the job
//	20.000 s  a third is left: it announces that it waits until 50 s
type Announcer struct {
	// RecheckMax bounds the time between two looks at the transactions that are open.
	RecheckMax time.Duration
	// Holds is how long an announcement holds, in whole seconds. Default 30 seconds.
	Holds time.Duration

	mu sync.Mutex
	// guarded by mu
	until     time.Duration // by clock.SinceBoot, a little earlier than the database's
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

// Announce makes sure that inserts notify, and says when to come back. Jobs may
// have come in between whenever the round is another than that of the last claim.
// An error says that it could not be announced; the others are valid all the same.
func (a *Announcer) Announce(ctx context.Context, queries *db.Queries) (round int, next Alarms, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, announceTimeout)
	defer cancel()
	if err := a.renewLocked(ctx, queries); err != nil {
		return a.round, Alarms{Recheck: clock.Never, Renew: announceTimeout}, err
	}
	next = Alarms{Recheck: clock.Never, Renew: max(a.renewAtLocked()-clock.SinceBoot(), 0)}
	if len(a.open) > 0 {
		next.Recheck = a.recheck
	}
	return a.round, next, nil
}

func (a *Announcer) holds() time.Duration { return cmp.Or(a.Holds, announcedTime) }

func (a *Announcer) renewAtLocked() time.Duration { return a.until - a.holds()/3 }

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
		answer, err := queries.WaitAnnounce(ctx, int64(a.holds()/time.Second))
		if err != nil {
			return err
		}
		// Another worker's announcement is not enough: that one may have other
		// queues, and may no longer look for what did not see it.
		a.isNew = a.isNew || answer.News || sent >= a.until
		a.until = sent + a.holds()
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
