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

// KindChange changes settings of a kind: those that are not nil. A zero value takes a setting away, so that the default
// of all kinds holds again: see KindSettings of package monitor.
type KindChange struct {
	// Queue, Priority, MaxAttempts, Timeout, BackoffBase and BackoffMax are those of each new job whose producer gives
	// none, with the limits of jobq.EnqueueOptions. They hold for producers in every language, and for schedules; what
	// the EnqueueDefaults of args in Go say comes before them. A plain INSERT does not look for them.
	Queue       *string
	Priority    *int16
	MaxAttempts *int
	Timeout     *time.Duration
	BackoffBase *time.Duration
	BackoffMax  *time.Duration
	// Owner is who is responsible for the kind, such as a team: up to 255 characters.
	Owner *string
	// Runbook is what to do when its jobs fail, such as a URL: up to 1024 characters.
	Runbook *string
}

// SetKind changes settings of a kind, which need not be known, for all jobs that are added once it has returned; jobs that
// are there keep theirs. It returns the id of its entry in the audit, for Undo, or 0 when they were so already: then no
// privilege is needed but to read, so that a program may set them whenever it starts. ErrInvalid names the setting that is
// beyond its limits.
func (o *Operator) SetKind(ctx context.Context, kind string, change KindChange) (auditID int64, err error) {
	operation := fmt.Sprintf("set kind %q", kind)
	texts := []argument{{"kind", kind}}
	for name, text := range map[string]*string{"queue": change.Queue, "owner": change.Owner, "runbook": change.Runbook} {
		if text != nil {
			texts = append(texts, argument{name, *text})
		}
	}
	if err := o.checkTexts(operation, texts...); err != nil {
		return 0, err
	}
	columns, err := json.Marshal(change.byColumn())
	if err != nil {
		return 0, fmt.Errorf("%s: %w", operation, err)
	}
	auditID, err = dberror.Retry(ctx, func() (int64, error) { return o.queries.KindEnsure(ctx, o.actor, kind, columns) })
	return auditID, dberror.Wrap(o.schema, operation, err)
}

// byColumn is the change by the names of columns. A default is stored as null, which is what it is before anybody sets it.
func (c *KindChange) byColumn() map[string]any {
	columns := make(map[string]any)
	set(columns, "queue", c.Queue, jobq.DefaultQueue)
	set(columns, "priority", c.Priority, 0)
	set(columns, "max_attempts", c.MaxAttempts, jobq.DefaultMaxAttempts)
	set(columns, "owner", c.Owner, "")
	set(columns, "runbook", c.Runbook, "")
	for name, span := range map[string]struct {
		value     *time.Duration
		byDefault time.Duration
	}{
		"timeout": {c.Timeout, 0}, "backoff_base": {c.BackoffBase, jobq.DefaultBackoffBase}, "backoff_max": {c.BackoffMax, jobq.DefaultBackoffMax},
	} {
		set(columns, name, span.value, span.byDefault)
		if duration, given := columns[name].(time.Duration); given {
			columns[name] = db.IntervalText(duration)
		}
	}
	return columns
}

// set adds a value that is given, as nil where it is the default or zero.
func set[T comparable](columns map[string]any, name string, value *T, byDefault T) {
	switch {
	case value == nil:
	case *value == byDefault:
		columns[name] = nil
	default:
		columns[name] = orNull(*value)
	}
}

// KindDeclaration is what a program wants a kind to be.
type KindDeclaration struct {
	Kind string // its name, required
	// Change has the settings that are declared. Default: none. What it does not name keeps what is stored.
	Change KindChange
}

// KindDeclared is a kind whose settings DeclareKinds has changed.
type KindDeclared struct {
	Kind    string `json:"kind"`
	AuditID int64  `json:"audit_id"` // the action's entry in the audit, for Undo
}

// KindDeclarationError is an error of one kind of a declaration.
type KindDeclarationError struct {
	Kind string // its name
	err  error
}

func (e *KindDeclarationError) Error() string { return e.err.Error() }

func (e *KindDeclarationError) Unwrap() error { return e.err }

// DeclareKinds makes settings of kinds what a program declares, each as SetKind does, in the order given, and returns what
// it has changed. Where all is so already, nothing is written. An error of a kind is a *KindDeclarationError: the changes
// before it stay, and are returned with it.
func (o *Operator) DeclareKinds(ctx context.Context, kinds ...KindDeclaration) (changed []KindDeclared, err error) {
	for _, d := range kinds {
		id, err := o.SetKind(ctx, d.Kind, d.Change)
		if err != nil {
			return changed, &KindDeclarationError{d.Kind, err}
		}
		if id > 0 {
			changed = append(changed, KindDeclared{d.Kind, id})
		}
	}
	return changed, nil
}
