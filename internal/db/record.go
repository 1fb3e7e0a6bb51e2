package db

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Queue adds a generated query to a batch. The generated function knows the
// order of the parameters, which is sqlc's and changes with the text, so it is
// called on a connection that only writes down what it is given.
func (s *Schema) Queue(batch *pgx.Batch, call func(*Queries)) *pgx.QueuedQuery {
	r := recorder{schema: s}
	call(New(&r))
	return batch.Queue(r.sql, r.args...)
}

// recorder is the connection of Queue.
type recorder struct {
	schema *Schema
	sql    string
	args   []any
}

// errRecorded ends the generated function, whose caller ignores it.
var errRecorded = errors.New("recorded")

func (r *recorder) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	r.sql, r.args = r.schema.SQL(sql), args
	return pgconn.CommandTag{}, errRecorded
}

func (r *recorder) Query(_ context.Context, sql string, args ...any) (pgx.Rows, error) {
	r.sql, r.args = r.schema.SQL(sql), args
	return nil, errRecorded
}

// QueryRow is for :one queries, which no batch of ours has.
func (r *recorder) QueryRow(context.Context, string, ...any) pgx.Row { return nil }
