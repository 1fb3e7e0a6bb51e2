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
}

// Settings returns the settings of the schema.
func (m *Monitor) Settings(ctx context.Context) (Settings, error) {
	retention, err := m.queries.SettingGet(ctx)
	return Settings{FinishedRetention: db.Milliseconds(retention)}, dberror.Wrap(m.schema, "settings", err)
}
