package operator

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// Undo takes back an action on those of its jobs that nothing has happened to
// since; the others come with the reason. It works in transactions of up to 1000
// jobs: one that was stopped goes on when it is called again. With an error, Acted
// has the jobs of the transactions before it, which stay undone. If there was none,
// it has no jobs. An action of which nothing could be taken back can be undone
// later. Of a job that was deleted, the latest 100 attempts come back.
//
// ErrNotFound if there is no such action. ErrConflict if it is undone already; for an
// undo, a drain, an export and a run of a schedule; for a pause or resume of a queue,
// a kind or a partition key that was paused or resumed since; for settings and weights
// that were changed since; and for an action on a schedule that was changed, removed,
// paused or resumed since in a way that the undo would take back as well.
func (o *Operator) Undo(ctx context.Context, auditID int64) (*Acted, error) {
	operation := fmt.Sprintf("undo action %d", auditID)
	undone := &Acted{}
	if err := o.checkTexts(operation); err != nil {
		return undone, err
	}
	if _, err := o.auditGet(ctx, auditID); err != nil {
		return undone, dberror.Wrap(o.schema, operation, err)
	}
	for ended := false; !ended; {
		rows, err := dberror.Retry(ctx, func() ([]db.AuditUndoRow, error) { return o.queries.AuditUndo(ctx, o.actor, auditID) })
		if err != nil {
			return undone, dberror.Wrap(o.schema, operation, err)
		}
		for _, row := range rows {
			undone.AuditID, ended = row.Audit, row.Ended
			if row.JobID == 0 {
				continue
			}
			undone.Jobs = append(undone.Jobs, ActedJob{
				ID: row.JobID, Before: jobq.State(row.StateBefore), After: jobq.State(row.StateAfter), Changed: row.Problem == "",
				Problem: row.Problem, Code: Code(row.Code),
			})
		}
	}
	return undone, nil
}

// auditGet is an action, or dberror.ErrNoAction.
func (o *Operator) auditGet(ctx context.Context, id int64) (db.AuditGetRow, error) {
	row, err := o.queries.AuditGet(ctx, id)
	if errors.Is(err, pgx.ErrNoRows) {
		err = dberror.ErrNoAction
	}
	return row, err
}
