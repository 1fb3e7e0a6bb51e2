package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// QueueDeclaration is what a program wants a queue to be.
type QueueDeclaration struct {
	Queue string // its name, required
	// Change has the settings that are declared. Default: none. What it does not name keeps what is stored,
	// and so does the burst of a rate that names none, while the rate itself is as declared.
	Change QueueChange
	// KeyWeights are weights of partition keys, 1 to 100, where 1 is none. Keys that are not in it keep what is
	// stored. Default: none.
	KeyWeights map[string]int
}

// QueueDeclared is something that DeclareQueues has changed.
type QueueDeclared struct {
	Queue string `json:"queue"`
	// Key is the partition key whose weight was changed, and Weight its new weight; empty and 0 for the
	// settings of the queue.
	Key     string `json:"key,omitempty"`
	Weight  int    `json:"weight,omitempty"`
	AuditID int64  `json:"audit_id"` // the action's entry in the audit, for Undo
}

// QueueDeclarationError is an error of one queue of a declaration.
type QueueDeclarationError struct {
	Queue string // its name
	err   error
}

func (e *QueueDeclarationError) Error() string { return e.err.Error() }

func (e *QueueDeclarationError) Unwrap() error { return e.err }

// DeclareQueues makes settings of queues, and weights of their partition keys, what a program declares, and
// returns what it has changed. It compares first: where all is so already, nothing is written, and no privilege
// is needed but to read, so a program may call it whenever it starts. The queues need not have had a job.
//
// Each change is a transaction, in the order of the queues given. An error of a queue is a *QueueDeclarationError: the
// changes before it stay, and are returned with it. ErrInvalid: settings that cannot be, or cannot go together.
func (o *Operator) DeclareQueues(ctx context.Context, queues ...QueueDeclaration) (changed []QueueDeclared, err error) {
	for _, d := range queues {
		done, err := o.declareQueue(ctx, d)
		changed = append(changed, done...)
		if err != nil {
			return changed, &QueueDeclarationError{d.Queue, err}
		}
	}
	return changed, nil
}

func (o *Operator) declareQueue(ctx context.Context, d QueueDeclaration) (changed []QueueDeclared, err error) {
	operation := fmt.Sprintf("declare queue %q", d.Queue)
	texts := []argument{{"queue", d.Queue}}
	keys := slices.Sorted(maps.Keys(d.KeyWeights))
	for _, key := range keys {
		texts = append(texts, argument{"partition_key", key})
	}
	if err := o.checkTexts(operation, texts...); err != nil {
		return nil, err
	}
	stored := make(map[string]int, len(keys))
	if len(keys) > 0 {
		rows, err := o.queries.KeyWeightList(ctx, keys, d.Queue)
		if err != nil {
			return nil, dberror.Wrap(o.schema, operation, err)
		}
		for _, row := range rows {
			stored[row.Key] = int(row.Weight)
		}
	}
	for _, key := range keys {
		weight := d.KeyWeights[key]
		if weight == max(stored[key], 1) {
			continue
		}
		acted, err := o.SetKeyWeight(ctx, d.Queue, key, weight)
		if err != nil {
			return changed, err
		}
		changed = append(changed, QueueDeclared{d.Queue, key, weight, acted.AuditID})
	}
	same, err := o.queueIs(ctx, operation, d.Queue, d.Change)
	if err != nil || same {
		return changed, err
	}
	id, err := o.SetQueue(ctx, d.Queue, d.Change)
	if err == nil && id > 0 {
		changed = append(changed, QueueDeclared{Queue: d.Queue, AuditID: id})
	}
	return changed, err
}

// queueIs says whether all that a declaration names is stored so already. A rate without a burst leaves the burst open.
func (o *Operator) queueIs(ctx context.Context, operation, name string, change QueueChange) (bool, error) {
	if err := o.checkQueueTexts(operation, name, change); err != nil {
		return false, err
	}
	columns := change.byColumn()
	for prefix, rate := range map[string]*jobq.Rate{"rate_": change.Rate, "key_rate_": change.KeyRate} {
		if rate != nil && rate.Jobs > 0 && rate.Burst == 0 {
			delete(columns, prefix+"burst")
		}
	}
	if len(columns) == 0 {
		return true, nil
	}
	content, err := json.Marshal(columns)
	if err != nil {
		return false, err
	}
	same, err := dberror.Retry(ctx, func() (bool, error) { return o.queries.QueueIs(ctx, name, content) })
	return same, dberror.Wrap(o.schema, operation, err)
}
