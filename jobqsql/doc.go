// Package jobqsql adds jobs in transactions of database/sql, and so of sqlx and GORM.
//
//	tx, err := database.BeginTx(ctx, nil) // a *sql.DB
//	// … store the order
//	_, err = jobqsql.Enqueue(ctx, client, tx, SendReceipt{Order: 7}, nil)
//	err = tx.Commit() // now the order and the job exist, or neither does
//
// The jobs are added by the same code as with [jobq.Client.EnqueueTx]: the defaults of the kind, the client's
// Codec and its Middleware hold, and values are checked alike. [Tx] makes of the transaction what all other calls of
// the client take whose names end with Tx: GetTx, CancelTx, RequeueTx, EnqueueGraphTx, EmitTx and CompleteTx of a run.
//
// # The client and the transaction
//
// The client needs a pgxpool.Pool of the same database: with stdlib.OpenDBFromPool of pgx, both use the same
// connections. A pool that serves only the calls of this package opens no connection.
//
// What a transaction can be: a *sql.Tx; a *sql.Conn on which the caller has sent BEGIN; a *sqlx.Tx; in GORM,
// tx.Statement.ConnPool of the *gorm.DB that Transaction gives. A *sql.DB is refused with jobq.ErrInvalid, and so are nil and GORM's pool
// outside of a transaction: each statement would take another connection.
//
// # Drivers
//
// Tested with github.com/jackc/pgx/v5/stdlib and github.com/lib/pq. Errors of the database are the same as with pgx:
// jobq.ErrInvalid, jobq.ErrDuplicate and so on, and errors.As finds the *pgconn.PgError as well as the driver's own error.
// Behind a pooler that shares sessions, tell the driver to prepare no statements: default_query_exec_mode=exec
// for pgx, binary_parameters=yes for pq. [jobq.Config].Sessions has no effect here.
package jobqsql
