package keyring_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/keyring"
	"github.com/jobq-dev/jobq/worker"
)

// Greet is a kind of job whose args nobody else is to read.
type Greet struct {
	Name string `json:"name"`
}

// Kind names the handler.
func (Greet) Kind() string { return "greet" }

// The database has encrypted args and results, and handlers have plain ones.
func ExampleKeyring() {
	pool, done := pgtest.ExamplePool() // a program has pgxpool.New
	defer done()
	key, err := keyring.NewKey("k1") // a program has keyring.Load("/etc/jobq/keys")
	if err != nil {
		fmt.Println(err)
		return
	}
	keys, err := keyring.New(key)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := greet(pool, keys); err != nil {
		fmt.Println(err)
	}
	// Output:
	// the handler has ann
	// {"greeting":"hello ann"}
	// encrypted with k1: true
}

func greet(pool *pgxpool.Pool, keys *keyring.Keyring) error {
	ctx := context.Background()
	client, err := jobq.NewClient(pool, &jobq.Config{Codec: keys})
	if err != nil {
		return err
	}
	added, err := client.Enqueue(ctx, Greet{"ann"}, nil)
	if err != nil {
		return err
	}
	w, err := worker.New(client, &worker.Config{Batch: worker.Batch{ExitWhenEmpty: true}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	if err := worker.Handle(w, func(_ context.Context, job *worker.Job[Greet]) error {
		fmt.Println("the handler has", job.Args.Name)
		return job.SetResult(map[string]string{"greeting": "hello " + job.Args.Name})
	}, nil); err != nil {
		return err
	}
	if err := w.Run(ctx); err != nil {
		return err
	}
	job, err := client.Get(ctx, added.ID)
	if err != nil {
		return err
	}
	fmt.Println(string(job.Result))

	without, err := jobq.NewClient(pool, nil)
	if err != nil {
		return err
	}
	stored, err := without.Get(ctx, added.ID)
	if err != nil {
		return err
	}
	name, encrypted := jobq.EncryptedWith(stored.Args)
	fmt.Printf("encrypted with %s: %t\n", name, encrypted && !strings.Contains(string(stored.Args), "ann"))
	return nil
}
