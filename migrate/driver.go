package migrate

import (
	"context"
	"io/fs"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/jobq-dev/jobq/internal/db"
)

// createTable is the bookkeeping: a row per applied migration.
const createTable = `create table if not exists jobq.jobq_migration (
  version    integer     not null primary key,
  created_at timestamptz not null default now()
)`

// noTransaction is the first line of a migration that cannot run in a
// transaction, such as CREATE INDEX CONCURRENTLY. Its statements run one by
// one in a session of their own, which ends with it, so that a `set` holds for
// those after it and for nothing else; each ends with a semicolon at the end of
// a line. What fails halfway stays half done and is run again as a whole, so it
// begins by removing what it makes: an index that could not be built to its end
// is there, but invalid.
const noTransaction = "-- jobq:no-transaction"

// idleTransaction begins a transaction that will be idle for as long as a
// migration takes: the one that holds the lock, and the one that will record
// what a migration does outside of it. The server's settings must not end
// them, and with them the lock or the record; and they must hold no snapshot
// between statements, for which CREATE INDEX CONCURRENTLY would wait for ever:
// hence read committed, and the simple protocol for whoever sends this.
// Asked of pg_settings, because transaction_timeout came with PostgreSQL 17.
const idleTransaction = `set transaction isolation level read committed;
select set_config(name, '0', true) from pg_catalog.pg_settings
  where name in ('idle_in_transaction_session_timeout', 'transaction_timeout')`

func isNonTransactional(sql string) bool { return strings.HasPrefix(sql, noTransaction) }

// driver is River's driver with our files and our bookkeeping.
type driver struct {
	*riverpgxv5.Driver
	pool          *pgxpool.Pool
	schema        *db.Schema
	files         fs.FS
	committedFunc func(version int) // told of each migration when it is done
}

func newDriver(pool *pgxpool.Pool, schema *db.Schema, files fs.FS, committedFunc func(version int)) *driver {
	return &driver{Driver: riverpgxv5.New(pool), pool: pool, schema: schema, files: files, committedFunc: committedFunc}
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

// TableExists is asked about River's own bookkeeping table.
func (e *executor) TableExists(context.Context, *riverdriver.TableExistsParams) (bool, error) {
	return true, nil
}

// ColumnExists is asked about River's own bookkeeping table.
func (e *executor) ColumnExists(context.Context, *riverdriver.ColumnExistsParams) (bool, error) {
	return true, nil
}

func (e *executor) Begin(ctx context.Context) (riverdriver.ExecutorTx, error) {
	tx, err := e.driver.pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, idleTransaction, pgx.QueryExecModeSimpleProtocol); err != nil {
		_ = tx.Rollback(ctx) // the first error says more; the pool closes the connection
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
	for version, at := range applied {
		migrations = append(migrations, &riverdriver.Migration{CreatedAt: at, Line: line, Version: version})
	}
	return migrations, nil
}

func (e *executor) MigrationInsertMany(ctx context.Context, params *riverdriver.MigrationInsertManyParams) ([]*riverdriver.Migration, error) {
	_, err := e.conn.Exec(ctx, e.driver.schema.SQL("insert into jobq.jobq_migration (version) select unnest($1::int[])"), params.Versions)
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
	if isNonTransactional(sql) {
		return e.executor.driver.execOutside(ctx, sql)
	}
	return e.ExecutorTx.Exec(ctx, sql, args...)
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

// MigrationDeleteByLineAndVersionMany forgets them likewise.
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
	for _, statement := range strings.SplitAfter(sql, ";\n") {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		if _, err := conn.Exec(ctx, statement, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
	}
	return nil
}

// appliedVersions reads the bookkeeping; without a table nothing is applied.
func appliedVersions(ctx context.Context, conn db.DBTX, schema *db.Schema) (map[int]time.Time, error) {
	applied := make(map[int]time.Time)
	var version int
	var at time.Time
	rows, err := conn.Query(ctx, schema.SQL("select version, created_at from jobq.jobq_migration"))
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&version, &at}, func() error {
			applied[version] = at.UTC()
			return nil
		})
	}
	if db.IsNotMigrated(err) {
		return applied, nil
	}
	return applied, err
}
