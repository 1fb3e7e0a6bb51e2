package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
	"github.com/jobq-dev/jobq/internal/storable"
)

// JobChange changes what a job is made of: those fields that are not nil.
type JobChange struct {
	// Args are what the job works on: JSON, with the limits of an enqueue. They are stored as they
	// are. In place of encrypted args, plain ones are refused: give what the Codec has made of them.
	Args json.RawMessage `json:"args,omitempty"`
	// ArgsPatch is a JSON merge patch (RFC 7396) of the job's args: an object whose members replace those of args. Null
	// removes a member, and an object patches an object. It is instead of Args, and refused for a job whose args are
	// encrypted, or no object. Default nil: none.
	ArgsPatch json.RawMessage `json:"-"`
	// Queue moves the job to the tail of another queue.
	Queue *string `json:"queue,omitempty"`
	// Priority moves it to the tail of those with that priority.
	Priority *int16 `json:"priority,omitempty"`
	// RunAt makes it scheduled until then, or available when that has passed.
	RunAt *time.Time `json:"run_at,omitempty"`
	// MaxAttempts must be more than the attempts that it has used.
	MaxAttempts *int `json:"max_attempts,omitempty"`
	// Tags replace all that it has. An empty list leaves it without any.
	Tags *[]string `json:"tags,omitempty"`
	// Metadata is JSON; null removes it.
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

// IsEmpty says that nothing is to change.
func (c *JobChange) IsEmpty() bool {
	return c.Args == nil && c.ArgsPatch == nil && c.Queue == nil && c.Priority == nil && c.RunAt == nil && c.MaxAttempts == nil && c.Tags == nil && c.Metadata == nil
}

// columns is the change as the database takes it, by the names of columns.
func (c *JobChange) columns() (json.RawMessage, error) {
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", jobq.ErrInvalid, err)
	}
	columns := make(map[string]any)
	set := func(name string, isSet bool, value any) {
		if isSet {
			columns[name] = value
		}
	}
	set("args", c.Args != nil, c.Args)
	set("args_patch", c.ArgsPatch != nil, c.ArgsPatch)
	set("queue", c.Queue != nil, c.Queue)
	set("priority", c.Priority != nil, c.Priority)
	set("run_at", c.RunAt != nil, c.RunAt)
	set("max_attempts", c.MaxAttempts != nil, c.MaxAttempts)
	if c.Tags != nil {
		columns["tags"] = tagsOrNull(*c.Tags)
	}
	set("metadata", c.Metadata != nil, c.Metadata)
	content, err := json.Marshal(columns)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", jobq.ErrInvalid, err)
	}
	return content, nil
}

// check refuses values that the database cannot check.
func (c *JobChange) check() error {
	if c.MaxAttempts != nil {
		if *c.MaxAttempts == 0 {
			return errors.New("max_attempts must be 1 to 32767, not 0")
		}
		if err := storable.Count("max_attempts", *c.MaxAttempts); err != nil {
			return err
		}
	}
	if c.RunAt != nil {
		if err := storable.RunAt(*c.RunAt); err != nil {
			return err
		}
	}
	if c.Tags != nil {
		if err := storable.Tags(*c.Tags); err != nil {
			return err
		}
	}
	if c.Queue != nil { // JSON has no other text: it would be replaced
		if err := storable.Text("queue", *c.Queue); err != nil {
			return err
		}
	}
	if c.Args != nil && c.ArgsPatch != nil {
		return errors.New("give args or a patch of them, and not both")
	}
	return cmp.Or(storable.JSON("metadata", c.Metadata), storable.JSON("args", c.Args), storable.JSON("args patch", c.ArgsPatch))
}

// tagsOrNull is no tags as they are stored: null.
func tagsOrNull(tags []string) any {
	if len(tags) == 0 {
		return nil
	}
	return tags
}

// seenOf is what a job was in those columns that a change is about.
func seenOf(job *jobq.Job, change json.RawMessage) (json.RawMessage, error) {
	if job == nil {
		return nil, nil
	}
	all := map[string]any{
		"args": job.Args, "queue": job.Queue, "priority": job.Priority, "run_at": job.RunAt, "max_attempts": job.MaxAttempts,
		"tags": tagsOrNull(job.Tags), "metadata": job.Metadata,
	}
	var names map[string]json.RawMessage
	if err := json.Unmarshal(change, &names); err != nil {
		return nil, err
	}
	seen := make(map[string]any, len(names))
	for name := range names {
		if name == "args_patch" {
			name = "args"
		}
		seen[name] = all[name]
	}
	return json.Marshal(seen)
}

// Edit changes up to 1000 jobs that wait, in the operator's name,
// and records it in the audit, from where it can be undone. A job that runs or
// has ended is left alone, with the reason: a requeue, or a Clone, is for those.
// A job keeps its unique key, and its place in the line unless Queue, Priority
// or RunAt give it another one. Workers hear of what becomes available.
func (o *Operator) Edit(ctx context.Context, change JobChange, targets ...Target) (*Acted, error) {
	if change.IsEmpty() {
		return nil, fmt.Errorf("edit: %w: there is nothing to change", jobq.ErrInvalid)
	}
	columns, err := change.columns()
	if err != nil {
		return nil, fmt.Errorf("edit: %w", err)
	}
	return o.act(ctx, db.JobActParams{Action: string(jobq.ActionEdit), Change: columns}, targets)
}

// RequeueWith requeues up to 1000 jobs as Act does, with other args: the change may have Args or ArgsPatch, and nothing
// else. No worker gets such a job with its old args. It begins anew: its checkpoint and its durable steps are of other
// args, and removed. It keeps its unique key. An undo brings its args and its checkpoint back, and not the steps.
// A job that has these args already is requeued as it is.
func (o *Operator) RequeueWith(ctx context.Context, change JobChange, targets ...Target) (*Acted, error) {
	columns, err := change.argsColumns()
	if err != nil {
		return nil, fmt.Errorf("requeue: %w", err)
	}
	return o.act(ctx, db.JobActParams{Action: string(jobq.ActionRequeue), Change: columns}, targets)
}

// argsColumns is columns of a change of args alone.
func (c *JobChange) argsColumns() (json.RawMessage, error) {
	rest := *c
	rest.Args, rest.ArgsPatch = nil, nil
	if c.Args == nil && c.ArgsPatch == nil || !rest.IsEmpty() {
		return nil, fmt.Errorf("%w: a requeue can change args, and nothing else", jobq.ErrInvalid)
	}
	return c.columns()
}

// Cloned is a job made after another one.
type Cloned struct {
	AuditID int64      `json:"audit_id"`
	ID      int64      `json:"id"`
	State   jobq.State `json:"state"`
}

// Clone adds a job with the kind, args, queue, priority, max_attempts, timeout,
// backoff, tags, metadata and partition key of another one, whatever state that is
// in, except for what the change sets. The new job is due now unless RunAt says
// when, and has no unique key, since the other job may hold it. It is in the audit,
// and an undo removes the new job, unless a worker has had it.
func (o *Operator) Clone(ctx context.Context, id int64, change JobChange) (*Cloned, error) {
	operation := fmt.Sprintf("clone job %d", id)
	if err := o.checkTexts(operation); err != nil {
		return nil, err
	}
	columns, err := change.columns()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", operation, err)
	}
	row, err := dberror.Retry(ctx, func() (db.JobCloneRow, error) { return o.queries.JobClone(ctx, o.actor, id, columns) })
	if err != nil {
		return nil, dberror.Wrap(o.schema, operation, err)
	}
	return &Cloned{AuditID: row.Audit, ID: row.ID, State: jobq.State(row.State)}, nil
}
