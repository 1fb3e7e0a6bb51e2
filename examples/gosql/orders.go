package main

import (
	"context"
	"database/sql"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/jobqsql"
)

// conn is what a repository works on: a *sql.DB, or a transaction of it. In GORM it is called ConnPool.
type conn interface {
	jobqsql.Conn
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Orders is a repository. As a *gorm.DB does, it has the same methods in a transaction and outside of one.
type Orders struct {
	database *sql.DB
	conn     conn
	client   *jobq.Client
}

// Transaction calls the function with a repository that works in one transaction.
func (o *Orders) Transaction(ctx context.Context, do func(tx *Orders) error) error {
	tx, err := o.database.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after the commit it does nothing
	if err := do(&Orders{database: o.database, conn: tx, client: o.client}); err != nil {
		return err
	}
	return tx.Commit()
}

// Take stores an order and the job to send its receipt. Outside of a transaction, jobqsql refuses the job.
func (o *Orders) Take(ctx context.Context, cents int64) error {
	var id int64
	err := o.conn.QueryRowContext(ctx, "insert into public.sql_order (cents) values ($1) returning id", cents).Scan(&id)
	if err != nil {
		return err
	}
	_, err = jobqsql.Enqueue(ctx, o.client, o.conn, SendReceipt{OrderID: id}, nil)
	return err
}
