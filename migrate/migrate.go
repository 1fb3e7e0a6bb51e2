// Package migrate makes and changes jobq's tables. It runs the files of
// sql/migrations through rivermigrate, with bookkeeping of its own: a table
// jobq_migration in jobq's schema, so that an application may use River in the
// same database. It is a package apart so that programs which only enqueue do
// not link River.
package migrate

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/jobq-dev/jobq/internal/db"
)

// ErrNewerSchema is returned when the database has migrations that this build
// does not know: an older jobq must not touch it.
var ErrNewerSchema = db.ErrNewerSchema

// Config says what to migrate, and how far. The zero value is ready to use.
type Config struct {
	// Schema holds jobq's tables, and is made if it is not there. Default "jobq".
	Schema string
	// Target is the version to arrive at. Zero means the latest for Up, and one
	// step for Down. For Down, -1 removes everything.
	Target int
	// DryRun only says what would be done.
	DryRun bool
	// Logger is told of each migration. Default slog.Default().
	Logger *slog.Logger

	source source // for tests
}

// Version is one migration.
type Version struct {
	Version   int           `json:"version"`
	Name      string        `json:"name"`
	AppliedAt *time.Time    `json:"applied_at,omitempty"` // nil when pending
	Duration  time.Duration `json:"duration_ns,omitempty"`
}

// Result is what a migration did, or with DryRun would have done.
type Result struct {
	Direction string    `json:"direction"`
	Versions  []Version `json:"versions"`
}

// Up applies the migrations that are missing, each in a transaction of its
// own. Several at once take turns. A nil config means the defaults.
func Up(ctx context.Context, pool *pgxpool.Pool, config *Config) (*Result, error) {
	return migrate(ctx, pool, config, rivermigrate.DirectionUp)
}

// Down takes migrations back, the latest first: one, unless Target says
// otherwise. Jobs in tables that it drops are gone.
func Down(ctx context.Context, pool *pgxpool.Pool, config *Config) (*Result, error) {
	return migrate(ctx, pool, config, rivermigrate.DirectionDown)
}

func migrate(ctx context.Context, pool *pgxpool.Pool, config *Config, direction rivermigrate.Direction) (*Result, error) {
	m, err := newMigrator(ctx, pool, config)
	if err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	defer m.pool.Close()
	result, err := m.run(ctx, direction)
	if err != nil {
		return nil, fmt.Errorf("migrate %s: %w", direction, err)
	}
	return result, nil
}

// migrator does one migration on a private pool: it needs three connections at
// once, which the caller's pool may not have.
type migrator struct {
	config Config
	schema *db.Schema
	pool   *pgxpool.Pool
	river  *rivermigrate.Migrator[pgx.Tx]
}

