package operator

import (
	"context"
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

// PauseQueue makes workers claim nothing more from the queue; what runs goes
// on. The reason is for people, and may be empty. A queue that is not known yet is paused too, and its first job will
// wait; to refuse a misspelt name, ask a monitor whether the queue is known.
func (o *Operator) PauseQueue(ctx context.Context, name, reason string) (QueueActed, error) {
	return o.actOnQueue(ctx, db.QueueActParams{Action: string(jobq.ActionPause), Actor: o.actor, Queue: name, Note: db.TextOrNull(reason)})
}

// ResumeQueue lets workers claim from the queue again, and wakes them.
func (o *Operator) ResumeQueue(ctx context.Context, name string) (QueueActed, error) {
	return o.actOnQueue(ctx, db.QueueActParams{Action: string(jobq.ActionResume), Actor: o.actor, Queue: name})
}

// actOnQueue acts and records it in the audit.
func (o *Operator) actOnQueue(ctx context.Context, params db.QueueActParams) (QueueActed, error) {
	row, err := dberror.Retry(ctx, func() (db.QueueActRow, error) { return o.queries.QueueAct(ctx, params) })
	if err != nil {
		return QueueActed{}, dberror.Wrap(o.schema, fmt.Sprintf("%s queue %q", params.Action, params.Queue), err)
	}
	return QueueActed{AuditID: row.Audit, Changed: row.Audit > 0, Known: row.Known}, nil
}

// QueueChange changes settings of a queue: those that are not nil.
type QueueChange struct {
	Lease           *time.Duration
	ExtendEvery     *time.Duration
	Heartbeat       *jobq.Heartbeat
	StaleGrace      *time.Duration
	Redelivery      *jobq.Redelivery
	RedeliveryDelay *time.Duration
	ResetOnReap     *bool
}

// SetQueue changes settings of a queue, which need not have had a job. Every
// worker obeys within seconds, for the leases that it takes or extends from
// then on; no lease that is held gets shorter. A Lease for which the ExtendEvery
// stored is too long puts that back to its default. Settings that cannot go
// together are ErrInvalid, with the reason.
func (o *Operator) SetQueue(ctx context.Context, name string, change QueueChange) error {
	err := o.queries.QueueSet(ctx, db.QueueSetParams{
		Name: name, Lease: db.IntervalPointer(change.Lease), ExtendEvery: db.IntervalPointer(change.ExtendEvery),
		Heartbeat: (*string)(change.Heartbeat), StaleGrace: db.IntervalPointer(change.StaleGrace),
		Redelivery: (*string)(change.Redelivery), RedeliveryDelay: db.IntervalPointer(change.RedeliveryDelay),
		ResetOnReap: db.BoolPointer(change.ResetOnReap),
	})
	return dberror.Wrap(o.schema, fmt.Sprintf("set queue %q", name), err)
}
