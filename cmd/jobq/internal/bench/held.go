package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/internal/measure"
	"github.com/jobq-dev/jobq/worker"
)

const (
	// flowAhead is how many jobs wait while they flow: enough that the workers
	// are never short of them.
	flowAhead = 20_000
	flowBatch = 2_000
	flowTick  = 2 * time.Millisecond
)

var heldScenario = Scenario{
	Name:  "held",
	Short: "Watch the rate while another transaction stays open",
	Long: `Let jobs flow through the queue, first as it is and then with a transaction open in
another connection, such as a long report or a backup: it keeps VACUUM from removing the
rows of jobs that have gone. The rate should stay level. Every job flows through
INSERT, claim and completion while the rate is taken.`,
	Flags:   []string{"duration", "workers", "slots"},
	Default: Config{Duration: time.Minute, Workers: 1},
	run: func(ctx context.Context, b *bench) ([]Case, error) {
		free, err := b.flow(ctx, "no transaction open")
		if err != nil {
			return nil, err
		}
		if err := b.reset(ctx); err != nil {
			return nil, err
		}
		tx, err := b.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		if err != nil {
			return nil, err
		}
		// Rolled back before the schema is removed, which would else wait for it.
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
		if _, err := tx.Exec(ctx, "select count(*) from "+b.schema+".committed"); err != nil {
			return nil, err
		}
		held, err := b.flow(ctx, "transaction open")
		if err != nil {
			return nil, err
		}
		_, lastFree := free.Rates.Ends()
		_, lastHeld := held.Rates.Ends()
		held.add("ratio at the end", "", lastHeld/max(lastFree, 1))
		return []Case{free, held}, nil
	},
}

// flow enqueues as fast as the workers run, until the time is over.
func (b *bench) flow(ctx context.Context, name string) (Case, error) {
	c := Case{Name: name}
	b.say("letting jobs flow for %s: %s", b.Duration, name)
	var ran atomic.Int64
	before, err := b.meter.Read(ctx)
	if err != nil {
		return c, err
	}
	calls := b.tracer.read()
	crew, err := b.startCrew(ctx, func(context.Context, *worker.Job[task]) error {
		ran.Add(1)
		return nil
	})
	if err != nil {
		return c, err
	}
	stopRates := measure.Rates(max(b.Duration/60, ratesEvery), ran.Load)
	err = b.feed(crew.ctx, &ran)
	rates, jobs := stopRates(), int(ran.Load())
	after, readErr := b.meter.Read(ctx)
	stopErr := crew.stop()
	for _, problem := range []error{stopErr, err, readErr, ctx.Err()} {
		if problem != nil {
			return c, problem
		}
	}
	usage := b.meter.Since(before, after)
	c.add("jobs", "/s", float64(jobs)/usage.Elapsed.Seconds())
	first, last := rates.Ends()
	c.add("first tenth", "/s", first)
	c.add("last tenth", "/s", last)
	c.addCost(usage, jobs)
	c.Limit = b.limit(usage, b.tracer.read().since(calls), b.Workers+1) // one connection feeds
	c.Rates = &rates
	return c, nil
}

// feed keeps a number of jobs waiting until the time is over.
func (b *bench) feed(ctx context.Context, ran *atomic.Int64) error {
	end := time.NewTimer(b.Duration)
	defer end.Stop()
	ticker := time.NewTicker(flowTick)
	defer ticker.Stop()
	sql := fmt.Sprintf("insert into %s.pending (kind, args) select '%s', jsonb_build_object('n', i) from generate_series($1::bigint, $2::bigint) i",
		b.schema, kind)
	for fed := int64(0); ; {
		if fed < ran.Load()+flowAhead {
			if _, err := b.pool.Exec(ctx, sql, fed+1, fed+flowBatch); err != nil {
				return err
			}
			fed += flowBatch
			select {
			case <-end.C:
				return nil
			default:
				continue
			}
		}
		select {
		case <-end.C:
			return nil
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
