// Package migrate makes and changes jobq's tables. It runs the files of
// sql/migrations through rivermigrate, with bookkeeping of its own: a table
// jobq_migration in jobq's schema, so that an application may use River in the
// same database. It is a package apart so that programs which only enqueue do
// not link River.
package migrate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/jobq-dev/jobq/internal/db"
)

// ErrNewerSchema is returned when the database has migrations that this build does
// not know, and which either ended its compatibility or would have to be taken back.
var ErrNewerSchema = db.ErrNewerSchema

// Config says what to migrate, and how far. The zero value is ready to use.
type Config struct {
	// Schema holds jobq's tables, and is made if it is not there. Default "jobq".
	Schema string
	// Target is the version to arrive at. Default 0: the latest for Up, and one
	// step for Down. For Down, -1 removes everything but the schema itself.
	Target int
	// DryRun only says what would be done. Default false.
	DryRun bool
	// Logger gets a line for each migration when it is done, and a warning when one waits
	// for another session. Default slog.Default().
	Logger *slog.Logger

	source source // for tests
}

// Version is one migration.
type Version struct {
	Version   int           `json:"version"`
	Name      string        `json:"name"`                 // empty when this build does not know it
	AppliedAt *time.Time    `json:"applied_at,omitempty"` // nil when pending
	Duration  time.Duration `json:"duration_ns,omitempty"`
	// CompatibleFrom says which programs work with the tables after the migration:
	// those that know this version or a later one. It is Version itself when older
	// programs must be stopped first.
	CompatibleFrom int `json:"compatible_from"`
}

// Result is what a migration did, or with DryRun would have done.
type Result struct {
	Direction string    `json:"direction"`
	Versions  []Version `json:"versions"`
}

// Up applies the migrations that are missing, each in a transaction of its
// own: when one fails, those before it stay applied, and the next Up goes on
// from there. Several at once take turns. A nil config means the defaults.
//
// Where a later jobq has migrated already there is nothing to do if this build works
// with its tables, and otherwise the error is ErrNewerSchema.
//
// The pool only says where the database is: Up makes a private one from its
// settings. It needs three connections at once, and a fourth to see for whom a migration
// waits. It takes no lock or setting that outlives a transaction, so that a pooler may be
// in between.
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

// migrator does one migration on a private pool: it needs up to four connections at
// once, which the caller's pool may not have.
type migrator struct {
	config Config
	schema *db.Schema
	pool   *pgxpool.Pool
	river  *rivermigrate.Migrator[pgx.Tx]

	compatible map[int]int            // by migration: programs work with it if they know this version or a later one
	direction  rivermigrate.Direction // of the current run
}

