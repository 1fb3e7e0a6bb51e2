package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// QueueActed is what came of a pause or a resume.
type QueueActed struct {
	// AuditID is the action's entry in the audit, for Undo; 0 when nothing changed.
	AuditID int64 `json:"audit_id,omitempty"`
	// Changed means that the queue was not paused, or paused, before.
	Changed bool `json:"changed"`
	// Known is what QueueKnown of package monitor said just before the action.
	Known bool `json:"known"`
}

// PauseQueue makes workers claim nothing more from the queue; what runs goes on. The
// reason is for people, and may be empty. A queue that is not known yet is paused
// too, and its first job will wait; to refuse a misspelt name, ask a monitor whether
// the queue is known.
func (o *Operator) PauseQueue(ctx context.Context, name, reason string) (QueueActed, error) {
	return o.actOnQueue(ctx, db.QueueActParams{Action: string(jobq.ActionPause), Actor: o.actor, Queue: name, Note: db.TextOrNull(reason)})
}

// ResumeQueue lets workers claim from the queue again, and wakes them.
func (o *Operator) ResumeQueue(ctx context.Context, name string) (QueueActed, error) {
	return o.actOnQueue(ctx, db.QueueActParams{Action: string(jobq.ActionResume), Actor: o.actor, Queue: name})
}

// actOnQueue acts and records it in the audit.
func (o *Operator) actOnQueue(ctx context.Context, params db.QueueActParams) (QueueActed, error) {
	operation := fmt.Sprintf("%s queue %q", params.Action, params.Queue)
	if err := o.checkTexts(operation, argument{"queue", params.Queue}, argument{"reason", db.Text(params.Note)}); err != nil {
		return QueueActed{}, err
	}
	row, err := dberror.Retry(ctx, func() (db.QueueActRow, error) { return o.queries.QueueAct(ctx, params) })
	if err != nil {
		return QueueActed{}, dberror.Wrap(o.schema, operation, err)
	}
	return QueueActed{AuditID: row.Audit, Changed: row.Audit > 0, Known: row.Known}, nil
}

// QueueChange changes settings of a queue: those that are not nil. Package monitor
// explains them, with their limits and defaults: see its QueueSettings.
type QueueChange struct {
	Lease           *time.Duration
	ExtendEvery     *time.Duration
	Heartbeat       *jobq.Heartbeat
	StaleGrace      *time.Duration
	Redelivery      *jobq.Redelivery
	RedeliveryDelay *time.Duration
	ResetOnReap     *bool
	// MaxLost is how many runs of a job may be lost without using an attempt; 0: each uses one.
	MaxLost  *int
	AgeAfter *time.Duration
	// Retention is how long finished jobs of the queue are kept, and FailedRetention how long those of
	// them that failed or were cancelled; 0 for as long as in all queues.
	Retention, FailedRetention *time.Duration
	// MaxRunning is how many jobs of the queue may run at once, over all workers; 0 for
	// as many as they have slots for.
	MaxRunning *int
	// KeyLimit is how many jobs of each partition key may run at once, over all workers; 0
	// for as many as of the queue.
	KeyLimit *int
	// KeyOrder is whether the jobs of each partition key run in order. It needs a KeyLimit of 1,
	// which it sets where there is none; jobq.KeyOrderNone for no order.
	KeyOrder *jobq.KeyOrder
	// KeySeparator is what ends the group of a partition key; groups have equal shares of the queue,
	// however many keys they have. "" for each key as its own group.
	KeySeparator *string
	// Rate is how many may start, over all workers; the zero Rate for as many as there are.
	Rate *jobq.Rate
	// KeyRate is how many of each partition key may start, over all workers; the zero Rate for as
	// many as of the queue.
	KeyRate *jobq.Rate
}

