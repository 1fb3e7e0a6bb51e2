package db

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/sql/migrations"
)

var (
	// ErrNotMigrated means that the tables are missing or older than this build.
	ErrNotMigrated = errors.New("the database is not migrated")
	// ErrNewerSchema means that the tables are newer than this build.
	ErrNewerSchema = errors.New("the database is newer than this jobq")
)

// NotMigrated is ErrNotMigrated with the command that mends it.
func NotMigrated(schema *Schema) error {
	return fmt.Errorf("%w: run `%s`", ErrNotMigrated, migrateCommand(schema))
}

func migrateCommand(schema *Schema) string {
	if schema.Name() == DefaultSchema {
		return "jobq migrate up"
	}
	return "jobq migrate up --schema " + schema.Name()
}

// NewerSchema is ErrNewerSchema with both versions and what to do.
func NewerSchema(version, latest int) error {
	return fmt.Errorf("%w: it has version %d, this jobq knows %d; upgrade jobq", ErrNewerSchema, version, latest)
}

// CheckVersion says whether this build can work with the tables in the
// database: they must be of exactly its version, with every migration before it.
func CheckVersion(ctx context.Context, conn DBTX, schema *Schema) error {
	var version, count int
	latest := migrations.Latest()
	// Not prepared: whether sessions are shared is found out only after this.
	query := schema.SQL("select coalesce(max(version), 0), count(*) from jobq.jobq_migration")
	err := conn.QueryRow(ctx, query, pgx.QueryExecModeSimpleProtocol).Scan(&version, &count)
	switch {
	case IsNotMigrated(err):
		return NotMigrated(schema)
	case err != nil:
		return fmt.Errorf("schema version: %w", err)
	case version > latest:
		return NewerSchema(version, latest)
	case version < latest:
		return fmt.Errorf("%w: it has version %d, this jobq needs %d; run `%s`", ErrNotMigrated, version, latest, migrateCommand(schema))
	case count < latest: // run by hand, and one forgotten
		return fmt.Errorf("%w: it has %d of the migrations 1 to %d; run `%s`", ErrNotMigrated, count, latest, migrateCommand(schema))
	}
	return nil
}
