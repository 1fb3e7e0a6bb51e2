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
// one; each ends with a semicolon at the end of a line.
const noTransaction = "-- jobq:no-transaction"

func isNonTransactional(sql string) bool { return strings.HasPrefix(sql, noTransaction) }

// driver is River's driver with our files and our bookkeeping.
type driver struct {
	*riverpgxv5.Driver
	pool   *pgxpool.Pool
	schema *db.Schema
	files  fs.FS
}

func newDriver(pool *pgxpool.Pool, schema *db.Schema, files fs.FS) *driver {
	return &driver{Driver: riverpgxv5.New(pool), pool: pool, schema: schema, files: files}
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
}

// Exec runs a migration: in the transaction, unless it says that it cannot.
func (e *executorTx) Exec(ctx context.Context, sql string, args ...any) error {
	if !isNonTransactional(sql) {
		return e.ExecutorTx.Exec(ctx, sql, args...)
	}
	for _, statement := range strings.SplitAfter(sql, ";\n") {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		if _, err := e.executor.driver.pool.Exec(ctx, statement, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
	}
	return nil
}

// MigrationInsertMany records migrations in the transaction that made them.
func (e *executorTx) MigrationInsertMany(ctx context.Context, params *riverdriver.MigrationInsertManyParams) ([]*riverdriver.Migration, error) {
	return e.executor.MigrationInsertMany(ctx, params)
}

// MigrationDeleteByLineAndVersionMany forgets them likewise.
func (e *executorTx) MigrationDeleteByLineAndVersionMany(ctx context.Context, params *riverdriver.MigrationDeleteByLineAndVersionManyParams) ([]*riverdriver.Migration, error) {
	return e.executor.MigrationDeleteByLineAndVersionMany(ctx, params)
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
