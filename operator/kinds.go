package operator

import (
	"context"
	"fmt"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// PauseKind makes workers claim no more jobs of the kind, whatever queue they are in;
// what runs goes on. It takes effect when it commits. It returns the id of its entry in
// the audit, for Undo, or 0 when the kind was paused already. The reason is for people, and
// may be empty. The kind need not be known: to refuse a misspelt name, ask a monitor
// for the kinds.
func (o *Operator) PauseKind(ctx context.Context, kind, reason string) (auditID int64, err error) {
	return o.actOnKind(ctx, "pause", db.KindActParams{Actor: o.actor, Action: string(jobq.ActionKindPause), Kind: kind, Note: db.TextOrNull(reason)})
}

// ResumeKind lets workers claim jobs of the kind again, and wakes them, also after
// a quarantine; its crashes are then counted anew. It returns the id of its entry in the audit,
// for Undo, or 0 when the kind was not paused.
func (o *Operator) ResumeKind(ctx context.Context, kind string) (auditID int64, err error) {
	return o.actOnKind(ctx, "resume", db.KindActParams{Actor: o.actor, Action: string(jobq.ActionKindResume), Kind: kind})
}

func (o *Operator) actOnKind(ctx context.Context, verb string, params db.KindActParams) (auditID int64, err error) {
	operation := fmt.Sprintf("%s kind %q", verb, params.Kind)
	if err := o.checkTexts(operation, argument{"kind", params.Kind}, argument{"reason", db.Text(params.Note)}); err != nil {
		return 0, err
	}
	auditID, err = dberror.Retry(ctx, func() (int64, error) { return o.queries.KindAct(ctx, params) })
	return auditID, dberror.Wrap(o.schema, operation, err)
}
