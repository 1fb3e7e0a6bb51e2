package db

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/sql/migrations"
)

var (
	// ErrNotMigrated means that the tables are missing or older than this build.
	ErrNotMigrated = errors.New("the database is not migrated")
	// ErrNewerSchema means that the tables are newer than this build, and no longer
	// work with it.
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

// Tables is what a database says of its tables, in jobq_migration, beside what a
// program knows.
type Tables struct {
	// Version is the newest migration that was applied, 0 without any.
	Version int
	// CompatibleFrom says which programs work with the tables: those that know this
	// version or a later one. Each migration says it of itself, and the strictest
	// counts (docs/decisions/0026).
	CompatibleFrom int
	// Latest is the newest migration that the program knows.
	Latest int
	// Known is how many of the migrations 1 to Latest were applied.
	Known int
}

// ReadTables reads what the database says of its tables, for this build. The error is
// ErrNotMigrated when there are none.
func ReadTables(ctx context.Context, conn DBTX, schema *Schema) (Tables, error) {
	t := Tables{Latest: migrations.Latest()}
	// Not prepared: whether sessions are shared is found out only after this.
	query := schema.SQL("select coalesce(max(version), 0), coalesce(max(compatible_from), 0), count(*) filter (where version <= $1) from jobq.jobq_migration")
	err := conn.QueryRow(ctx, query, pgx.QueryExecModeSimpleProtocol, t.Latest).Scan(&t.Version, &t.CompatibleFrom, &t.Known)
	if IsNotMigrated(err) {
		return t, notMigratedHere(ctx, conn, schema)
	}
	if err != nil {
		return t, fmt.Errorf("schema version: %w", err)
	}
	return t, nil
}

// notMigratedHere is NotMigrated, and names the schemas of the database that have the tables, if there are any:
// then the name of the schema was forgotten, more often than a migration.
func notMigratedHere(ctx context.Context, conn DBTX, schema *Schema) error {
	var others []string
	err := conn.QueryRow(ctx, `select coalesce(array_agg(n.nspname::text order by n.nspname), '{}') from (
		select n.nspname from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
			where c.relname = 'jobq_migration' and c.relkind in ('r', 'p') order by 1 limit 20) n`, pgx.QueryExecModeSimpleProtocol).Scan(&others)
	if err != nil || len(others) == 0 { // a transaction that has failed answers nothing more
		return NotMigrated(schema)
	}
	return fmt.Errorf("%w: there are no tables in schema %s, but there are in %s: say --schema %s or set JOBQ_SCHEMA; to make others, run `%s`",
		ErrNotMigrated, schema.Name(), strings.Join(others, ", "), others[0], migrateCommand(schema))
}

// AreNewer says whether a later jobq has changed the tables.
func (t Tables) AreNewer() bool { return t.Version > t.Latest }

// Check says whether the program works with the tables: they have every migration
// that it knows, and none after these has ended its compatibility.
func (t Tables) Check(schema *Schema) error {
	switch {
	case t.CompatibleFrom > t.Latest:
		return fmt.Errorf("%w: it has version %d, made for programs that know version %d or later, this jobq knows %d; upgrade jobq",
			ErrNewerSchema, t.Version, t.CompatibleFrom, t.Latest)
	case t.Version < t.Latest:
		return fmt.Errorf("%w: it has version %d, this jobq needs %d; run `%s`", ErrNotMigrated, t.Version, t.Latest, migrateCommand(schema))
	case t.Known < t.Latest: // run by hand, and one forgotten
		return fmt.Errorf("%w: it has %d of the migrations 1 to %d; run `%s`", ErrNotMigrated, t.Known, t.Latest, migrateCommand(schema))
	}
	return nil
}

// CheckVersion says whether this build works with the tables in the database.
func CheckVersion(ctx context.Context, conn DBTX, schema *Schema) error {
	tables, err := ReadTables(ctx, conn, schema)
	if err != nil {
		return err
	}
	return tables.Check(schema)
}
