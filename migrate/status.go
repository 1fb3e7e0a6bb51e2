package migrate

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Status is how far a database has come.
type Status struct {
	Schema  string `json:"schema"`
	Current int    `json:"current"` // 0 when nothing is applied
	Latest  int    `json:"latest"`  // that this build knows
	// CompatibleFrom says which programs work with the tables: those that know this
	// version or a later one. 0 when nothing is applied.
	CompatibleFrom int       `json:"compatible_from"`
	Versions       []Version `json:"versions"` // those known and those applied, by number
}

// Pending says whether there is something to migrate.
func (s *Status) Pending() bool {
	return slices.ContainsFunc(s.Versions, func(version Version) bool { return version.AppliedAt == nil })
}

// GetStatus reads how far the database has come. It changes nothing. When this build
// does not work with the tables of a later one, it returns the status and ErrNewerSchema.
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
	tables := m.tables(applied)
	status := &Status{Schema: m.schema.Name(), Current: tables.Version, Latest: tables.Latest, CompatibleFrom: tables.CompatibleFrom}
	for _, known := range m.river.AllVersions() {
		version := Version{Version: known.Version, Name: known.Name, CompatibleFrom: m.compatible[known.Version]}
		if row, ok := applied[known.Version]; ok {
			version.AppliedAt, version.CompatibleFrom = &row.at, row.compatibleFrom
			delete(applied, known.Version)
		}
		status.Versions = append(status.Versions, version)
	}
	for _, unknown := range slices.Sorted(maps.Keys(applied)) {
		row := applied[unknown]
		status.Versions = append(status.Versions, Version{Version: unknown, AppliedAt: &row.at, CompatibleFrom: row.compatibleFrom})
	}
	if tables.AreNewer() {
		if err := tables.Check(m.schema); err != nil {
			return status, fmt.Errorf("migration status: %w", err)
		}
	}
	return status, nil
}
