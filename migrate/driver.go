package migrate

import (
	"context"
	"io/fs"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/jobq-dev/jobq/internal/db"
)

// createTable is the bookkeeping: a row per applied migration. compatible_from is
// what the migration says of itself: see header.
const createTable = `create table if not exists jobq.jobq_migration (
  version         integer     not null primary key,
  created_at      timestamptz not null default now(),
  compatible_from integer     not null check (compatible_from between 1 and version)
)`

// idleTransaction is sent at the begin of a transaction that is idle for as long as
// a migration takes. There are two: one holds the lock, the other records a migration
// that runs outside of a transaction. The server's timeouts must not end them. And
// they must hold no snapshot between statements, since CREATE INDEX CONCURRENTLY
// would wait for that for ever: so they are read committed, and the caller must use
// the simple protocol. It reads pg_settings, because transaction_timeout exists only
// since PostgreSQL 17.
var idleTransaction = "set transaction isolation level read committed; " + db.PinLocalSQL() + `;
select set_config(name, '0', true) from pg_catalog.pg_settings
  where name in ('idle_in_transaction_session_timeout', 'transaction_timeout')`

// driver is River's driver with our files and our bookkeeping.
type driver struct {
	*riverpgxv5.Driver
	pool          *pgxpool.Pool
	schema        *db.Schema
	files         fs.FS
	compatible    map[int]int       // by migration: programs work with it if they know this version or a later one
	committedFunc func(version int) // called for each migration when it is done
	logger        *slog.Logger      // gets the warnings for which session a migration waits
}

func newDriver(m *migrator, files fs.FS) *driver {
	return &driver{
		Driver: riverpgxv5.New(m.pool), pool: m.pool, schema: m.schema, files: files,
		compatible: m.compatible, committedFunc: m.committed, logger: m.config.Logger,
	}
}

func (d *driver) GetMigrationFS(string) fs.FS                     { return d.files }
func (d *driver) GetMigrationLines() []string                     { return []string{line} }
func (d *driver) GetMigrationDefaultLines() []string              { return []string{line} }
func (d *driver) GetMigrationTruncateTables(string, int) []string { return nil }

func (d *driver) GetExecutor() riverdriver.Executor {
	return &executor{Executor: d.Driver.GetExecutor(), driver: d, conn: d.pool}
}

func (d *driver) UnwrapExecutor(tx pgx.Tx) riverdriver.ExecutorTx {
	return &executorTx{ExecutorTx: d.Driver.UnwrapExecutor(tx), executor: executor{driver: d, conn: tx}}
}

// executor answers rivermigrate's questions from our table.
type executor struct {
	riverdriver.Executor
	driver *driver
	conn   db.DBTX
}

// TableExists is called for River's own bookkeeping table, in place of which we have ours.
func (e *executor) TableExists(context.Context, *riverdriver.TableExistsParams) (bool, error) {
	return true, nil
}

// ColumnExists is called for River's own bookkeeping table: see TableExists.
func (e *executor) ColumnExists(context.Context, *riverdriver.ColumnExistsParams) (bool, error) {
	return true, nil
}

func (e *executor) Begin(ctx context.Context) (riverdriver.ExecutorTx, error) {
	tx, err := e.driver.pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, idleTransaction, pgx.QueryExecModeSimpleProtocol); err != nil {
		_ = tx.Rollback(ctx) // the first error says more; if this fails, the pool closes the connection
		return nil, err
	}
	return e.driver.UnwrapExecutor(tx), nil
}

func (e *executor) MigrationGetByLine(ctx context.Context, _ *riverdriver.MigrationGetByLineParams) ([]*riverdriver.Migration, error) {
	applied, err := appliedVersions(ctx, e.conn, e.driver.schema)
	if err != nil {
		return nil, err
	}
	migrations := make([]*riverdriver.Migration, 0, len(applied))
	for version, row := range applied {
		migrations = append(migrations, &riverdriver.Migration{CreatedAt: row.at, Line: line, Version: version})
	}
	return migrations, nil
}

