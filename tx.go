package jobq

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// DBTX is where the calls work whose names end with Tx: the caller's transaction. It is a pgx.Tx, or a *pgx.Conn
// or a *pgxpool.Conn on which the caller has sent BEGIN. For a transaction of database/sql, sqlx or GORM, see
// package jobqsql.
//
// A connection that is in no transaction fits too. Each call is one statement there, or one for each thing that it
// looks up, and is stored when it returns. It is whole or not at all, as the same call without Tx, but is not sent again
// after a deadlock. That is of use for a connection with a role or settings of its own.
//
// Nil is refused with ErrInvalid, and so is a *pgxpool.Pool: what it does can never be part of the caller's
// transaction.
type DBTX interface {
	Exec(ctx context.Context, sql string, arguments ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, arguments ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, arguments ...any) pgx.Row
}

// in are the client's statements in the caller's transaction.
func (c *Client) in(tx DBTX, operation string) (*db.Queries, error) {
	if err := db.CheckTx(tx); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", operation, ErrInvalid, err)
	}
	return c.schema.Queries(tx), nil
}

// GetTx is [Client.Get] in the caller's transaction: it also sees the jobs that the transaction has added.
func (c *Client) GetTx(ctx context.Context, tx DBTX, id int64) (*Job, error) {
	queries, err := c.in(tx, fmt.Sprintf("get job %d", id))
	if err != nil {
		return nil, err
	}
	return c.get(ctx, queries, id)
}

// CancelTx is [Client.Cancel] in the caller's transaction: the job is cancelled, or its worker is told to stop
// it, when that commits. Until it ends, the job cannot be claimed or changed by others: keep it short.
//
// The transaction goes on after ErrNotFound. After any other error it must be rolled back.
func (c *Client) CancelTx(ctx context.Context, tx DBTX, id int64) (State, error) {
	operation := fmt.Sprintf("cancel job %d", id)
	queries, err := c.in(tx, operation)
	if err != nil {
		return "", err
	}
	state, err := queries.JobCancel(ctx, id)
	return c.stateAfter(operation, state, dberror.NeedRole(db.RoleAdmin, err))
}

// RequeueTx makes a job that has ended, or that is waiting or scheduled, available now, in the caller's transaction.
// It has one more attempt at least. RequeueTx returns the state afterwards: StateAvailable; or StateScheduled for a job
// whose runs have crashed their workers, and which a janitor starts alone.
//
// ErrNotFound: there is no such job; the transaction goes on. ErrConflict: it is running, or its args are gone.
// ErrDuplicate: another job holds its unique key. After these, the transaction must be rolled back.
//
// It is for applications, and not recorded in the audit. A person requeues with package operator, which
// records it and can undo it.
func (c *Client) RequeueTx(ctx context.Context, tx DBTX, id int64) (State, error) {
	operation := fmt.Sprintf("requeue job %d", id)
	queries, err := c.in(tx, operation)
	if err != nil {
		return "", err
	}
	state, err := queries.JobRequeue(ctx, id)
	return c.stateAfter(operation, state, dberror.NeedRole(db.RoleAdmin, err))
}

// stateAfter is the state of a job after a statement that answers with none if there is no such job.
func (c *Client) stateAfter(operation, state string, err error) (State, error) {
	switch {
	case err != nil:
		return "", dberror.Wrap(c.schema, operation, err)
	case state == "":
		return "", fmt.Errorf("%s: %w", operation, ErrNotFound)
	}
	return State(state), nil
}