func newMigrator(ctx context.Context, pool *pgxpool.Pool, config *Config) (*migrator, error) {
	if config == nil {
		config = &Config{}
	}
	m := &migrator{config: *config}
	if m.config.Logger == nil {
		m.config.Logger = slog.Default()
	}
	if m.config.source.files == nil {
		m.config.source = embeddedSource()
	}
	var err error
	if m.schema, err = db.NewSchema(m.config.Schema); err != nil {
		return nil, err
	}
	files, err := m.config.source.render(m.schema)
	if err != nil {
		return nil, err
	}
	private := pool.Config()
	private.MinConns, private.MinIdleConns, private.MaxConns = 0, 0, 4
	private.ConnConfig.RuntimeParams["application_name"] = "jobq-migrate"
	if m.pool, err = pgxpool.NewWithConfig(ctx, private); err != nil {
		return nil, err
	}
	driver := newDriver(m.pool, m.schema, files)
	m.river, err = rivermigrate.New(driver, &rivermigrate.Config{Line: line, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		m.pool.Close()
		return nil, err
	}
	return m, nil
}

// run migrates under the lock, or without it when nothing will be changed.
func (m *migrator) run(ctx context.Context, direction rivermigrate.Direction) (*Result, error) {
	if latest := m.latest(); m.config.Target < -1 || m.config.Target > latest || (m.config.Target == -1 && direction == rivermigrate.DirectionUp) {
		return nil, fmt.Errorf("there is no version %d: versions are 1 to %d", m.config.Target, latest)
	}
	options := &rivermigrate.MigrateOpts{TargetVersion: m.config.Target, DryRun: m.config.DryRun}
	if m.config.DryRun {
		return m.apply(ctx, direction, options)
	}
	unlock, err := lock(ctx, m.pool, m.schema)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if direction == rivermigrate.DirectionUp {
		if err := m.prepare(ctx); err != nil {
			return nil, err
		}
	}
	result, err := m.apply(ctx, direction, options)
	if err != nil {
		return nil, err
	}
	if direction == rivermigrate.DirectionDown && m.config.Target == -1 {
		if _, err := m.pool.Exec(ctx, m.schema.SQL("drop table if exists jobq.jobq_migration")); err != nil {
			return nil, err
		}
	}
	return result, nil
}

func (m *migrator) apply(ctx context.Context, direction rivermigrate.Direction, options *rivermigrate.MigrateOpts) (*Result, error) {
	if err := m.refuseNewer(ctx); err != nil {
		return nil, err
	}
	applied, err := m.river.Migrate(ctx, direction, options)
	if err != nil {
		return nil, err
	}
	result := &Result{Direction: string(direction), Versions: []Version{}}
	for _, version := range applied.Versions {
		result.Versions = append(result.Versions, Version{Version: version.Version, Name: version.Name, Duration: version.Duration})
		m.config.Logger.Info("migrated", "direction", string(direction), "version", version.Version, "name", version.Name,
			"schema", m.schema.Name(), "dry_run", m.config.DryRun)
	}
	return result, nil
}

// prepare makes the schema and the bookkeeping table.
func (m *migrator) prepare(ctx context.Context) error {
	var exists bool
	err := m.pool.QueryRow(ctx, "select exists (select from pg_catalog.pg_namespace where nspname = $1)", m.schema.Name()).Scan(&exists)
	if err != nil {
		return err
	}
	if !exists { // asked first: "if not exists" wants the right to create in any case
		if _, err := m.pool.Exec(ctx, "create schema "+pgx.Identifier{m.schema.Name()}.Sanitize()); err != nil {
			return fmt.Errorf("create schema %s: %w", m.schema.Name(), err)
		}
	}
	_, err = m.pool.Exec(ctx, m.schema.SQL(createTable))
	return err
}

// refuseNewer returns ErrNewerSchema when the database knows more than this
// build: rivermigrate would call that valid, and take back the wrong thing.
func (m *migrator) refuseNewer(ctx context.Context) error {
	applied, err := appliedVersions(ctx, m.pool, m.schema)
	if err != nil {
		return err
	}
	latest := m.latest()
	for version := range applied {
		if version > latest {
			return fmt.Errorf("%w: it has version %d, this jobq knows %d; upgrade jobq", ErrNewerSchema, version, latest)
		}
	}
	return nil
}

// latest is the newest version that this build knows.
func (m *migrator) latest() int {
	latest := 0
	for _, version := range m.river.AllVersions() {
		latest = max(latest, version.Version)
	}
	return latest
}

// Status is how far a database has come.
type Status struct {
	Schema   string    `json:"schema"`
	Current  int       `json:"current"` // 0 when nothing is applied
	Latest   int       `json:"latest"`  // that this build knows
	Versions []Version `json:"versions"`
}

// Pending says whether there is something to migrate.
func (s *Status) Pending() bool { return s.Current < s.Latest }

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
	status := &Status{Schema: m.schema.Name()}
	for _, known := range m.river.AllVersions() {
		version := Version{Version: known.Version, Name: known.Name}
		if at, ok := applied[known.Version]; ok {
			version.AppliedAt = &at
		}
		status.Versions = append(status.Versions, version)
		status.Latest = max(status.Latest, known.Version)
	}
	for version := range applied {
		status.Current = max(status.Current, version)
	}
	if status.Current > status.Latest {
		return status, fmt.Errorf("migration status: %w", ErrNewerSchema)
	}
	return status, nil
}
