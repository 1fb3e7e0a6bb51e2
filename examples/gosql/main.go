// Command gosql takes orders with database/sql. The order and the job to send its receipt are stored in one
// transaction: once with *sql.Tx in a handler of its own, and once in a repository as programs with sqlx or GORM have it.
// A worker sends the receipts, and each job ends in the transaction that stores its receipt.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/jobqsql"
	"github.com/jobq-dev/jobq/worker"
)

// queue keeps this example apart from other jobs in the database.
const queue = "receipts"

// SendReceipt is the job: its args, and the name of its kind.
type SendReceipt struct {
	OrderID int64 `json:"order_id"`
}

// Kind names the handler.
func (SendReceipt) Kind() string { return "send_receipt_sql" }

// EnqueueDefaults are the options of each such job, whichever part of the program adds it.
func (SendReceipt) EnqueueDefaults() jobq.EnqueueOptions {
	return jobq.EnqueueOptions{Queue: queue, MaxAttempts: 5}
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	database := stdlib.OpenDBFromPool(pool) // or sql.Open of another driver
	defer database.Close()                  //nolint:errcheck // the program ends
	client, err := jobq.NewClient(pool, nil)
	if err != nil {
		return err
	}
	_, err = database.ExecContext(ctx, `
		create table if not exists public.sql_order (id bigint generated always as identity primary key, cents bigint not null);
		create table if not exists public.sql_receipt (order_id bigint primary key)`)
	if err != nil {
		return err
	}
	for cents := range int64(3) {
		if err := takeOrder(ctx, database, client, 100+cents); err != nil {
			return err
		}
	}
	orders := &Orders{database: database, conn: database, client: client}
	for cents := range int64(2) {
		if err := orders.Transaction(ctx, func(tx *Orders) error { return tx.Take(ctx, 200+cents) }); err != nil {
			return err
		}
	}
	return sendAll(ctx, database, client, 5)
}

// takeOrder stores an order and the job to send its receipt: both or neither.
func takeOrder(ctx context.Context, database *sql.DB, client *jobq.Client, cents int64) error {
	tx, err := database.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after the commit it does nothing
	var id int64
	err = tx.QueryRowContext(ctx, "insert into public.sql_order (cents) values ($1) returning id", cents).Scan(&id)
	if err != nil {
		return err
	}
	if _, err := jobqsql.Enqueue(ctx, client, tx, SendReceipt{OrderID: id}, nil); err != nil {
		return err
	}
	return tx.Commit()
}

// sendAll runs a worker until all receipts are sent.
func sendAll(ctx context.Context, database *sql.DB, client *jobq.Client, count int) error {
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	w, err := worker.New(client, &worker.Config{Queues: map[string]worker.QueueConfig{queue: {Slots: 2}}, Logger: logger})
	if err != nil {
		return err
	}
	sent := make(chan struct{}, count)
	err = worker.Handle(w, func(ctx context.Context, job *worker.Job[SendReceipt]) error {
		if err := send(ctx, database, job); err != nil {
			return err
		}
		sent <- struct{}{}
		return nil
	}, nil)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	for range count {
		select {
		case <-sent:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	stop()
	err = <-ended
	fmt.Printf("sent %d receipts, each once\n", count) //nolint:forbidigo // what the example shows
	return err
}

// send stores the receipt and completes the job: both or neither.
func send(ctx context.Context, database *sql.DB, job *worker.Job[SendReceipt]) error {
	tx, err := database.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after the commit it does nothing
	if _, err := tx.ExecContext(ctx, "insert into public.sql_receipt (order_id) values ($1)", job.Args.OrderID); err != nil {
		return err
	}
	if err := job.CompleteTx(ctx, jobqsql.Tx(tx)); err != nil {
		return err
	}
	return tx.Commit()
}