// SetQueue changes settings of a queue, which need not have had a job. It returns the
// id of its entry in the audit, for Undo, or 0 when they were so already: then no
// privilege is needed but to read, so that a program may set them whenever it starts. Every
// worker obeys within seconds, for the leases that it takes or extends from
// then on; no lease that is held gets shorter. MaxRunning, KeyLimit, KeyOrder,
// KeySeparator, Rate and KeyRate hold for every claim that begins after this has
// returned; what runs already goes on. A janitor deletes what a shorter Retention no
// longer keeps within minutes, and an Undo does not bring that back. If the stored
// ExtendEvery is too long for a new Lease, it gets its default again. Settings that
// cannot go together are ErrInvalid, with the reason.
func (o *Operator) SetQueue(ctx context.Context, name string, change QueueChange) (auditID int64, err error) {
	operation := fmt.Sprintf("set queue %q", name)
	if err := o.checkQueueTexts(operation, name, change); err != nil {
		return 0, err
	}
	columns, err := change.columns()
	if err != nil {
		return 0, fmt.Errorf("%s: %w", operation, err)
	}
	auditID, err = dberror.Retry(ctx, func() (int64, error) { return o.queries.QueueEnsure(ctx, o.actor, name, columns) })
	return auditID, dberror.Wrap(o.schema, operation, err)
}

// checkQueueTexts refuses what is no text.
func (o *Operator) checkQueueTexts(operation, name string, change QueueChange) error {
	texts := []argument{{"queue", name}}
	if change.Heartbeat != nil {
		texts = append(texts, argument{"heartbeat", string(*change.Heartbeat)})
	}
	if change.Redelivery != nil {
		texts = append(texts, argument{"redelivery", string(*change.Redelivery)})
	}
	if change.KeyOrder != nil {
		texts = append(texts, argument{"key_order", string(*change.KeyOrder)})
	}
	if change.KeySeparator != nil {
		texts = append(texts, argument{"key_separator", *change.KeySeparator})
	}
	return o.checkTexts(operation, texts...)
}

// columns is the change as the database takes it.
func (c *QueueChange) columns() (json.RawMessage, error) { return json.Marshal(c.byColumn()) }

// byColumn is the change by the names of columns.
func (c *QueueChange) byColumn() map[string]any {
	columns := make(map[string]any)
	for name, duration := range map[string]*time.Duration{
		"lease": c.Lease, "extend_every": c.ExtendEvery, "stale_grace": c.StaleGrace, "redelivery_delay": c.RedeliveryDelay,
		"age_after": c.AgeAfter,
	} {
		if duration != nil {
			columns[name] = db.IntervalText(*duration)
		}
	}
	for name, duration := range map[string]*time.Duration{"retention": c.Retention, "failed_retention": c.FailedRetention} {
		if duration != nil && *duration == 0 {
			columns[name] = nil
		} else if duration != nil {
			const day = 24 * time.Hour
			columns[name] = fmt.Sprintf("%d days ", *duration/day) + db.IntervalText(*duration%day) // as people write it
		}
	}
	if c.Heartbeat != nil {
		columns["heartbeat"] = *c.Heartbeat
	}
	if c.Redelivery != nil {
		columns["redelivery"] = *c.Redelivery
	}
	if c.ResetOnReap != nil {
		columns["reset_on_reap"] = *c.ResetOnReap
	}
	if c.MaxLost != nil {
		columns["max_lost"] = orNull(*c.MaxLost)
	}
	if c.MaxRunning != nil {
		columns["max_running"] = orNull(*c.MaxRunning)
	}
	if c.KeyLimit != nil {
		columns["key_limit"] = orNull(*c.KeyLimit)
	}
	if c.KeyOrder != nil {
		columns["key_order"] = orNull(*c.KeyOrder)
	}
	if c.KeySeparator != nil {
		columns["key_separator"] = orNull(*c.KeySeparator)
	}
	for prefix, rate := range map[string]*jobq.Rate{"rate_": c.Rate, "key_rate_": c.KeyRate} {
		if rate == nil {
			continue
		}
		columns[prefix+"jobs"], columns[prefix+"period"], columns[prefix+"burst"] = orNull(rate.Jobs), nil, orNull(rate.Burst)
		if rate.Period != 0 {
			columns[prefix+"period"] = db.IntervalText(rate.Period)
		}
	}
	return columns
}

// orNull is nil for the zero value, which the database has as null.
func orNull[T comparable](value T) any {
	var zero T
	if value == zero {
		return nil
	}
	return value
}
