// Command gotransaction takes orders and charges for them. The job to charge
// is enqueued in the transaction that stores the order, so that there is never
// one without the other; and it is completed in the transaction that stores the
// charge, so that no order is charged twice, whatever dies when.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/worker"
)

// queue keeps this example apart from other jobs in the database.
const queue = "orders"

// ChargeOrder is the job: its args, and the name of its kind.
type ChargeOrder struct {
	OrderID int64 `json:"order_id"`
}

// Kind names the handler.
func (ChargeOrder) Kind() string { return "charge_order" }

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
	_, err = pool.Exec(ctx, `
		create table if not exists public.purchase (id bigint generated always as identity primary key, cents bigint not null);
		create table if not exists public.charge (order_id bigint primary key, cents bigint not null)`)
	if err != nil {
		return err
	}
	client, err := jobq.NewClient(pool, nil)
	if err != nil {
		return err
	}
	const orders = 20
	for i := range orders {
		if err := takeOrder(ctx, client, int64(100+i)); err != nil {
			return err
		}
	}
	return chargeAll(ctx, client, orders)
}

// takeOrder stores an order and the job to charge for it: both or neither.
func takeOrder(ctx context.Context, client *jobq.Client, cents int64) error {
	return pgx.BeginFunc(ctx, client.Pool(), func(tx pgx.Tx) error {
		var id int64
		err := tx.QueryRow(ctx, "insert into public.purchase (cents) values ($1) returning id", cents).Scan(&id)
		if err != nil {
			return err
		}
		_, err = client.EnqueueTx(ctx, tx, ChargeOrder{OrderID: id}, &jobq.EnqueueOptions{
			Queue: queue, MaxAttempts: 5, BackoffBase: 50 * time.Millisecond,
		})
		return err
	})
}

// chargeAll runs a worker until all is charged. The janitor inside starts the retries.
func chargeAll(ctx context.Context, client *jobq.Client, orders int) error {
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	w, err := worker.New(client, &worker.Config{Queues: map[string]worker.QueueConfig{queue: {Slots: 4}}, Logger: logger})
	if err != nil {
		return err
	}
	charged := make(chan struct{}, orders)
	err = worker.Handle(w, func(ctx context.Context, job *worker.Job[ChargeOrder]) error {
		if job.Args.OrderID%5 == 0 && job.Attempt() == 1 {
			return errors.New("the bank does not answer")
		}
		if err := charge(ctx, client.Pool(), job); err != nil {
			return err
		}
		charged <- struct{}{}
		return nil
	}, nil)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	for range orders {
		select {
		case <-charged:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	stop()
	err = <-ended
	fmt.Printf("charged %d orders, each once\n", orders) //nolint:forbidigo // what the example shows
	return err
}

// charge stores the charge and completes the job: both or neither. When the
// lease is lost, CompleteTx fails, and so does the transaction.
func charge(ctx context.Context, pool *pgxpool.Pool, job *worker.Job[ChargeOrder]) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "insert into public.charge (order_id, cents) select id, cents from public.purchase where id = $1", job.Args.OrderID)
		if err != nil {
			return err
		}
		return job.CompleteTx(ctx, tx)
	})
}
