package line

import (
	"cmp"
	"time"
)

const (
	byClockFrom = 500 // Planner.ByClockFrom
	// byClockMemory is the time over which the rates are averaged.
	byClockMemory = 100 * time.Millisecond
	// A claim by the clock comes as long after the answer to the last claim as that took, so that
	// claims take half of the time, but after no less and no more than this.
	byClockPauseMin = time.Millisecond
	byClockPauseMax = 20 * time.Millisecond
)

// claimsByClock says whether a queue with free slots claims by the clock, instead of waiting for
// notifications. PostgreSQL lets one commit with a notification pass at a time, and each waits until
// the one before is on the disk. When jobs come one by one and fast, that is most of what their
// inserts take, and a claim every other millisecond finds several jobs. Linux treats its network
// cards likewise (NAPI).
//
// For example, 2,000 jobs a second come one by one:
//
//	0.00 s  a worker waits, and has announced it until 1 s; each insert notifies
//	0.05 s  it has received and claimed so many that it claims by the clock: every 2 ms, and
//	        finds 4 jobs each time. It does not renew the announcement
//	1.00 s  the announcement ends, and inserts no longer notify
//	9.00 s  no more jobs come
//	9.14 s  fewer than 250 a second were claimed of late: the worker announces that it waits,
//	        and claims once more
type claimsByClock struct {
	on       bool
	notified rate // notifications of new jobs
	claimed  rate // jobs
	nextAt   time.Duration
}

// Notified takes into account that a notification of new jobs has come.
func (p *Planner) Notified(now time.Duration) {
	p.byClock.notified.observe(now, 1, byClockMemory)
}

// Claimed takes into account that a claim has been answered with so many jobs, with and without
// partition keys, and how long it took.
func (p *Planner) Claimed(now time.Duration, jobs int, took time.Duration) {
	c, from := &p.byClock, cmp.Or(p.ByClockFrom, byClockFrom)
	c.notified.observe(now, 0, byClockMemory)
	c.claimed.observe(now, jobs, byClockMemory)
	c.claimed.perSecond = min(c.claimed.perSecond, 2*from) // so that many at once are soon forgotten
	if c.on {
		c.on = c.claimed.perSecond >= from/2
	} else {
		c.on = min(c.claimed.perSecond, c.notified.perSecond) >= from
	}
	c.nextAt = now + min(max(took, byClockPauseMin), byClockPauseMax)
}

// ClaimsByClock says whether the queue claims by the clock, and needs no notifications.
func (p *Planner) ClaimsByClock() bool { return p.byClock.on }
