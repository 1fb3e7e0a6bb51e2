package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/migrate"
	"github.com/jobq-dev/jobq/worker"
)

const (
	// stopWithin leaves time to end within the 5 s of the contract.
	stopWithin = 3 * time.Second
	// depthEvery is how often the depth is counted, as the other adapters do.
	depthEvery = 200 * time.Millisecond
)

// queue is jobq: everything that this program asks of it is in this file.
type queue struct {
	settings
	pool   *pgxpool.Pool
	client *jobq.Client
	logger *slog.Logger
	next   atomic.Int64 // the number of the next job
}

// args are those of a job; the padding makes them as large as the harness asks for.
type args struct {
	Seq     int64  `json:"seq"`
	Padding string `json:"padding"`
}

// argsBytes is about what they take without padding.
const argsBytes = 32

// Kind names the handler.
func (args) Kind() string { return "bench_job" }

// openQueue connects, and makes or changes the tables as a user does.
func openQueue(ctx context.Context, s settings) (*queue, error) {
	config, err := pgxpool.ParseConfig(s.databaseURL)
	if err != nil {
		return nil, fmt.Errorf("DATABASE_URL: %w", err)
	}
	config.MaxConns = int32(s.connections) // #nosec G115 -- a few
	q := &queue{settings: s, logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	if q.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, err
	}
	if _, err = migrate.Up(ctx, q.pool, &migrate.Config{Logger: q.logger}); err == nil {
		q.client, err = jobq.NewClient(q.pool, nil)
	}
	if err != nil {
		q.pool.Close()
		return nil, err
	}
	return q, nil
}

func (q *queue) close() { q.pool.Close() }

// name is that of one of the queues.
func (q *queue) name(i int64) string {
	if q.queues == 1 {
		return "" // jobq's default
	}
	return fmt.Sprintf("bench_%d", i%int64(q.queues))
}

// add adds jobs with one call, in turns to the queues.
func (q *queue) add(ctx context.Context, count int) error {
	jobs := make([]jobq.EnqueueParams, count)
	padding := strings.Repeat("x", max(q.payloadBytes-argsBytes, 0))
	first := q.next.Add(int64(count)) - int64(count)
	for i := range jobs {
		number := first + int64(i)
		jobs[i] = jobq.EnqueueParams{Args: args{number, padding}, EnqueueOptions: jobq.EnqueueOptions{
			Queue: q.name(number), Priority: q.priorities[number%int64(len(q.priorities))], MaxAttempts: q.maxAttempts,
		}}
	}
	_, err := q.client.EnqueueMany(ctx, jobs)
	return err
}

// work runs jobs, and a janitor as every `jobq worker` does, until the context ends. The slots are divided among the queues.
func (q *queue) work(ctx context.Context, m *meter) error {
	config := worker.Config{Lease: q.lease, DrainTimeout: stopWithin, Logger: q.logger, Queues: map[string]worker.QueueConfig{"default": {Slots: q.workers}}}
	if q.queues > 1 {
		config.Queues = make(map[string]worker.QueueConfig)
		for i := range q.queues {
			config.Queues[q.name(int64(i))] = worker.QueueConfig{Slots: max(q.workers/q.queues, 1)}
		}
	}
	w, err := worker.New(q.client, &config)
	if err != nil {
		return err
	}
	err = worker.Handle(w, func(ctx context.Context, run *worker.Job[args]) error {
		m.start(run.CreatedAt(), time.Now())
		err := pause(ctx, q.workTime)
		if err == nil {
			m.completed.Add(1)
		}
		return err
	}, nil)
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// watchDepth counts the jobs that wait, until the context ends. The contract wants no more than a count; while the server is
// away the last one stays.
func (q *queue) watchDepth(ctx context.Context, m *meter) error {
	for pause(ctx, depthEvery) == nil {
		changed := m.changed()
		var waiting int64
		if q.pool.QueryRow(ctx, "select count(*) from jobq.pending").Scan(&waiting) == nil {
			m.counted(waiting, changed)
		}
	}
	return nil
}

// pause waits, and is an error when the context ends first.
func pause(ctx context.Context, duration time.Duration) error {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
