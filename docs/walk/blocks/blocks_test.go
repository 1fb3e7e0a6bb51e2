// Package blocks_test has the blocks of Go of the documentation, each with what its page takes as given, so that they compile.
// The walk compares the pages with this file. Nothing here runs: examples and tests of the packages run the same calls.
package blocks_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/jobqtest"
	"github.com/jobq-dev/jobq/keyring"
	"github.com/jobq-dev/jobq/tracing"
	"github.com/jobq-dev/jobq/worker"
)

// What pages take as given.
var (
	t        *testing.T
	ctx      context.Context
	pool     *pgxpool.Pool
	client   *jobq.Client
	database *jobqtest.Database
	w        *worker.Worker
	id       int64
)

// Kinds of jobs that pages name.
type (
	Book       struct{ Pages int }
	ImportFile struct{ Rows int }
	Join       struct{}
	Order      struct{}
	Receipt    struct{}
	Refund     struct{ OrderID int64 }
	Render     struct {
		Half, Page int
		Book       int64
	}
	Resize struct {
		Image string
		Width int
	}
	SendReceipt struct{ OrderID int64 }
	Sync        struct{ ID int }
	Thumbnail   struct{}
)

func (Book) Kind() string        { return "" }
func (ImportFile) Kind() string  { return "" }
func (Join) Kind() string        { return "" }
func (Order) Kind() string       { return "" }
func (Refund) Kind() string      { return "" }
func (Render) Kind() string      { return "" }
func (Resize) Kind() string      { return "" }
func (SendReceipt) Kind() string { return "" }
func (Sync) Kind() string        { return "" }

// docs/testing.md
var _ = func() {
	importFile := func(context.Context, *worker.Job[ImportFile]) error { return nil }
	test := worker.NewTestJob(ImportFile{Rows: 4}, &worker.TestJobOptions{Attempt: 2})
	require.NoError(t, importFile(ctx, test.Job))
	require.Equal(t, float32(100), test.Progress().Percent)
}

var _ = func() {
	database := jobqtest.New(t, nil)
	_ = database
}

const hashOfMyMigrations = ""

func migrateMyTables(context.Context, *pgxpool.Pool) error { return nil }

func newDatabase(t *testing.T) *jobqtest.Database {
	t.Helper()
	return jobqtest.New(t, &jobqtest.Options{Version: hashOfMyMigrations, Prepare: func(ctx context.Context, pool *pgxpool.Pool) error {
		return migrateMyTables(ctx, pool)
	}})
}

var _ = newDatabase

var _ = func() {
	placeOrder := func(context.Context, *jobq.Client, int) error { return nil }
	enqueued := jobqtest.Record(t, database.Client)
	require.NoError(t, placeOrder(ctx, database.Client, 7))

	job := jobqtest.RequireOne(enqueued, jobqtest.Equal(SendReceipt{OrderID: 7}))
	require.Equal(t, "mail", job.Queue)
	jobqtest.RequireNone(enqueued, func(args Refund) bool { return args.OrderID == 7 })
}

var _ = func() {
	placeOrder := func(context.Context, *jobq.Client, pgx.Tx, int) error { return nil }
	tx, err := pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(ctx) }()
	enqueued := jobqtest.RecordTx(t, client, tx)
	require.NoError(t, placeOrder(ctx, client, tx, 7))
	jobqtest.RequireOne(enqueued, jobqtest.Equal(SendReceipt{OrderID: 7}))
}

var _ = func() {
	sendReceipt := func(context.Context, *worker.Job[SendReceipt]) error { return nil }
	counts := jobqtest.RunDue(t, database.Client, func(w *worker.Worker) error {
		return worker.Handle(w, sendReceipt, nil)
	}, nil)
	require.EqualValues(t, 1, counts.Completed)
}

var _ = func() {
	var handle func(*worker.Worker) error
	jobqtest.RunDue(t, database.Client, handle, &jobqtest.RunOptions{Ahead: time.Hour}) // with the retries
}

