package monitor

import (
	"context"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// Settings are those of the whole schema, obeyed by every janitor. Those of a
// queue are QueueSettings.
type Settings struct {
	// FinishedRetention is how long jobs are kept that have completed, failed or
	// were cancelled, with their attempts: 1 day to 10 years, 7 days by default.
	// They go by whole days (UTC), so that the last one is kept up to a day longer.
	FinishedRetention time.Duration `json:"finished_retention_ns"`
	// FailedRetention is how long those are kept that failed or were cancelled: 1 day to 10 years.
	// Default 0: as long as FinishedRetention. A queue may have retentions of its own.
	FailedRetention time.Duration `json:"failed_retention_ns,omitempty"`
	// QuarantineCrashes is after how many crashes in a row of the workers that run it a
	// kind is paused: up to 1000, 5 by default; 0: never. docs/internals/guarantees.md says what
	// counts as a crash.
	QuarantineCrashes int `json:"quarantine_crashes"`
	// KeepUntilExported says that a day of the history is not dropped, however old, before it
	// was exported. Default false.
	KeepUntilExported bool `json:"keep_until_exported"`
	// ExportedBefore is the day (UTC) before which all days were exported, as EndExport
	// of package operator, or a person, has said. Default 2026-01-01, before which there
	// are none.
	ExportedBefore time.Time `json:"exported_before"`
}

// Settings returns the settings of the schema.
func (m *Monitor) Settings(ctx context.Context) (Settings, error) {
	row, err := m.queries.SettingGet(ctx)
	return Settings{
		FinishedRetention: db.Milliseconds(row.FinishedRetentionMs), QuarantineCrashes: int(row.QuarantineCrashes),
		FailedRetention:   db.Milliseconds(row.FailedRetentionMs),
		KeepUntilExported: row.KeepUntilExported, ExportedBefore: row.ExportedBefore.Time,
	}, dberror.Wrap(m.schema, "settings", err)
}
