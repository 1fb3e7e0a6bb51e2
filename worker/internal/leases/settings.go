package leases

import (
	"sync/atomic"
	"time"

	"github.com/jobq-dev/jobq"
)

const (
	// killMarginMax is the longest kill margin: see Settings.KillMargin. The margin is the
	// time that a handler has to stop.
	killMarginMax = 5 * time.Second
	// busyRetryMax is the longest pause before the next try to extend a lease whose row
	// another transaction has locked.
	busyRetryMax = time.Second
)

// Settings are what the database says about a queue and its leases.
type Settings struct {
	Length      time.Duration
	Longest     time.Duration // that Length has been since the worker has started
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

// Store replaces the settings, except for Longest.
func (q *QueueSettings) Store(settings Settings) {
	settings.Longest = max(settings.Length, q.Load().Longest)
	q.now.Store(&settings)
}

// KillMargin is how long before the end of a lease the worker gives it up: a sixth of the
// lease, at most killMarginMax.
func (s Settings) KillMargin() time.Duration { return min(killMarginMax, s.Length/6) }

// TickerExtends is the time that the worker's ticker gives a lease; 0 if the ticker only
// asks whether the lease is still held.
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

// busyRetry is the pause before the next try to extend a lease whose row another
// transaction has locked.
func (s Settings) busyRetry() time.Duration { return min(s.ExtendEvery/4, busyRetryMax) }
