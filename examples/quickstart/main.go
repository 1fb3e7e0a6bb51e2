// Command quickstart adds a job in a transaction, and runs it in the same process. Its
// middle is the example of the README. It ends when it is told to, for instance by Ctrl-C.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/worker"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err == nil {
		defer pool.Close()
		err = run(ctx, pool)
	}
	if err != nil {
		stop()
		log.Fatal(err)
	}
}

type sendReceipt struct{ OrderID int64 } // the args of a job

func (sendReceipt) Kind() string { return "send_receipt" }

func run(ctx context.Context, pool *pgxpool.Pool) error {
	client, err := jobq.NewClient(pool, nil)
	if err != nil {
		return err
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { // the job exists if this transaction commits
		_, err := client.EnqueueTx(ctx, tx, sendReceipt{OrderID: 7}, nil)
		return err
	})
	if err != nil {
		return err
	}
	w, err := worker.New(client, nil)
	if err != nil {
		return err
	}
	err = worker.Handle(w, func(_ context.Context, job *worker.Job[sendReceipt]) error {
		log.Printf("send the receipt of order %d, once for job %d", job.Args.OrderID, job.ID())
		return nil // an error runs the job again later
	}, nil)
	if err != nil {
		return err
	}
	return w.Run(ctx) // with a janitor, which recovers the jobs of dead workers
}
