package main

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/measure"
	"github.com/jobq-dev/jobq/worker"
)

type task struct{}

func (task) Kind() string { return "bench" }

// figure is what one drain came to.
type figure struct {
	perSecond    float64
	serverMicros float64 // CPU of all server processes for each job
}

// drain runs jobs that do nothing, in one worker beside a janitor, and measures from the first one's start to the last one's.
func (b *bed) drain(ctx context.Context, c flowCase, jobs int) (figure, error) {
	if err := b.fill(ctx, c, jobs); err != nil {
		return figure{}, err
	}
	client, err := jobq.NewClient(b.pool, nil)
	if err != nil {
		return figure{}, err
	}
	quiet := slog.New(slog.DiscardHandler)
	w, err := worker.New(client, &worker.Config{Logger: quiet, Queues: map[string]worker.QueueConfig{"default": {Slots: b.slots}}})
	if err != nil {
		return figure{}, err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	var ran, first, last atomic.Int64
	err = worker.Handle(w, func(context.Context, *worker.Job[task]) error {
		switch ran.Add(1) {
		case 1:
			first.Store(time.Now().UnixNano())
		case int64(jobs):
			last.Store(time.Now().UnixNano())
			stop()
		}
		return nil
	}, nil)
	if err != nil {
		return figure{}, err
	}
	var before, after measure.Reading
	if before, err = b.meter.Read(ctx); err != nil {
		return figure{}, err
	}
	if err := w.Run(running); err != nil {
		return figure{}, err
	}
	if after, err = b.meter.Read(ctx); err != nil {
		return figure{}, err
	}
	took := time.Duration(last.Load() - first.Load())
	return figure{
		perSecond:    float64(jobs) / took.Seconds(),
		serverMicros: float64(b.meter.Since(before, after).ServerCPU.Microseconds()) / float64(jobs),
	}, nil
}

// fill empties the queue and gives it jobs.
func (b *bed) fill(ctx context.Context, c flowCase, jobs int) error {
	if _, err := b.pool.Exec(ctx, "truncate jobq.pending, jobq.lane, jobq.lane_hint, jobq.queue, jobq.throttle"); err != nil {
		return err
	}
	if c.change != "" {
		if _, err := b.pool.Exec(ctx, "select jobq.act_queue_set('bench', 'default', $1)", c.change); err != nil {
			return err
		}
	}
	if _, err := b.pool.Exec(ctx, "insert into jobq.pending (kind, partition_key) select 'bench', "+c.key+" from generate_series(1, $1) i", jobs); err != nil {
		return err
	}
	for _, sql := range []string{"vacuum (analyze) jobq.pending", "checkpoint"} {
		if _, err := b.pool.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}
