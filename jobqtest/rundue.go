package jobqtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/sleep"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/worker"
)

const (
	// runTimeout is the longest time of a RunDue. It is shorter than the 10 minutes after
	// which go test ends a test, without a word about the reason.
	runTimeout = 5 * time.Minute
	// promoteCount is how many due jobs one statement makes available.
	promoteCount = 1000
	// settleCount is how many jobs that wait for others one statement handles, and
	// settleEvery the pause before the next one.
	settleCount = 500
	settleEvery = 10 * time.Millisecond
	// pageSize is how many jobs are listed and edited in one go.
	pageSize = 1000
)

// RunOptions say what RunDue runs. The zero value, and nil, mean the defaults.
type RunOptions struct {
	// Ahead also runs the jobs that are due within that time, as if they were due now:
	// jobs that are scheduled, to be retried or snoozed. Default 0: only what is due now.
	Ahead time.Duration
	// Worker is how the worker runs. Default: all queues that have jobs, with one slot
	// each, and a logger that writes nothing. RunDue always sets Batch.ExitWhenEmpty,
	// Batch.LeaveDue, PollOnly, Reconcile and NoJanitor: the worker ends when nothing is left,
	// does not listen, and recovers no jobs.
	Worker worker.Config
}

// RunDue runs the jobs that are due with a worker, and returns when all have ended, with
// what the worker has counted. handle adds the handlers; jobs of other kinds stay. RunDue
// also runs jobs that are enqueued meanwhile, and jobs that wait for others, once these are
// over. If such a job is in a queue that had none before, RunDue starts another worker, and
// calls handle for it too. A job that is to run later, such as after a failure, is left for
// the next call.
//
// RunDue fails the test if the worker cannot run. A failed run does not fail the test: look
// at Counts.Failed, and at Counts.Unreadable if the client has no Codec for encrypted jobs.
func RunDue(tb TB, client *jobq.Client, handle func(w *worker.Worker) error, options *RunOptions) worker.Counts {
	tb.Helper()
	if options == nil {
		options = &RunOptions{}
	}
	ctx, cancel := context.WithTimeout(context.Background(), runTimeout)
	defer cancel()
	if err := makeDue(ctx, client, options.Ahead); err != nil {
		tb.Fatalf("jobqtest: make jobs available: %v", err)
	}
	var total worker.Counts
	queues := make(map[string]worker.QueueConfig)
	for {
		if options.Worker.Queues != nil {
			queues = options.Worker.Queues
		} else if isMore, err := addQueuesWithWork(ctx, client, queues); err != nil {
			tb.Fatalf("jobqtest: queues with jobs: %v", err)
		} else if !isMore {
			return total
		}
		counts, err := runWorker(ctx, client, handle, options.Worker, queues)
		if err != nil {
			tb.Fatalf("jobqtest: %v", err)
		}
		if ctx.Err() != nil {
			tb.Fatalf("jobqtest: jobs still run or wait after %s", runTimeout)
		}
		total = sum(total, counts)
		if err := settleAll(ctx, client); err != nil {
			tb.Fatalf("jobqtest: jobs that wait for others: %v", err)
		}
		if options.Worker.Queues != nil {
			return total
		}
	}
}

