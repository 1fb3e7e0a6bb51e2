package jobqsql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobq-dev/jobq"
)

// Conn is a transaction of database/sql: *sql.Tx, *sql.Conn, *sqlx.Tx, or GORM's ConnPool in a transaction.
type Conn interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Enqueue adds a job in the transaction: it exists when that commits, and never when it rolls back. Nil
// options mean the defaults. The errors are those of [jobq.Client.Enqueue].
func Enqueue(
	ctx context.Context, client *jobq.Client, tx Conn, args jobq.Args, options *jobq.EnqueueOptions,
) (jobq.Enqueued, error) {
	if err := check(client, tx); err != nil {
		return jobq.Enqueued{}, fmt.Errorf("enqueue: %w", err)
	}
	return client.EnqueueTx(ctx, Tx(tx), args, options)
}

// EnqueueMany adds up to [jobq.EnqueueManyMax] jobs in the transaction, in one statement, and answers in their
// order. The errors are those of [jobq.Client.EnqueueMany].
func EnqueueMany(
	ctx context.Context, client *jobq.Client, tx Conn, jobs []jobq.EnqueueParams,
) ([]jobq.Enqueued, error) {
	if err := check(client, tx); err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	return client.EnqueueManyTx(ctx, Tx(tx), jobs)
}

// Tx makes of a transaction of database/sql what the client's other calls in a transaction take, for example
//
//	state, err := client.CancelTx(ctx, jobqsql.Tx(tx), id)
//
// If it is nil or a *sql.DB, those calls return jobq.ErrInvalid. What Tx returns is for calls of jobq: it reads the
// types that they use, and no others.
func Tx(tx Conn) jobq.DBTX { return adapter{tx} }

// check refuses what is nil, and a pool. A pool is told by a method that only *sql.DB has, and what embeds it.
func check(client *jobq.Client, tx Conn) error {
	if client == nil {
		return fmt.Errorf("%w: the client is nil", jobq.ErrInvalid)
	}
	return checkConn(tx)
}

func checkConn(tx Conn) error {
	if value := reflect.ValueOf(tx); !value.IsValid() || value.Kind() == reflect.Pointer && value.IsNil() {
		return fmt.Errorf("%w: the transaction is nil", jobq.ErrInvalid)
	}
	if _, isPool := tx.(interface{ SetMaxOpenConns(count int) }); isPool {
		return fmt.Errorf("%w: a *sql.DB is in no transaction: give what BeginTx returns", jobq.ErrInvalid)
	}
	return nil
}

// adapter gives database/sql the calls of pgx.
type adapter struct{ conn Conn }

func (a adapter) Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error) {
	if err := checkConn(a.conn); err != nil {
		return pgconn.CommandTag{}, err
	}
	encoded, err := encode(args)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	result, err := a.conn.ExecContext(ctx, query, encoded...)
	if err != nil {
		return pgconn.CommandTag{}, answer(err)
	}
	count, err := result.RowsAffected()
	return pgconn.NewCommandTag(fmt.Sprintf("UPDATE %d", count)), err
}

func (a adapter) Query(ctx context.Context, query string, args ...any) (pgx.Rows, error) {
	if err := checkConn(a.conn); err != nil {
		return failed(err)
	}
	encoded, err := encode(args)
	if err != nil {
		return failed(err)
	}
	found, err := a.conn.QueryContext(ctx, query, encoded...) //nolint:rowserrcheck // rows.Err looks
	if err != nil {
		return failed(answer(err))
	}
	return &rows{found: found, types: pgtype.NewMap()}, nil
}

// failed are rows that have only an error, as pgx returns them.
func failed(err error) (pgx.Rows, error) { return &rows{err: err}, err }

func (a adapter) QueryRow(ctx context.Context, query string, args ...any) pgx.Row {
	found, _ := a.Query(ctx, query, args...) //nolint:errcheck // Scan returns it
	return row{found}
}

// row is the first of some rows.
type row struct{ rows pgx.Rows }

func (r row) Scan(targets ...any) error {
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(targets...); err != nil {
		return err
	}
	r.rows.Close() // the rest of the answer may be an error
	return r.rows.Err()
}

// pqError is an error of lib/pq, which has the fields of the protocol under their letters.
type pqError interface {
	error
	SQLState() string
	Get(field byte) string
}

// answer is an error of the driver, with the *pgconn.PgError that pgx would have returned.
func answer(err error) error {
	var known *pgconn.PgError
	var other pqError
	if err == nil || errors.As(err, &known) || !errors.As(err, &other) {
		return err
	}
	return translated{error: err, as: &pgconn.PgError{
		Severity: other.Get('S'), Code: other.SQLState(), Message: other.Get('M'), Detail: other.Get('D'),
		Hint:  other.Get('H'),
		Where: other.Get('W'), SchemaName: other.Get('s'), TableName: other.Get('t'), ColumnName: other.Get('c'),
		DataTypeName: other.Get('d'), ConstraintName: other.Get('n'),
	}}
}

// translated is an error that is both the driver's and pgx's.
type translated struct {
	error
	as *pgconn.PgError
}

func (t translated) Unwrap() []error { return []error{t.as, t.error} }
