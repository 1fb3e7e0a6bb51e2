package db

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// schemaDBTX sends the generated queries, rendered for the schema.
type schemaDBTX struct{ sender }

func (d schemaDBTX) Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error) {
	return d.sender.Exec(ctx, d.schema.SQL(query), args...)
}

func (d schemaDBTX) Query(ctx context.Context, query string, args ...any) (pgx.Rows, error) {
	return d.sender.Query(ctx, d.schema.SQL(query), args...)
}

func (d schemaDBTX) QueryRow(ctx context.Context, query string, args ...any) pgx.Row {
	return d.sender.QueryRow(ctx, d.schema.SQL(query), args...)
}

// sender sends statements without preparing them when sessions are known to be shared. When
// that is not known yet, the first statement that fails because of another client's prepared
// statement makes it known. On a pool, that statement is sent again, once: the server has not
// executed it. In a transaction, which has failed, the caller gets the error, and its next try
// prepares nothing.
type sender struct {
	schema *Schema
	conn   DBTX
}

func (s sender) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	tag, err := s.conn.Exec(ctx, sql, s.safe(args)...)
	if s.again(err) {
		return s.conn.Exec(ctx, sql, s.safe(args)...)
	}
	return tag, err
}

func (s sender) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	rows, err := s.query(ctx, sql, args)
	if err == nil && !s.schema.shared.Load() { // the error may come only with the first row
		begun := &begunRows{Rows: rows, unread: rows.Next()}
		rows, err = begun, begun.Err()
		if !s.again(err) {
			return rows, nil // whose reader gets the error, as without this look
		}
	}
	if s.again(err) {
		return s.query(ctx, sql, args)
	}
	return rows, err
}

func (s sender) query(ctx context.Context, sql string, args []any) (pgx.Rows, error) {
	rows, err := s.conn.Query(ctx, sql, s.safe(args)...)
	return oddRow{rows}, err
}

func (s sender) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return row{sender: s, ctx: ctx, sql: sql, args: args}
}

// safe adds to the arguments the execution mode that prepares nothing, if sessions are shared. It
// replaces the mode of the application's pool, even if that would be safe as well.
func (s sender) safe(args []any) []any {
	if !s.schema.shared.Load() {
		return args
	}
	return append([]any{pgx.QueryExecModeCacheDescribe}, args...)
}

// again notes whether the error shows that sessions are shared, and says whether to send the
// statement once more.
func (s sender) again(err error) bool {
	if !s.schema.NoteShared(err) {
		return false
	}
	_, pooled := s.conn.(*pgxpool.Pool)
	return pooled
}

// row is one row to be asked for.
type row struct {
	sender sender
	ctx    context.Context // of QueryRow, which Scan is a part of
	sql    string
	args   []any
}

func (r row) Scan(targets ...any) error {
	targets = tolerant(targets)
	err := r.sender.conn.QueryRow(r.ctx, r.sql, r.sender.safe(r.args)...).Scan(targets...)
	if r.sender.again(err) {
		return r.sender.conn.QueryRow(r.ctx, r.sql, r.sender.safe(r.args)...).Scan(targets...)
	}
	return err
}

// begunRows are rows of which Next was called once already.
type begunRows struct {
	pgx.Rows
	unread bool // the row that it found
}

func (r *begunRows) Next() bool {
	if r.unread {
		r.unread = false
		return true
	}
	return r.Rows.Next()
}
