package child

import (
	"cmp"
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

const (
	riverWorkers        = 500
	riverDefaultWorkers = 100 // River has no default; its own examples and `river bench` begin with this
)

// riverSystem is River: tuned, it fetches almost without pause, as its own
// `river bench` does.
type riverSystem struct{}

type riverWorker struct {
	river.WorkerDefaults[noop]
	ran func(int64)
}

// Work does nothing.
func (w *riverWorker) Work(_ context.Context, job *river.Job[noop]) error {
	w.ran(job.Args.N)
	return nil
}

func (riverSystem) setUp(ctx context.Context, pool *pgxpool.Pool) error {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: quiet()})
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

// riverConfig is of workers and of those that insert: the cooldown also says how
// often a client notifies of what it has inserted.
func riverConfig(o Order) *river.Config {
	config := &river.Config{Logger: quiet()}
	if o.Tuned {
		config.FetchCooldown, config.FetchPollInterval = 2*time.Millisecond, 20*time.Millisecond
	}
	return config
}

func (riverSystem) start(ctx context.Context, pool *pgxpool.Pool, o Order, ran func(int64)) (func() error, error) {
	config := riverConfig(o)
	config.Workers = river.NewWorkers()
	workers := cmp.Or(o.Slots, riverDefaultWorkers)
	if o.Tuned && o.Slots == 0 {
		workers = riverWorkers
	}
	config.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}}
	if o.Queues > 0 {
		config.Queues = make(map[string]river.QueueConfig)
		for _, name := range QueueNames(o.Queues) {
			config.Queues[name] = river.QueueConfig{MaxWorkers: o.Slots / o.Queues}
		}
	}
	river.AddWorker(config.Workers, &riverWorker{ran: ran})
	client, err := river.NewClient(riverpgxv5.New(pool), config)
	if err != nil {
		return nil, err
	}
	if err := client.Start(ctx); err != nil {
		return nil, err
	}
	return func() error { return client.Stop(context.WithoutCancel(ctx)) }, nil
}

type riverProducer struct{ client *river.Client[pgx.Tx] }

func (riverSystem) producer(pool *pgxpool.Pool, o Order) (producer, error) {
	client, err := river.NewClient(riverpgxv5.New(pool), riverConfig(o))
	return riverProducer{client}, err
}

func (p riverProducer) one(ctx context.Context, n int64) error {
	_, err := p.client.Insert(ctx, noop{n}, nil)
	return err
}

// many uses COPY, River's fastest way, which returns no ids.
func (p riverProducer) many(ctx context.Context, from, count int64) error {
	jobs := make([]river.InsertManyParams, count)
	for i := range jobs {
		jobs[i].Args = noop{from + int64(i)}
	}
	_, err := p.client.InsertManyFast(ctx, jobs)
	return err
}

func (p riverProducer) inTransaction(ctx context.Context, tx pgx.Tx, n int64) error {
	_, err := p.client.InsertTx(ctx, tx, noop{n}, nil)
	return err
}