func newMigrator(ctx context.Context, pool *pgxpool.Pool, config *Config) (*migrator, error) {
	if pool == nil {
		return nil, errors.New("the pool is nil")
	}
	if config == nil {
		config = &Config{}
	}
	m := &migrator{config: *config}
	if m.config.Logger == nil {
		m.config.Logger = slog.Default()
	}
	var err error
	if m.schema, err = db.NewSchema(m.config.Schema); err != nil {
		return nil, err
	}
	files, err := m.config.source.orEmbedded().render(m.schema)
	if err != nil {
		return nil, err
	}
	if m.compatible, err = compatibleFrom(files, migrationFolder); err != nil {
		return nil, err
	}
	private := pool.Config()
	private.MinConns, private.MinIdleConns, private.MaxConns = 0, 0, 4
	private.ConnConfig.RuntimeParams["application_name"] = "jobq-migrate"
	db.NameNoStatements(private.ConnConfig) // each is sent once
	db.PinPool(private)
	if m.pool, err = pgxpool.NewWithConfig(ctx, private); err != nil {
		return nil, err
	}
	m.river, err = rivermigrate.New(newDriver(m, files), &rivermigrate.Config{Line: line, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		m.pool.Close()
		return nil, err
	}
	return m, nil
}

// run migrates under the lock, or without it when nothing will be changed.
func (m *migrator) run(ctx context.Context, direction rivermigrate.Direction) (*Result, error) {
	m.direction = direction
	if latest := m.latest(); m.config.Target < -1 || m.config.Target > latest || (m.config.Target == -1 && direction == rivermigrate.DirectionUp) {
		return nil, fmt.Errorf("there is no version %d: versions are 1 to %d", m.config.Target, latest)
	}
	if m.config.DryRun {
		return m.apply(ctx)
	}
	unlock, err := lock(ctx, m.pool, m.schema, m.config.Logger)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if direction == rivermigrate.DirectionUp {
		if err := m.prepare(ctx); err != nil {
			return nil, err
		}
	}
	result, err := m.apply(ctx)
	if err != nil {
		return nil, err
	}
	if direction == rivermigrate.DirectionDown && m.config.Target == -1 {
		drop := fmt.Sprintf("set local lock_timeout = %d; %s", dropTimeout.Milliseconds(), m.schema.SQL("drop table if exists jobq.jobq_migration"))
		if _, err := m.pool.Exec(ctx, drop, pgx.QueryExecModeSimpleProtocol); err != nil { // two statements, one transaction
			return nil, fmt.Errorf("drop table jobq_migration: %w", err)
		}
	}
	return result, nil
}

func (m *migrator) apply(ctx context.Context) (*Result, error) {
	result := &Result{Direction: string(m.direction), Versions: []Version{}}
	if newer, err := m.check(ctx); newer || err != nil {
		return result, err
	}
	options := &rivermigrate.MigrateOpts{TargetVersion: m.config.Target, DryRun: m.config.DryRun}
	applied, err := m.river.Migrate(ctx, m.direction, options)
	if err != nil {
		return nil, err
	}
	for _, version := range applied.Versions {
		result.Versions = append(result.Versions, Version{
			Version: version.Version, Name: version.Name, Duration: version.Duration, CompatibleFrom: m.compatible[version.Version],
		})
		if m.config.DryRun {
			m.log("would migrate", version.Version, version.Name)
		}
	}
	return result, nil
}

// committed reports a migration at once, and not at the end with the others:
// the next may take long, or fail.
func (m *migrator) committed(version int) {
	known, err := m.river.GetVersion(version)
	if err != nil {
		return // rivermigrate applies none that it does not know
	}
	m.log("migrated", version, known.Name)
}

func (m *migrator) log(message string, version int, name string) {
	m.config.Logger.Info(message, "direction", string(m.direction), "version", version, "name", name, "schema", m.schema.Name())
}

// prepare makes the schema and the bookkeeping table. It looks for them first,
// because "if not exists" wants the right to create in any case, and an Up that
// has nothing to do needs no such right.
func (m *migrator) prepare(ctx context.Context) error {
	if err := m.checkEncoding(ctx); err != nil {
		return err
	}
	var schemaExists, tableExists bool
	err := m.pool.QueryRow(ctx, `
		select exists (select from pg_catalog.pg_namespace n where n.nspname = $1),
		       exists (select from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
		                 where n.nspname = $1 and c.relname = 'jobq_migration')`, m.schema.Name()).Scan(&schemaExists, &tableExists)
	if err != nil {
		return fmt.Errorf("look for schema %s: %w", m.schema.Name(), err)
	}
	if !schemaExists {
		if _, err := m.pool.Exec(ctx, "create schema "+quoted(m.schema)); err != nil {
			return fmt.Errorf("create schema %s: %w", m.schema.Name(), err)
		}
	}
	if !tableExists {
		if _, err := m.pool.Exec(ctx, m.schema.SQL(createTable)); err != nil {
			return fmt.Errorf("create table jobq_migration in schema %s: %w", m.schema.Name(), err)
		}
	}
	return nil
}

// checkEncoding refuses a database that cannot store every text of a job. The first migration does so too, for those who
// run it with psql.
func (m *migrator) checkEncoding(ctx context.Context) error {
	var encoding string
	if err := m.pool.QueryRow(ctx, "select pg_catalog.getdatabaseencoding()::text").Scan(&encoding); err != nil {
		return fmt.Errorf("ask for the encoding of the database: %w", err)
	}
	if encoding != "UTF8" {
		return fmt.Errorf("the database has the encoding %s, and jobq needs UTF8: make a database with create database NAME encoding 'UTF8' template template0", encoding)
	}
	return nil
}

// check says whether a later jobq has migrated already: rivermigrate does not know
// its migrations, and would take back the wrong thing. The error is ErrNewerSchema
// when this build does not work with what it finds, or was to take it back.
func (m *migrator) check(ctx context.Context) (newer bool, err error) {
	applied, err := appliedVersions(ctx, m.pool, m.schema)
	if err != nil {
		return false, fmt.Errorf("read table jobq_migration: %w", err)
	}
	tables := m.tables(applied)
	switch _, ok := applied[m.config.Target]; {
	case tables.AreNewer() && m.direction == rivermigrate.DirectionDown:
		return true, fmt.Errorf("%w: it has version %d, this jobq knows %d; take it back with the jobq that has migrated it",
			ErrNewerSchema, tables.Version, tables.Latest)
	case tables.AreNewer():
		return true, tables.Check(m.schema)
	case !ok && m.config.Target > 0 && m.direction == rivermigrate.DirectionDown:
		return false, fmt.Errorf("version %d is not applied: the database has version %d", m.config.Target, tables.Version)
	}
	return false, nil
}

// tables is what the bookkeeping says, beside what this build knows.
func (m *migrator) tables(applied map[int]appliedVersion) db.Tables {
	tables := db.Tables{Latest: m.latest()}
	for version, row := range applied {
		tables.Version, tables.CompatibleFrom = max(tables.Version, version), max(tables.CompatibleFrom, row.compatibleFrom)
		if version <= tables.Latest {
			tables.Known++
		}
	}
	return tables
}

// latest is the newest version that this build knows.
func (m *migrator) latest() int {
	latest := 0
	for _, version := range m.river.AllVersions() {
		latest = max(latest, version.Version)
	}
	return latest
}
