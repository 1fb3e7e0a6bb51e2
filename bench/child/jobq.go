package child

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/janitor"
	"github.com/jobq-dev/jobq/migrate"
	"github.com/jobq-dev/jobq/worker"
)

// tunedSlots is what jobs that do nothing need: more slots only take turns.
const tunedSlots = 32

// noop is a job that does nothing, for jobq and for River.
type noop struct {
	N int64 `json:"n"`
}

// Kind names the handler.
func (noop) Kind() string { return "noop" }

// jobqSystem is jobq.
type jobqSystem struct{}

// setUp also makes the table that shows what the triggers cost.
func (jobqSystem) setUp(ctx context.Context, pool *pgxpool.Pool) error {
	if _, err := migrate.Up(ctx, pool, &migrate.Config{Logger: quiet()}); err != nil {
		return err
	}
	_, err := pool.Exec(ctx, "create table jobq.bare (like jobq.pending including all)")
	return err
}

// start runs what a process of jobq worker does: workers, and a janitor.
func (jobqSystem) start(ctx context.Context, pool *pgxpool.Pool, o Order, ran func(int64)) (func() error, error) {
	client, err := jobq.NewClient(pool, nil)
	if err != nil {
		return nil, err
	}
	config := worker.Config{NoJanitor: true, Logger: quiet(), PollInterval: time.Duration(o.PollMs) * time.Millisecond}
	switch {
	case o.Queues > 0:
		config.Queues = make(map[string]worker.QueueConfig)
		for _, name := range QueueNames(o.Queues) {
			config.Queues[name] = worker.QueueConfig{Slots: o.Slots / o.Queues}
		}
	case o.Slots > 0:
		config.Queues = map[string]worker.QueueConfig{"default": {Slots: o.Slots}}
	case o.Tuned:
		config.Queues = map[string]worker.QueueConfig{"default": {Slots: tunedSlots}}
	}
	ctx, end := context.WithCancel(ctx)
	group, ctx := errgroup.WithContext(ctx)
	j, err := janitor.New(client, &janitor.Config{Logger: quiet()})
	if err != nil {
		end()
		return nil, err
	}
	group.Go(func() error { return j.Run(ctx) })
	for range max(o.Workers, 1) {
		w, err := worker.New(client, &config)
		if err == nil {
			err = worker.Handle(w, func(ctx context.Context, job *worker.Job[noop]) error {
				if o.ProgressMs > 0 {
					defer report(ctx, job, time.Duration(o.ProgressMs)*time.Millisecond)()
				}
				ran(job.Args.N)
				return nil
			}, nil)
		}
		if err != nil {
			end()
			return nil, err
		}
		group.Go(func() error { return w.Run(ctx) })
	}
	return func() error {
		end()
		return group.Wait()
	}, nil
}

// report has a job say again and again how far it is, until the function that it returns is called.
func report(ctx context.Context, job *worker.Job[noop], every time.Duration) (stop func()) {
	ctx, stop = context.WithCancel(ctx)
	go func() {
		for number := 0; ctx.Err() == nil; number++ {
			job.Progress(float32(number%100), "reporting", "")
			Pause(ctx, every)
		}
	}()
	return stop
}

// jobqProducer enqueues in the way that the order asks for.
type jobqProducer struct {
	client *jobq.Client
	pool   *pgxpool.Pool
	insert string // "" for the client's own way
}

func (jobqSystem) producer(pool *pgxpool.Pool, o Order) (producer, error) {
	client, err := jobq.NewClient(pool, nil)
	if err != nil {
		return nil, err
	}
	p := jobqProducer{client: client, pool: pool}
	switch o.Way {
	case "":
	case "insert": // with the triggers
		p.insert = "insert into jobq.pending (kind, args) values ('noop', $1)"
	case "bare": // the same table without them
		p.insert = "insert into jobq.bare (kind, args) values ('noop', $1)"
	default:
		return nil, fmt.Errorf("no way %q", o.Way)
	}
	return p, nil
}

func (p jobqProducer) one(ctx context.Context, n int64) (err error) {
	if p.insert != "" {
		_, err = p.pool.Exec(ctx, p.insert, noop{n})
		return err
	}
	_, err = p.client.Enqueue(ctx, noop{n}, nil)
	return err
}

func (p jobqProducer) many(ctx context.Context, from, count int64) error {
	jobs := make([]jobq.EnqueueParams, count)
	for i := range jobs {
		jobs[i].Args = noop{from + int64(i)}
	}
	_, err := p.client.EnqueueMany(ctx, jobs)
	return err
}

func (p jobqProducer) inTransaction(ctx context.Context, tx pgx.Tx, n int64) error {
	_, err := p.client.EnqueueTx(ctx, tx, noop{n}, nil)
	return err
}
