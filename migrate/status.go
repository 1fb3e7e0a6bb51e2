package migrate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq/internal/db"
)

// Status is how far a database has come.
type Status struct {
	Schema   string    `json:"schema"`
	Current  int       `json:"current"`  // 0 when nothing is applied
	Latest   int       `json:"latest"`   // that this build knows
	Versions []Version `json:"versions"` // those known and those applied, by number
}

// Pending says whether there is something to migrate.
func (s *Status) Pending() bool {
	return slices.ContainsFunc(s.Versions, func(version Version) bool { return version.AppliedAt == nil })
}

// GetStatus reads how far the database has come. It changes nothing. When the
// database is newer than this build it returns the status and ErrNewerSchema.
func GetStatus(ctx context.Context, pool *pgxpool.Pool, config *Config) (*Status, error) {
	m, err := newMigrator(ctx, pool, config)
	if err != nil {
		return nil, fmt.Errorf("migration status: %w", err)
	}
	defer m.pool.Close()
	applied, err := appliedVersions(ctx, m.pool, m.schema)
	if err != nil {
		return nil, fmt.Errorf("migration status: %w", err)
	}
	status := &Status{Schema: m.schema.Name(), Current: newest(applied), Latest: m.latest()}
	for _, known := range m.river.AllVersions() {
		version := Version{Version: known.Version, Name: known.Name}
		if at, ok := applied[known.Version]; ok {
			version.AppliedAt = &at
			delete(applied, known.Version)
		}
		status.Versions = append(status.Versions, version)
	}
	for _, unknown := range slices.Sorted(maps.Keys(applied)) {
		at := applied[unknown]
		status.Versions = append(status.Versions, Version{Version: unknown, AppliedAt: &at})
	}
	if status.Current > status.Latest {
		return status, fmt.Errorf("migration status: %w", db.NewerSchema(status.Current, status.Latest))
	}
	return status, nil
}

// newest is the highest version applied, 0 when there is none.
func newest(applied map[int]time.Time) int {
	version := 0
	for candidate := range applied {
		version = max(version, candidate)
	}
	return version
}
