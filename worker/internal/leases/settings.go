package leases

import (
	"sync/atomic"
	"time"

	"github.com/jobq-dev/jobq"
)

const (
	// killMarginMax is how long before a lease ends, by the worker's reckoning, the
	// worker gives it up; a sixth of the lease when that is less. It covers the time
	// that stopping a job takes.
	killMarginMax = 5 * time.Second
	// busyRetryMax is after how long, at most, a lease is asked after again whose row
	// another transaction has locked.
	busyRetryMax = time.Second
)

// Settings are what the database says about a queue and its leases.
type Settings struct {
	Length      time.Duration
	ExtendEvery time.Duration
	Heartbeat   jobq.Heartbeat // what extends them
	HasLimits   bool           // the queue has a limit or a rate
	HasKeys     bool           // the queue has, or had, jobs with partition keys
}

// QueueSettings are the settings of one queue as the database has them now. They
// change while leases are held.
type QueueSettings struct{ now atomic.Pointer[Settings] }

// Load returns the settings.
func (q *QueueSettings) Load() Settings {
	if settings := q.now.Load(); settings != nil {
		return *settings
	}
	return Settings{}
}

// Store replaces the settings.
func (q *QueueSettings) Store(settings Settings) { q.now.Store(&settings) }

// KillMargin is how long before a lease ends the worker gives it up.
func (s Settings) KillMargin() time.Duration { return min(killMarginMax, s.Length/6) }

// TickerExtends is the time that the worker's ticker gives a lease, 0 if it only
// asks after it.
func (s Settings) TickerExtends() time.Duration {
	if s.Heartbeat == jobq.HeartbeatTicker || s.Heartbeat == jobq.HeartbeatBoth {
		return s.Length
	}
	return 0
}

// ProgressExtends is the time that a report of progress gives a lease, 0 if none.
func (s Settings) ProgressExtends() time.Duration {
	if s.Heartbeat == jobq.HeartbeatProgress || s.Heartbeat == jobq.HeartbeatBoth {
		return s.Length
	}
	return 0
}

// busyRetry is after how long a lease is asked after again whose row another
// transaction has locked.
func (s Settings) busyRetry() time.Duration { return min(s.ExtendEvery/4, busyRetryMax) }
