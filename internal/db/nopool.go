package db

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Pool is what package monitor and package operator need of a *pgxpool.Pool.
type Pool interface {
	DBTX
	Batcher
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
	Config() *pgxpool.Config
}

// NoPool answers every call with its error, in place of the pool of a client that is nil. So a constructor that
// returns no error need not panic: the first call says what is wrong.
type NoPool struct{ Err error }

// Exec returns the error.
func (p NoPool) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, p.Err
}

// Query returns the error.
func (p NoPool) Query(context.Context, string, ...any) (pgx.Rows, error) { return nil, p.Err }

// QueryRow returns a row with the error.
func (p NoPool) QueryRow(context.Context, string, ...any) pgx.Row { return noRow(p) }

// SendBatch returns results with the error.
func (p NoPool) SendBatch(context.Context, *pgx.Batch) pgx.BatchResults { return noResults{p} }

// BeginTx returns the error.
func (p NoPool) BeginTx(context.Context, pgx.TxOptions) (pgx.Tx, error) { return nil, p.Err }

// Config is of no server.
func (NoPool) Config() *pgxpool.Config { return &pgxpool.Config{ConnConfig: &pgx.ConnConfig{}} }

type noRow struct{ Err error }

func (r noRow) Scan(...any) error { return r.Err }

type noResults struct{ NoPool }

func (r noResults) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, r.Err }
func (r noResults) Query() (pgx.Rows, error)         { return nil, r.Err }
func (r noResults) QueryRow() pgx.Row                { return noRow(r.NoPool) }
func (r noResults) Close() error                     { return r.Err }
func (noResults) Tx() pgx.Tx                         { return nil }
