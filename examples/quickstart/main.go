// Command quickstart adds a job in a transaction, and runs it in the same process. It is
// the example of the README. It ends when it is told to, for instance by Ctrl-C.
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

// SendReceipt is the job: its args, and the name of its kind.
type SendReceipt struct{ OrderID int64 }

// Kind names the handler.
func (SendReceipt) Kind() string { return "send_receipt" }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		stop()
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	client, err := jobq.NewClient(pool, nil)
	if err != nil {
		return err
	}
	// The job exists once this transaction has committed, and not if it is rolled back.
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := client.EnqueueTx(ctx, tx, SendReceipt{OrderID: 7}, nil)
		return err
	})
	if err != nil {
		return err
	}

	w, err := worker.New(client, &worker.Config{Queues: map[string]worker.QueueConfig{"default": {Slots: 20}}})
	if err != nil {
		return err
	}
	err = worker.Handle(w, func(_ context.Context, job *worker.Job[SendReceipt]) error {
		// A job can run twice. Its id is the same each time: use it to send only once.
		log.Printf("send the receipt of order %d, once for job %d", job.Args.OrderID, job.ID())
		return nil // an error runs the job again later
	}, nil)
	if err != nil {
		return err
	}
	return w.Run(ctx) // with a janitor, which recovers jobs of dead workers, and starts scheduled ones and retries
}
