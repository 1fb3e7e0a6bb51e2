package line

import (
	"cmp"
	"time"
)

const (
	byClockFrom = 500 // Planner.ByClockFrom
	// byClockMemory is the time over which the rates are averaged.
	byClockMemory = 100 * time.Millisecond
	// The pause before a claim by the clock is as long as the last claim took, so that claims take
	// half of the time. byClockPauseMin and byClockPauseMax limit it.
	byClockPauseMin = time.Millisecond
	byClockPauseMax = 20 * time.Millisecond
)

// claimsByClock says whether a queue with free slots claims by the clock, instead of waiting for
// notifications. PostgreSQL lets one commit with a notification pass at a time, and each waits until
// the one before is on the disk. When jobs come one by one and fast, that is most of what their
// inserts take, and a claim every 2 milliseconds finds several jobs. Linux does the same with
// network cards (NAPI).
//
// For example, 2,000 jobs a second come one by one:
//
//	0.00 s  a worker waits, and has announced it until 1 s; each insert notifies
//	0.05 s  it has received and claimed so many that it claims by the clock: every 2 ms, and
//	        finds 4 jobs each time. It does not renew the announcement
//	1.00 s  the announcement ends, and inserts no longer notify
//	9.00 s  no more jobs come
//	9.14 s  the rate of claimed jobs falls below 250 a second: the worker announces that it waits,
//	        and claims once more
type claimsByClock struct {
	on       bool
	notified rate // notifications of new jobs
	claimed  rate // jobs
	nextAt   time.Duration
}

// Notified records that a notification of new jobs has come.
func (p *Planner) Notified(now time.Duration) {
	p.byClock.notified.observe(now, 1, byClockMemory)
}

// Claimed records how many jobs a claim has got, with and without partition keys, and how long it
// took.
func (p *Planner) Claimed(now time.Duration, jobs int, took time.Duration) {
	c, from := &p.byClock, cmp.Or(p.ByClockFrom, byClockFrom)
	c.notified.observe(now, 0, byClockMemory)
	c.claimed.observe(now, jobs, byClockMemory)
	c.claimed.perSecond = min(c.claimed.perSecond, 2*from) // so that a single large claim is soon forgotten
	if c.on {
		c.on = c.claimed.perSecond >= from/2
	} else {
		c.on = min(c.claimed.perSecond, c.notified.perSecond) >= from
	}
	c.nextAt = now + min(max(took, byClockPauseMin), byClockPauseMax)
}

// ClaimsByClock says whether the queue claims by the clock, and needs no notifications.
func (p *Planner) ClaimsByClock() bool { return p.byClock.on }