// runWorker runs a worker on the queues until nothing is left.
func runWorker(
	ctx context.Context, client *jobq.Client, handle func(w *worker.Worker) error, config worker.Config, queues map[string]worker.QueueConfig,
) (worker.Counts, error) {
	config.Queues = queues
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	config.Batch.ExitWhenEmpty, config.Batch.LeaveDue, config.PollOnly, config.Reconcile = true, true, true, worker.ReconcileOff
	config.NoJanitor, config.Janitor = true, nil
	w, err := worker.New(client, &config)
	if err != nil {
		return worker.Counts{}, err
	}
	if err := handle(w); err != nil {
		return worker.Counts{}, fmt.Errorf("handlers: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	settled := make(chan error, 1)
	go func() {
		defer cancel() // if settle fails, the worker would wait for it for ever
		settled <- settle(ctx, client)
	}()
	err = w.Run(ctx)
	cancel()
	if err = errors.Join(err, <-settled); err != nil {
		return worker.Counts{}, fmt.Errorf("run what is due: %w", err)
	}
	return w.Counts(), nil
}

// settle does what a janitor does for jobs that wait for others, until the context ends.
func settle(ctx context.Context, client *jobq.Client) error {
	for ctx.Err() == nil {
		more, err := settleStep(ctx, client)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if !more {
			_ = sleep.For(ctx, settleEvery)
		}
	}
	return nil
}

// settleAll does the same until nothing is left to do now.
func settleAll(ctx context.Context, client *jobq.Client) error {
	for more := true; more; {
		var err error
		if more, err = settleStep(ctx, client); err != nil {
			return err
		}
	}
	return nil
}

// settleStep is one step of it, and says whether there may be more to do.
func settleStep(ctx context.Context, client *jobq.Client) (more bool, err error) {
	schema := db.SchemaOf(client.Schema(), client.Sessions())
	err = pgx.BeginTxFunc(ctx, client.Pool(), pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		row, err := schema.Queries(tx).DependencyStep(ctx, db.DueFrom(time.Time{}), settleCount)
		more = row.More
		return err
	})
	return more, err
}

func sum(a, b worker.Counts) worker.Counts {
	return worker.Counts{
		Claimed: a.Claimed + b.Claimed, Completed: a.Completed + b.Completed, Failed: a.Failed + b.Failed, Released: a.Released + b.Released,
		Snoozed: a.Snoozed + b.Snoozed, Unreadable: a.Unreadable + b.Unreadable, Cancelled: a.Cancelled + b.Cancelled, Lost: a.Lost + b.Lost,
	}
}

// makeDue makes due jobs available, as a janitor does. First it makes jobs due now that would
// be due within ahead.
func makeDue(ctx context.Context, client *jobq.Client, ahead time.Duration) error {
	if ahead > 0 {
		if err := pullForward(ctx, client, ahead); err != nil {
			return err
		}
	}
	if err := settleAll(ctx, client); err != nil {
		return err
	}
	schema := db.SchemaOf(client.Schema(), client.Sessions())
	for last := (db.DuePlace{}); ; {
		promoted, err := schema.Promote(ctx, client.Pool(), last, promoteCount)
		if err != nil || promoted.Due < promoteCount {
			return err
		}
		last = promoted.Last
	}
}

func pullForward(ctx context.Context, client *jobq.Client, ahead time.Duration) error {
	var now time.Time
	if err := client.Pool().QueryRow(ctx, "select now()").Scan(&now); err != nil {
		return err
	}
	editor := operator.New(client, "jobqtest")
	for {
		page, err := client.List(ctx, jobq.Filter{States: []jobq.State{jobq.StateScheduled}, Sort: jobq.SortDue, Limit: pageSize})
		if err != nil {
			return err
		}
		var targets []operator.Target
		for _, job := range page.Jobs {
			if job.RunAt.Before(now.Add(ahead)) {
				targets = append(targets, operator.Target{ID: job.ID})
			}
		}
		if len(targets) == 0 {
			return nil
		}
		edited, err := editor.Edit(ctx, operator.JobChange{RunAt: &now}, targets...)
		if err != nil {
			return err
		}
		for _, job := range edited.Jobs {
			if err := job.Err(); err != nil {
				return err
			}
		}
	}
}

// addQueuesWithWork adds the queues that have available jobs, with one slot each, and
// says whether there is one that was not among them.
func addQueuesWithWork(ctx context.Context, client *jobq.Client, queues map[string]worker.QueueConfig) (isMore bool, err error) {
	all, err := monitor.New(client).Queues(ctx)
	for _, queue := range all {
		if _, known := queues[queue.Name]; queue.Available > 0 && !known {
			queues[queue.Name] = worker.QueueConfig{Slots: 1}
			isMore = true
		}
	}
	return isMore, err
}