func (e *executor) MigrationInsertMany(ctx context.Context, params *riverdriver.MigrationInsertManyParams) ([]*riverdriver.Migration, error) {
	compatibleFrom := make([]int, len(params.Versions))
	for i, version := range params.Versions {
		compatibleFrom[i] = e.driver.compatible[version]
	}
	_, err := e.conn.Exec(ctx, e.driver.schema.SQL("insert into jobq.jobq_migration (version, compatible_from) select * from unnest($1::int[], $2::int[])"),
		params.Versions, compatibleFrom)
	return nil, err // rivermigrate does not look at the rows
}

func (e *executor) MigrationDeleteByLineAndVersionMany(ctx context.Context, params *riverdriver.MigrationDeleteByLineAndVersionManyParams) ([]*riverdriver.Migration, error) {
	_, err := e.conn.Exec(ctx, e.driver.schema.SQL("delete from jobq.jobq_migration where version = any($1::int[])"), params.Versions)
	return nil, err // rivermigrate does not look at the rows
}

// executorTx is an executor inside the transaction of one migration.
type executorTx struct {
	riverdriver.ExecutorTx
	executor executor
	versions []int // recorded or forgotten by this transaction
}

// Exec runs a migration: in the transaction, unless it says that it cannot.
func (e *executorTx) Exec(ctx context.Context, sql string, args ...any) error {
	header, err := parseHeader(sql)
	if err != nil {
		return err
	}
	if header.noTransaction {
		return e.executor.driver.execOutside(ctx, sql)
	}
	return e.executor.driver.watched(ctx, e.executor.conn, func() error { return e.ExecutorTx.Exec(ctx, sql, args...) })
}

// Commit ends one migration.
func (e *executorTx) Commit(ctx context.Context) error {
	if err := e.ExecutorTx.Commit(ctx); err != nil {
		return err
	}
	for _, version := range e.versions {
		e.executor.driver.committedFunc(version)
	}
	return nil
}

// MigrationInsertMany records migrations in the transaction that made them.
func (e *executorTx) MigrationInsertMany(ctx context.Context, params *riverdriver.MigrationInsertManyParams) ([]*riverdriver.Migration, error) {
	e.versions = append(e.versions, params.Versions...)
	return e.executor.MigrationInsertMany(ctx, params)
}

// MigrationDeleteByLineAndVersionMany deletes the records of migrations in the transaction that took
// them back.
func (e *executorTx) MigrationDeleteByLineAndVersionMany(ctx context.Context, params *riverdriver.MigrationDeleteByLineAndVersionManyParams) ([]*riverdriver.Migration, error) {
	e.versions = append(e.versions, params.Versions...)
	return e.executor.MigrationDeleteByLineAndVersionMany(ctx, params)
}

// execOutside runs a migration that cannot run in a transaction.
func (d *driver) execOutside(ctx context.Context, sql string) error {
	pooled, err := d.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	conn := pooled.Hijack()
	defer db.Close(conn, db.CloseTimeout)
	return d.watched(ctx, conn, func() error {
		for _, statement := range strings.SplitAfter(sql, ";\n") {
			if strings.TrimSpace(statement) == "" {
				continue
			}
			if _, err := conn.Exec(ctx, statement, pgx.QueryExecModeSimpleProtocol); err != nil {
				return err
			}
		}
		return nil
	})
}

// appliedVersion is a row of the bookkeeping.
type appliedVersion struct {
	at             time.Time
	compatibleFrom int
}

// appliedVersions reads the bookkeeping; without a table nothing is applied.
func appliedVersions(ctx context.Context, conn db.DBTX, schema *db.Schema) (map[int]appliedVersion, error) {
	applied := make(map[int]appliedVersion)
	var version, compatibleFrom int
	var at time.Time
	rows, err := conn.Query(ctx, schema.SQL("select version, created_at, compatible_from from jobq.jobq_migration"))
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&version, &at, &compatibleFrom}, func() error {
			applied[version] = appliedVersion{at: at.UTC(), compatibleFrom: compatibleFrom}
			return nil
		})
	}
	if db.IsNotMigrated(err) {
		return applied, nil
	}
	return applied, err
}
