// Command crashtest is a worker that charges for orders. A worker that is killed after
// the charge and before the job is completed runs the job again: without -mended the
// order is then charged twice. `jobq crash-test` finds that; see run.sh.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/worker"
)

// Charge is the job: its args, and the name of its kind.
type Charge struct {
	OrderID int64 `json:"order_id"`
}

// Kind names the handler.
func (Charge) Kind() string { return "charge" }

func main() {
	mended := flag.Bool("mended", false, "charge and complete the job in one transaction")
	setup := flag.Bool("setup", false, "make the table, and end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *mended, *setup); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, mended, setup bool) error {
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	if setup {
		_, err := pool.Exec(ctx, "create table if not exists public.charged (job_id bigint not null, order_id bigint not null)")
		return err
	}
	client, err := jobq.NewClient(pool, nil)
	if err != nil {
		return err
	}
	w, err := worker.New(client, nil)
	if err != nil {
		return err
	}
	handle := charge
	if mended {
		handle = chargeOnce
	}
	err = worker.Handle(w, func(ctx context.Context, job *worker.Job[Charge]) error { return handle(ctx, pool, job) }, nil)
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

const insertCharge = "insert into public.charged (job_id, order_id) values ($1, $2)"

// charge has its effect in a transaction of its own. When it returns, the charge is
// stored, and that the job has ended is not: between the two, the worker may die.
func charge(ctx context.Context, pool *pgxpool.Pool, job *worker.Job[Charge]) error {
	_, err := pool.Exec(ctx, insertCharge, job.ID(), job.Args.OrderID)
	return err
}

// chargeOnce stores the charge and the end of the job together: both or neither.
func chargeOnce(ctx context.Context, pool *pgxpool.Pool, job *worker.Job[Charge]) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, insertCharge, job.ID(), job.Args.OrderID); err != nil {
			return err
		}
		return job.CompleteTx(ctx, tx)
	})
}
