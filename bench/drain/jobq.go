package main

import (
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/migrate"
	"github.com/jobq-dev/jobq/worker"
)

// enqueueBatch is how many jobs travel in one call, for everybody.
const enqueueBatch = 1000

// noop is a job that does nothing.
type noop struct {
	N int `json:"n"`
}

// Kind names the handler, for jobq and for River.
func (noop) Kind() string { return "noop" }

var jobqDefaults = contender{
	name: "jobq, its defaults",
	setUp: func(ctx context.Context, pool *pgxpool.Pool) error {
		_, err := migrate.Up(ctx, pool, &migrate.Config{Logger: quiet})
		return err
	},
	enqueue: func(ctx context.Context, pool *pgxpool.Pool, jobs int) error {
		client, err := jobq.NewClient(pool, nil)
		if err != nil {
			return err
		}
		for first := 0; first < jobs; first += enqueueBatch {
			batch := make([]jobq.EnqueueParams, min(enqueueBatch, jobs-first))
			for i := range batch {
				batch[i].Args = noop{first + i}
			}
			if _, err := client.EnqueueMany(ctx, batch); err != nil {
				return err
			}
		}
		return nil
	},
	drain: func(ctx context.Context, pool *pgxpool.Pool, jobs int) error {
		client, err := jobq.NewClient(pool, nil)
		if err != nil {
			return err
		}
		w, err := worker.New(client, &worker.Config{Logger: quiet})
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var ran atomic.Int64
		err = worker.Handle(w, func(context.Context, *worker.Job[noop]) error {
			if ran.Add(1) == int64(jobs) {
				cancel() // Run returns when the last results are stored
			}
			return nil
		})
		if err != nil {
			return err
		}
		return w.Run(ctx)
	},
}