// docs/encryption.md
var _ = func() error {
	keys, err := keyring.Load("/etc/jobq/keys") // package github.com/jobq-dev/jobq/keyring
	if err != nil {
		return err
	}
	client, err := jobq.NewClient(pool, &jobq.Config{Codec: keys})
	if err != nil {
		return err
	}
	w, err := worker.New(client, nil)
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// docs/tracing.md
var _ = func() error {
	traces := tracing.New(nil)
	client, err := jobq.NewClient(pool, &jobq.Config{Middleware: []jobq.EnqueueMiddleware{traces.Enqueue}})
	if err != nil {
		return err
	}
	w, err := worker.New(client, &worker.Config{Middleware: []worker.Middleware{traces.Run}})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// docs/steps.md
var _ = func() error {
	charge := func(context.Context, Order, int64) (Receipt, error) { return Receipt{}, nil }
	mail := func(context.Context, Receipt) error { return nil }
	err := worker.Handle(w, func(ctx context.Context, job *worker.Job[Order]) error {
		receipt, err := jobq.Step(ctx, "charge", func(ctx context.Context) (Receipt, error) {
			return charge(ctx, job.Args, job.ID()) // a later run does not call this again: it gets what is stored
		})
		if err != nil {
			return err
		}
		if err := jobq.Sleep(ctx, "before the mail", 24*time.Hour); err != nil {
			return err // the job holds no slot now, and runs again in a day
		}
		_, err = jobq.Step(ctx, "mail", func(ctx context.Context) (any, error) { return nil, mail(ctx, receipt) })
		return err
	}, nil)
	return err
}

var _ = func() error {
	bind := func(context.Context, []jobq.Ended) error { return nil }
	err := worker.Handle(w, func(ctx context.Context, job *worker.Job[Book]) error {
		pages := make([]jobq.EnqueueParams, job.Args.Pages)
		for i := range pages {
			pages[i].Args = Render{Book: job.ID(), Page: i}
		}
		spawned, err := jobq.SpawnMany(ctx, "render", pages) // one statement; the same jobs in each run
		if err != nil {
			return err
		}
		ids := make([]int64, len(spawned))
		for i := range spawned {
			ids[i] = spawned[i].ID
		}
		ended, err := jobq.AwaitMany(ctx, "rendered", ids) // one wait, until the last has ended
		if err != nil {
			return err
		}
		return bind(ctx, ended)
	}, nil)
	return err
}

// docs/dependencies.md
var _ = func() (map[string]jobq.Enqueued, error) {
	var graph jobq.Graph
	graph.Add("left", Render{Half: 1}, nil)
	graph.Add("right", Render{Half: 2}, nil)
	graph.Add("both", Join{}, nil, "left", "right")
	jobs, err := client.EnqueueGraph(ctx, &graph) // or EnqueueGraphTx, in your transaction
	return jobs, err
}

// docs/results.md
var _ = func() (Thumbnail, error) {
	result, err := jobq.WaitResult[Thumbnail](ctx, client, id) // Go
	return result, err
}

var _ = func() (jobq.Ended, error) {
	ended, err := client.EnqueueAndWait(ctx, Resize{"cat.jpg", 640}, nil)
	return ended, err
}

var _ = func() (jobq.Ended, error) {
	ended, err := client.Wait(ctx, id)
	return ended, err
}

// docs/unique.md
var _ = func() (jobq.Enqueued, error) {
	added, err := client.Enqueue(ctx, Sync{ID: 7}, &jobq.EnqueueOptions{UniqueBy: []string{"id"}, UniqueWindow: time.Hour})
	return added, err
}

// docs/go.md
var _ = func() *worker.Config {
	config := &worker.Config{OnFailure: func(ctx context.Context, failure worker.Failure) {
		if !failure.Final { // it is tried again
			return
		}
		slog.ErrorContext(ctx, "job failed", "job", failure.Run.ID(), "error", failure.Err, "panic", failure.Panic != nil)
	}}
	return config
}

// docs/go.md
var _ = func(tx pgx.Tx) (jobq.State, error) {
	state, err := client.CancelByUniqueKeyTx(ctx, tx, "remind", "invoice 7")
	if errors.Is(err, jobq.ErrNotFound) { // it has run already, or was never added
		err = nil
	}
	return state, err
}
