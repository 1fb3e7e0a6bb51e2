package monitor

import (
	"context"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// Kind is a kind of job: who handles it, what became of its jobs within the last hour,
// and whether it is paused.
type Kind struct {
	Name    string `json:"name"`
	Workers int64  `json:"workers"` // live ones that have the kind, and do not drain

	Completed int64 `json:"completed"`
	Failed    int64 `json:"failed"`
	Retried   int64 `json:"retried"`
	Lost      int64 `json:"lost"` // of those that were retried or have failed

	// Crashes is how many times in a row workers have crashed that ran it: see
	// Settings.QuarantineCrashes.
	Crashes     int        `json:"crashes"`
	CrashedAt   *time.Time `json:"crashed_at,omitempty"`
	PausedAt    *time.Time `json:"paused_at,omitempty"`
	PausedBy    string     `json:"paused_by,omitempty"` // "jobq" for a quarantine
	PauseReason string     `json:"pause_reason,omitempty"`
}

// kindsMax bounds the kinds of Kinds.
const kindsMax = 1000

// Kinds returns the kinds that live workers have, or of which jobs have ended within the
// last hour, or that are paused, or have crashed workers of late: up to 1000, by name.
func (m *Monitor) Kinds(ctx context.Context) ([]Kind, error) {
	rows, err := m.queries.KindList(ctx, kindsMax, db.Interval(time.Hour))
	if err != nil {
		return nil, dberror.Wrap(m.schema, "kinds", err)
	}
	kinds := make([]Kind, len(rows))
	for i, row := range rows {
		kinds[i] = Kind{
			Name: row.Name, Workers: row.Workers, Completed: row.Completed, Failed: row.Failed, Retried: row.Retried, Lost: row.Lost,
			Crashes: int(row.Crashes), CrashedAt: db.UTC(row.CrashedAt), PausedAt: db.UTC(row.PausedAt),
			PausedBy: db.Text(row.PausedBy), PauseReason: db.Text(row.PauseReason),
		}
	}
	return kinds, nil
}
