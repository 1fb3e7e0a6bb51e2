package operator

import (
	"context"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// SettingsChange changes settings of the schema: those that are not nil.
type SettingsChange struct {
	FinishedRetention *time.Duration
}

// SetSettings changes settings of the schema in the operator's name.
// It returns the id of its entry in the audit, for Undo, or 0 when they were so
// already. A janitor deletes what a shorter retention no longer keeps within
// minutes, and an Undo does not bring that back. ErrInvalid names the setting
// that is beyond its limits.
func (o *Operator) SetSettings(ctx context.Context, change SettingsChange) (auditID int64, err error) {
	const operation = "set settings"
	if err := o.checkTexts(operation); err != nil {
		return 0, err
	}
	auditID, err = dberror.Retry(ctx, func() (int64, error) {
		return o.queries.SettingSet(ctx, o.actor, db.IntervalPointer(change.FinishedRetention))
	})
	return auditID, dberror.Wrap(o.schema, operation, err)
}
