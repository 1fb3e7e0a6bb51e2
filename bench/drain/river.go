package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverWorker counts jobs.
type riverWorker struct {
	river.WorkerDefaults[noop]
	ran  *atomic.Int64
	want int64
	done chan struct{}
}

func (w *riverWorker) Work(context.Context, *river.Job[noop]) error {
	if w.ran.Add(1) == w.want {
		close(w.done)
	}
	return nil
}

// riverConfig is River with a number of workers; tuned, it fetches almost
// without pause.
func riverConfig(workers int, tuned bool) *river.Config {
	config := &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}}, Logger: quiet,
	}
	if tuned { // as River's own `river bench` does
		config.FetchCooldown, config.FetchPollInterval = 2*time.Millisecond, 20*time.Millisecond
	}
	return config
}

// newRiver is River as a contender.
func newRiver(name string, workers int, tuned bool) contender {
	return contender{
		name: name,
		setUp: func(ctx context.Context, pool *pgxpool.Pool) error {
			migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: quiet})
			if err != nil {
				return err
			}
			_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
			return err
		},
		enqueue: func(ctx context.Context, pool *pgxpool.Pool, jobs int) error {
			client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: quiet})
			if err != nil {
				return err
			}
			for first := 0; first < jobs; first += enqueueBatch {
				batch := make([]river.InsertManyParams, min(enqueueBatch, jobs-first))
				for i := range batch {
					batch[i].Args = noop{first + i}
				}
				if _, err := client.InsertManyFast(ctx, batch); err != nil {
					return err
				}
			}
			return nil
		},
		drain: func(ctx context.Context, pool *pgxpool.Pool, jobs int) error {
			worker := &riverWorker{ran: &atomic.Int64{}, want: int64(jobs), done: make(chan struct{})}
			config := riverConfig(workers, tuned)
			config.Workers = river.NewWorkers()
			river.AddWorker(config.Workers, worker)
			client, err := river.NewClient(riverpgxv5.New(pool), config)
			if err != nil {
				return err
			}
			if err := client.Start(ctx); err != nil {
				return err
			}
			<-worker.done
			return client.Stop(ctx) // which stores the last results
		},
	}
}
