package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jobq-dev/jobq"
)

var enqueueScenario = Scenario{
	Name:  "enqueue",
	Short: "Enqueue jobs one by one and many at once",
	Long: `Enqueue jobs one by one over one connection and over several, and many in one call.
Beside them stands a plain INSERT of the same row into a table with the same columns,
checks and indexes, but without triggers: no queue in a database can be faster.`,
	Flags:   []string{"duration", "writers", "batch"},
	Default: Config{Duration: 5 * time.Second, Writers: 16, Batch: 1000},
	run:     enqueue,
}

// enqueuing is one way to enqueue: put adds a number of jobs in one
// transaction.
type enqueuing struct {
	name    string
	writers int
	jobs    int
	put     func(ctx context.Context, n int64) error
}

func enqueue(ctx context.Context, b *bench) ([]Case, error) {
	if _, err := b.pool.Exec(ctx, "create table "+b.schema+".bare (like "+b.schema+".pending including all)"); err != nil {
		return nil, err
	}
	plain := func(ctx context.Context, n int64) error {
		_, err := b.pool.Exec(ctx, "insert into "+b.schema+".bare (kind, args) values ('"+kind+"', $1)", task{n})
		return err
	}
	one := func(ctx context.Context, n int64) error {
		_, err := b.client.Enqueue(ctx, task{n}, nil)
		return err
	}
	many := func(ctx context.Context, n int64) error {
		batch := make([]jobq.EnqueueParams, b.Batch)
		for i := range batch {
			batch[i].Args = task{n*int64(b.Batch) + int64(i)}
		}
		_, err := b.client.EnqueueMany(ctx, batch)
		return err
	}
	var cases []Case
	for _, e := range []enqueuing{
		{"plain INSERT, 1 writer", 1, 1, plain},
		{"one by one, 1 writer", 1, 1, one},
		{fmt.Sprintf("plain INSERT, %d writers", b.Writers), b.Writers, 1, plain},
		{fmt.Sprintf("one by one, %d writers", b.Writers), b.Writers, 1, one},
		{fmt.Sprintf("%d at once, 1 writer", b.Batch), 1, b.Batch, many},
	} {
		c, err := b.enqueue(ctx, e)
		if err != nil {
			return nil, err
		}
		cases = append(cases, c)
	}
	for _, pair := range [][2]int{{0, 1}, {2, 3}} {
		cases[pair[1]].add("of plain", "", cases[pair[1]].rate()/cases[pair[0]].rate())
	}
	return cases, nil
}

// enqueue lets the writers write until the time is over, and begins with
// empty tables.
func (b *bench) enqueue(ctx context.Context, e enqueuing) (Case, error) {
	c := Case{Name: e.name}
	b.say("enqueueing for %s: %s", b.Duration, e.name)
	if _, err := b.pool.Exec(ctx, "truncate "+b.schema+".pending, "+b.schema+".bare"); err != nil {
		return c, err
	}
	before, err := b.meter.Read(ctx)
	if err != nil {
		return c, err
	}
	calls := b.tracer.read()
	var puts atomic.Int64
	end := time.Now().Add(b.Duration)
	group, groupCtx := errgroup.WithContext(ctx)
	for range e.writers {
		group.Go(func() error {
			for time.Now().Before(end) {
				if err := e.put(groupCtx, puts.Add(1)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return c, err
	}
	after, err := b.meter.Read(ctx)
	if err != nil {
		return c, err
	}
	jobs, usage := int(puts.Load())*e.jobs, b.meter.Since(before, after)
	c.add("jobs", "/s", float64(jobs)/usage.Elapsed.Seconds())
	c.addCost(usage, jobs)
	c.Limit = b.limit(usage, b.tracer.read().since(calls), e.writers)
	return c, nil
}
