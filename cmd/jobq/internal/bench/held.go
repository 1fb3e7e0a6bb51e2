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
INSERT, claim and completion while the rate is taken. As any open transaction does, it
also keeps VACUUM from removing dead rows of your own tables in this database, for as
long as --duration says: measure for 10 minutes only where that does no harm.`,
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
		held, err := b.flowHeld(ctx)
		if err != nil {
			return nil, err
		}
		_, lastFree := free.Rates.Ends()
		_, lastHeld := held.Rates.Ends()
		held.add("ratio at the end", "", lastHeld/max(lastFree, 1))
		return []Case{free, held}, nil
	},
}

// flowHeld is flow with a transaction open, which has a snapshot of the time
// before.
func (b *bench) flowHeld(ctx context.Context) (Case, error) {
	tx, err := b.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return Case{}, err
	}
	// Rolled back before the schema is removed, which would else wait for it. It
	// has changed nothing, and that it was open is known by then.
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	// The user's own settings may end a transaction that is idle, or any that is
	// long. PostgreSQL knows the second from 17 on.
	_, err = tx.Exec(ctx, `select set_config(s.name, '0', true) from pg_settings s
		where s.name in ('idle_in_transaction_session_timeout', 'transaction_timeout')`)
	if err == nil {
		_, err = tx.Exec(ctx, "select count(*) from "+b.schema+".committed")
	}
	if err != nil {
		return Case{}, err
	}
	held, err := b.flow(ctx, "transaction open")
	if err != nil {
		return held, err
	}
	if _, err := tx.Exec(ctx, "select 1"); err != nil {
		return held, fmt.Errorf("the transaction did not stay open, so that the rates say nothing about it: %w", err)
	}
	return held, nil
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
	sent := b.tracer.read().since(calls)
	c.Limit = b.limit(usage, sent, sent.connections())
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
