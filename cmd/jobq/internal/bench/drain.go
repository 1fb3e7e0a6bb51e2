package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jobq-dev/jobq/internal/measure"
	"github.com/jobq-dev/jobq/worker"
)

var drainScenario = Scenario{
	Name:  "drain",
	Short: "Run jobs that do nothing, as fast as they go",
	Long: `Enqueue jobs that do nothing and let workers run them: what jobq itself costs per job,
from the claim to the history.`,
	Flags:   []string{"jobs", "workers", "slots"},
	Default: Config{Jobs: 100_000, Workers: 1},
	run: func(ctx context.Context, b *bench) ([]Case, error) {
		if err := b.fill(ctx, b.Jobs); err != nil {
			return nil, err
		}
		c, err := b.drain(ctx, "drain")
		return []Case{c}, err
	},
}

var backlogScenario = Scenario{
	Name:  "backlog",
	Short: "Drain with few jobs waiting, and with very many",
	Long: `Drain some jobs of a queue that has no others, and as many of one in which a large
number wait behind them. The two should be equally fast.`,
	Flags:   []string{"jobs", "rows", "workers", "slots"},
	Default: Config{Jobs: 100_000, Rows: 1_000_000, Workers: 1},
	run: func(ctx context.Context, b *bench) ([]Case, error) {
		return b.drainTwice(ctx, fmt.Sprintf("%d waiting", b.Rows), func() error { return b.fill(ctx, b.Rows) })
	},
}

var historyScenario = Scenario{
	Name:  "history",
	Short: "Drain with an empty history, and with a very long one",
	Long: `Drain jobs with nothing in the history, and again with a large number of finished jobs
of today in it. The two should be equally fast.`,
	Flags:   []string{"jobs", "rows", "workers", "slots"},
	Default: Config{Jobs: 100_000, Rows: 1_000_000, Workers: 1},
	run: func(ctx context.Context, b *bench) ([]Case, error) {
		return b.drainTwice(ctx, fmt.Sprintf("%d finished", b.Rows), func() error { return b.fillHistory(ctx, b.Rows) })
	},
}

// drainTwice drains without and with something in the way.
func (b *bench) drainTwice(ctx context.Context, name string, obstruct func() error) ([]Case, error) {
	if err := b.fill(ctx, b.Jobs); err != nil {
		return nil, err
	}
	free, err := b.drain(ctx, "nothing else")
	if err != nil {
		return nil, err
	}
	if err := b.reset(ctx); err != nil {
		return nil, err
	}
	if err := b.fill(ctx, b.Jobs); err != nil {
		return nil, err
	}
	if err := obstruct(); err != nil {
		return nil, err
	}
	obstructed, err := b.drain(ctx, name)
	if err != nil {
		return nil, err
	}
	obstructed.add("ratio", "", obstructed.rate()/free.rate())
	return []Case{free, obstructed}, nil
}

// fillHistory writes jobs that have finished, without running them, as claims of a
// hundred leave them: all of them have plainly succeeded.
func (b *bench) fillHistory(ctx context.Context, jobs int) error {
	b.say("writing %d finished jobs", jobs)
	return b.inChunks(ctx, jobs, `with l as (
			insert into `+b.schema+`.past_lease (id, claimed_at, owner, ended)
				select `+b.schema+`.lease_id_next(), clock_timestamp(), 'worker', array(select (20 + s)::smallint from generate_series(1, least(100, $2::bigint - i + 1)) s)
				from generate_series($1::bigint, $2::bigint, 100) i
				returning id
		)
		insert into `+b.schema+`.run
				(id, lease_id, slot, position, created_at, priority, attempts, max_attempts, crashes, args_apart, queue, kind, args)
			select nextval('`+b.schema+`.job_id_seq'), n.id, s, nextval('`+b.schema+`.position_seq'), now(), 0, 0, 25, 0,
				false, '`+queue+`', '`+kind+`', jsonb_build_object('n', n.first + s - 1)
			from (select l.id, $1::bigint + 100 * (row_number() over (order by l.id) - 1) as first from l) n
			cross join lateral generate_series(1, least(100, $2::bigint - n.first + 1)) s`)
}

// drain runs the configured number of the jobs that wait, from the start of
// the workers to the last result stored.
func (b *bench) drain(ctx context.Context, name string) (Case, error) {
	c := Case{Name: name}
	if err := b.settle(ctx); err != nil {
		return c, err
	}
	b.say("draining %d jobs: %s", b.Jobs, name)
	var ran atomic.Int64
	done := make(chan struct{})
	before, err := b.meter.Read(ctx)
	if err != nil {
		return c, err
	}
	calls := b.tracer.read()
	stopRates := measure.Rates(ratesEvery, ran.Load)
	crew, err := b.startCrew(ctx, func(context.Context, *worker.Job[task]) error {
		if ran.Add(1) == int64(b.Jobs) {
			close(done)
		}
		return nil
	})
	if err != nil {
		_ = stopRates()
		return c, err
	}
	crew.await(done)
	err = crew.stop()
	rates := stopRates()
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return c, err
	}
	after, err := b.meter.Read(ctx)
	if err != nil {
		return c, err
	}
	// Jobs that were claimed ahead may have run too, before the stop.
	jobs, usage := int(ran.Load()), b.meter.Since(before, after)
	sent := b.tracer.read().since(calls)
	if err := b.checkStored(ctx, jobs); err != nil {
		return c, err
	}
	c.add("jobs", "/s", float64(jobs)/usage.Elapsed.Seconds())
	c.addCost(usage, jobs)
	c.Limit = b.limit(usage, sent, sent.connections())
	c.Rates = &rates
	return c, nil
}

// ratesEvery is the width of a chart's finest column.
const ratesEvery = 100 * time.Millisecond

// checkStored refuses figures of runs whose results are not in the history.
func (b *bench) checkStored(ctx context.Context, jobs int) error {
	var stored int
	err := b.pool.QueryRow(ctx, `select (select count(*) from `+b.schema+`.past_lease l, unnest(l.ended) ms where l.owner <> 'worker' and ms >= 0)
		+ (select count(*) from `+b.schema+`.lease l, unnest(l.ended_ms) ms where ms >= 0)
		+ (select count(*) from `+b.schema+`.run where state = 'completed')`).Scan(&stored)
	if err == nil && stored != jobs {
		return fmt.Errorf("%d jobs ran and %d are in the history", jobs, stored)
	}
	return err
}
