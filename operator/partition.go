package operator

import (
	"context"
	"fmt"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// KeyActed is what an action on a partition key did.
type KeyActed struct {
	// AuditID is its entry in the audit, for Undo. 0 when nothing changed.
	AuditID int64
	Changed bool // false: the key was so already
	// HasJobs says whether a job of the key is in the line now. Where none is, the key may be
	// misspelt, or its jobs are yet to come.
	HasJobs bool
}

// PauseKey makes workers claim no more jobs of a partition key of a queue; what runs goes on. It
// takes effect when it commits. Neither the queue nor the key need be known: to refuse a misspelt
// queue, ask a monitor first. The reason is for people, and may be empty.
func (o *Operator) PauseKey(ctx context.Context, queue, key, reason string) (KeyActed, error) {
	return o.actOnKey(ctx, "pause", db.KeyActParams{Actor: o.actor, Action: string(jobq.ActionKeyPause), Queue: queue, Key: key, Note: db.TextOrNull(reason)})
}

// ResumeKey lets workers claim jobs of the partition key again, and wakes them.
func (o *Operator) ResumeKey(ctx context.Context, queue, key string) (KeyActed, error) {
	return o.actOnKey(ctx, "resume", db.KeyActParams{Actor: o.actor, Action: string(jobq.ActionKeyResume), Queue: queue, Key: key})
}

// SetKeyWeight gives a partition key of a queue a weight, 1 to 100: while jobs of both wait, so many
// jobs of the key start for each job of a key without a weight. It holds for each claim that begins
// after it has returned. 1 takes the weight away. Neither the queue nor the key need be known.
func (o *Operator) SetKeyWeight(ctx context.Context, queue, key string, weight int) (KeyActed, error) {
	operation := fmt.Sprintf("weight of key %q of queue %q", key, queue)
	if err := o.checkTexts(operation, argument{"queue", queue}, argument{"partition_key", key}); err != nil {
		return KeyActed{}, err
	}
	if weight < 1 || weight > jobq.KeyWeightMax {
		return KeyActed{}, fmt.Errorf("%s: %w: weight must be 1 to %d, not %d", operation, jobq.ErrInvalid, jobq.KeyWeightMax, weight)
	}
	row, err := dberror.Retry(ctx, func() (db.KeyWeightActRow, error) {
		return o.queries.KeyWeightAct(ctx, db.KeyWeightActParams{Actor: o.actor, Queue: queue, Key: key, Weight: int32(weight)}) // #nosec G115 -- checked above
	})
	if err != nil {
		return KeyActed{}, dberror.Wrap(o.schema, operation, err)
	}
	return KeyActed{AuditID: row.Audit, Changed: row.Audit > 0, HasJobs: row.HasJobs}, nil
}

func (o *Operator) actOnKey(ctx context.Context, verb string, params db.KeyActParams) (KeyActed, error) {
	operation := fmt.Sprintf("%s key %q of queue %q", verb, params.Key, params.Queue)
	if err := o.checkTexts(operation, argument{"queue", params.Queue}, argument{"partition_key", params.Key}, argument{"reason", db.Text(params.Note)}); err != nil {
		return KeyActed{}, err
	}
	row, err := dberror.Retry(ctx, func() (db.KeyActRow, error) { return o.queries.KeyAct(ctx, params) })
	if err != nil {
		return KeyActed{}, dberror.Wrap(o.schema, operation, err)
	}
	return KeyActed{AuditID: row.Audit, Changed: row.Audit > 0, HasJobs: row.HasJobs}, nil
}
