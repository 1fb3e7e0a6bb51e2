package jobq

import (
	"context"
	"fmt"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
)

// Heartbeat is what extends the leases of a queue.
type Heartbeat string

// The heartbeats.
const (
	// HeartbeatTicker: the worker, for as long as it lives. The default. A
	// handler that hangs is the business of the job's timeout.
	HeartbeatTicker Heartbeat = "ticker"
	// HeartbeatProgress: the handler's own reports of progress and checkpoints
	// alone, so that a handler that hangs loses its lease.
	HeartbeatProgress Heartbeat = "progress"
	// HeartbeatBoth: either of the two.
	HeartbeatBoth Heartbeat = "both"
	// HeartbeatOff: nothing. The lease is the longest that a run may take.
	HeartbeatOff Heartbeat = "off"
)

// Redelivery is where a job goes in its queue's line when its lease was taken
// away.
type Redelivery string

// The redeliveries.
const (
	// RedeliverTail: behind all that waits, the default.
	RedeliverTail Redelivery = "tail"
	// RedeliverHead: back to the place that it had.
	RedeliverHead Redelivery = "head"
)

// QueueSettings are what every worker and janitor obeys for a queue.
type QueueSettings struct {
	// Lease is how long a worker may hold a job without a heartbeat: 1 second
	// to 30 days, 60 seconds by default.
	Lease time.Duration `json:"lease_ns"`
	// ExtendEvery is the time between two heartbeats: at most half of Lease, and
	// a third of it by default.
	ExtendEvery time.Duration `json:"extend_every_ns"`
	// Heartbeat is what extends a lease. Default ticker.
	Heartbeat Heartbeat `json:"heartbeat"`
	// StaleGrace is how long the janitor leaves a lease alone that has ended. Up
	// to 30 days; default 0.
	StaleGrace time.Duration `json:"stale_grace_ns"`
	// Redelivery is where a job goes whose lease was taken away. Default tail.
	Redelivery Redelivery `json:"redelivery"`
	// RedeliveryDelay is how long such a job waits first. It needs the tail. Up to
	// 30 days; default 0.
	RedeliveryDelay time.Duration `json:"redelivery_delay_ns"`
	// ResetOnReap makes the next run begin without the lost run's checkpoint.
	// Default false.
	ResetOnReap bool `json:"reset_on_reap"`
}

// QueueChange changes settings of a queue: those that are not nil.
type QueueChange struct {
	Lease           *time.Duration
	ExtendEvery     *time.Duration
	Heartbeat       *Heartbeat
	StaleGrace      *time.Duration
	Redelivery      *Redelivery
	RedeliveryDelay *time.Duration
	ResetOnReap     *bool
}

// SetQueue changes settings of a queue, which need not have had a job. Every
// worker obeys within seconds, for the leases that it takes or extends from
// then on; no lease that is held gets shorter. A Lease for which the ExtendEvery
// stored is too long puts that back to its default. Settings that cannot go
// together are ErrInvalid, with the reason.
func (c *Client) SetQueue(ctx context.Context, name string, change QueueChange) error {
	err := c.queries.QueueSet(ctx, db.QueueSetParams{
		Name: name, Lease: db.IntervalPointer(change.Lease), ExtendEvery: db.IntervalPointer(change.ExtendEvery),
		Heartbeat: (*string)(change.Heartbeat), StaleGrace: db.IntervalPointer(change.StaleGrace),
		Redelivery: (*string)(change.Redelivery), RedeliveryDelay: db.IntervalPointer(change.RedeliveryDelay),
		ResetOnReap: db.BoolPointer(change.ResetOnReap),
	})
	return c.clientError(fmt.Sprintf("set queue %q", name), err)
}
