// Command order is the worker of a shop. An order reserves an item, charges the card, waits
// for the shipment, sends a mail, and a week later another one that asks for a review. If
// the card is declined, or nothing is shipped in time, the order takes back what it has
// done. The worker may be killed at any moment: order.go has the workflow.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/worker"
)

func main() {
	shipWithin := flag.Duration("ship-within", 14*24*time.Hour, "how long the shipment is waited for")
	reviewAfter := flag.Duration("review-after", 7*24*time.Hour, "when the customer is asked for a review")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, shop{shipWithin: *shipWithin, reviewAfter: *reviewAfter}); err != nil {
		stop()
		log.Fatal(err)
	}
}

func run(ctx context.Context, s shop) (err error) {
	if s.pool, err = pgxpool.New(ctx, os.Getenv("DATABASE_URL")); err != nil {
		return err
	}
	defer s.pool.Close()
	client, err := jobq.NewClient(s.pool, nil)
	if err != nil {
		return err
	}
	w, err := worker.New(client, &worker.Config{Queues: map[string]worker.QueueConfig{"orders": {}}})
	if err != nil {
		return err
	}
	if err := worker.Handle(w, s.handle, nil); err != nil {
		return err
	}
	return w.Run(ctx)
}
