package operator

import (
	"context"
	"math"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// SettingsChange changes settings of the schema: those that are not nil.
type SettingsChange struct {
	FinishedRetention *time.Duration
	// FailedRetention is 0 for as long as FinishedRetention.
	FailedRetention   *time.Duration
	QuarantineCrashes *int
	KeepUntilExported *bool
	// ExportedBefore is a day (UTC).
	ExportedBefore *time.Time
}

// SetSettings changes settings of the schema in the operator's name.
// It returns the id of its entry in the audit, for Undo, or 0 when they were so
// already: then no privilege is needed but to read. A janitor deletes what a shorter retention no longer keeps within
// minutes, and an Undo does not bring that back. ErrInvalid names the setting
// that is beyond its limits.
func (o *Operator) SetSettings(ctx context.Context, change SettingsChange) (auditID int64, err error) {
	const operation = "set settings"
	if err := o.checkTexts(operation); err != nil {
		return 0, err
	}
	if row, err := o.queries.SettingGet(ctx); err == nil && change.isIn(&row) { // the right to read is enough then
		return 0, nil
	}
	var crashes pgtype.Int4
	if change.QuarantineCrashes != nil { // the bounds are beyond the limits of the setting
		crashes = pgtype.Int4{Int32: int32(max(min(*change.QuarantineCrashes, math.MaxInt32), math.MinInt32)), Valid: true} // #nosec G115 -- bounded here
	}
	var keep pgtype.Bool
	if change.KeepUntilExported != nil {
		keep = pgtype.Bool{Bool: *change.KeepUntilExported, Valid: true}
	}
	auditID, err = dberror.Retry(ctx, func() (int64, error) {
		return o.queries.SettingSet(ctx, db.SettingSetParams{
			Actor: o.actor, FinishedRetention: db.IntervalPointer(change.FinishedRetention), QuarantineCrashes: crashes,
			KeepUntilExported: keep, ExportedBefore: db.DatePointer(change.ExportedBefore),
			FailedRetention: db.IntervalPointer(change.FailedRetention),
		})
	})
	return auditID, dberror.Wrap(o.schema, operation, err)
}

// isIn says whether the settings are so already.
func (c *SettingsChange) isIn(row *db.SettingGetRow) bool {
	return is(c.FinishedRetention, db.Milliseconds(row.FinishedRetentionMs)) && is(c.FailedRetention, db.Milliseconds(row.FailedRetentionMs)) &&
		is(c.QuarantineCrashes, int(row.QuarantineCrashes)) && is(c.KeepUntilExported, row.KeepUntilExported) &&
		(c.ExportedBefore == nil || db.Date(*c.ExportedBefore) == row.ExportedBefore)
}

// is says whether a wish is nil or has the value that is stored.
func is[T comparable](wish *T, stored T) bool { return wish == nil || *wish == stored }
