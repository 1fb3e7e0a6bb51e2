// Command start is the Go program of the tutorial, docs/start.md: it signs up a customer,
// and greets whoever has signed up. It ends when it is told to, for instance by Ctrl-C.
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/worker"
)

// Greet is the job: its args as JSON, and the name of its kind.
type Greet struct {
	Name string `json:"name"`
}

// Kind names the handler.
func (Greet) Kind() string { return "greet" }

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
	if err := signUp(ctx, client, "Dora"); err != nil {
		return err
	}

	w, err := worker.New(client, nil) // 10 jobs of the queue "default" at once
	if err != nil {
		return err
	}
	if err := worker.Handle(w, greet, nil); err != nil {
		return err
	}
	return w.Run(ctx) // with a janitor, which recovers jobs of dead workers, and starts scheduled ones and retries
}

// signUp stores a customer and adds the job that greets them: both, or neither.
func signUp(ctx context.Context, client *jobq.Client, name string) error {
	return pgx.BeginFunc(ctx, client.Pool(), func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "insert into customer (name) values ($1)", name); err != nil {
			return err
		}
		_, err := client.EnqueueTx(ctx, tx, Greet{Name: name}, nil)
		return err
	})
}

// greet runs a job. An error that it returns is a failed attempt, which is tried again later.
func greet(_ context.Context, job *worker.Job[Greet]) error {
	if job.Args.Name == "" {
		return worker.Discard(errors.New("args have no name")) // fails for good: a retry would not help
	}
	log.Printf("hello, %s (job %d)", job.Args.Name, job.ID())
	return nil
}
