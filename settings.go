package jobq

import (
	"context"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
)

// Settings are those of the whole schema, obeyed by every janitor. Those of a
// queue are QueueSettings.
type Settings struct {
	// FinishedRetention is how long jobs are kept that have completed, failed or
	// were cancelled, with their attempts: 1 day to 10 years, 7 days by default.
	// They go by whole days (UTC), so that the last one is kept up to a day longer.
	FinishedRetention time.Duration `json:"finished_retention_ns"`
}

// SettingsChange changes settings of the schema: those that are not nil.
type SettingsChange struct {
	FinishedRetention *time.Duration
}

// Settings returns the settings of the schema.
func (c *Client) Settings(ctx context.Context) (Settings, error) {
	retention, err := c.queries.SettingGet(ctx)
	return Settings{FinishedRetention: milliseconds(retention)}, c.clientError("settings", err)
}

// SetSettings changes settings of the schema in the name of the client's Actor.
// It returns the id of its entry in the audit, for Undo, or 0 when they were so
// already. A janitor deletes what a shorter retention no longer keeps within
// minutes, and an Undo does not bring that back. ErrInvalid names the setting
// that is beyond its limits.
func (c *Client) SetSettings(ctx context.Context, change SettingsChange) (auditID int64, err error) {
	auditID, err = retried(ctx, func() (int64, error) {
		return c.queries.SettingSet(ctx, c.actor, db.IntervalPointer(change.FinishedRetention))
	})
	return auditID, c.clientError("set settings", err)
}
