// Command order is the worker of a shop. An order reserves an item, leaves the customer
// time to change his mind, charges the card, waits for the shipment and sends a mail. If
// the card is declined, or the shipment does not come in time, it takes back what it has
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
	"golang.org/x/sync/errgroup"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/janitor"
	"github.com/jobq-dev/jobq/worker"
)

func main() {
	pause := flag.Duration("pause", time.Hour, "how long the customer can change his mind")
	shipWithin := flag.Duration("ship-within", 14*24*time.Hour, "how long the shipment is waited for")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, shop{pause: *pause, shipWithin: *shipWithin}); err != nil {
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
	j, err := janitor.New(client, nil)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return w.Run(ctx) })
	group.Go(func() error { return j.Run(ctx) })
	return group.Wait()
}
