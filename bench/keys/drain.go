package main

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

// figure is what one drain came to.
type figure struct {
	perSecond float64
	micros    float64 // CPU of all server processes for each job
	wal       float64 // bytes for each job
	claims    int64
}

// drain claims and ends jobs over so many connections, until all have ended.
func (b *bed) drain(ctx context.Context, c keyCase, name string, jobs, connections int) (figure, error) {
	if err := b.fill(ctx, c, name, jobs); err != nil {
		return figure{}, err
	}
	if _, err := b.pool.Exec(ctx, "create extension if not exists pg_stat_statements; select pg_stat_statements_reset()"); err != nil {
		return figure{}, err
	}
	before, err := b.meter.Read(ctx)
	if err != nil {
		return figure{}, err
	}
	began := time.Now()
	var left, claims atomic.Int64
	left.Store(int64(jobs))
	var group errgroup.Group
	for i := range connections {
		group.Go(func() error {
			s, err := b.sideOf(name, i)
			if err != nil {
				return err
			}
			if t, ok := s.(*today); ok {
				t.unkeyed = c.isUnkeyed
			}
			return work(ctx, s, c.count, &left, &claims)
		})
	}
	if err := group.Wait(); err != nil {
		return figure{}, err
	}
	took := time.Since(began)
	after, err := b.meter.Read(ctx)
	if err != nil {
		return figure{}, err
	}
	if os.Getenv("KEYS_STATEMENTS") != "" {
		rows, err := b.pool.Query(ctx, "select left(regexp_replace(query, '[ \n]+', ' ', 'g'), 60) as q, calls, mean_exec_time, total_exec_time / $1 * 1000 from pg_stat_statements order by total_exec_time desc limit 5", jobs)
		if err != nil {
			return figure{}, err
		}
		var query string
		var calls int64
		var mean, each float64
		if _, err := pgx.ForEachRow(rows, []any{&query, &calls, &mean, &each}, func() error {
			fmt.Fprintf(os.Stderr, "    %s: %d calls, %.2f ms, %.1f us a job\n", query, calls, mean, each)
			return nil
		}); err != nil {
			return figure{}, err
		}
	}
	used := b.meter.Since(before, after)
	n := float64(jobs)
	return figure{perSecond: n / took.Seconds(), micros: float64(used.ServerCPU.Microseconds()) / n, wal: float64(used.WALBytes) / n, claims: claims.Load()}, nil
}

// work claims jobs and ends them with the next claim.
func work(ctx context.Context, s side, count int, left, claims *atomic.Int64) error {
	var running []job
	for idle := 0; left.Load() > 0 || len(running) > 0; {
		claimed, _, err := s.exchange(ctx, running, count)
		if err != nil {
			return err
		}
		left.Add(-int64(len(running)))
		claims.Add(1)
		if idle++; len(claimed) > 0 || len(running) > 0 {
			idle = 0
		} else if idle > 3000 {
			return fmt.Errorf("%d jobs are left, and claims find none", left.Load())
		} else {
			time.Sleep(time.Millisecond)
		}
		running = claimed
	}
	return nil
}

// fill empties the queue and gives it jobs.
func (b *bed) fill(ctx context.Context, c keyCase, name string, jobs int) error {
	if err := b.empty(ctx, c); err != nil {
		return err
	}
	schema := name
	if _, err := b.pool.Exec(ctx, "insert into "+schema+".pending (kind, partition_key) select 'bench', "+c.key+" from generate_series(1, $1) i", jobs); err != nil {
		return err
	}
	for _, sql := range []string{"vacuum (analyze) " + schema + ".pending", "checkpoint"} {
		if _, err := b.pool.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

func (b *bed) empty(ctx context.Context, c keyCase) error {
	sqls := []string{
		"truncate jobq.pending, jobq.lane, jobq.lane_hint, jobq.lane_head, jobq.key_group, jobq.key_weight, jobq.queue, jobq.throttle, jobq.lease, jobq.past_lease, jobq.run, jobq.stat_delta",
		"truncate proto.pending, proto.lane, proto.lane_hint, proto.key_group, proto.key_weight, proto.queue, proto.paused_key, proto.lease, proto.past_lease, proto.run, proto.stat_delta",
		"update proto.queue_lock set clock = 0",
		"insert into proto.queue (name, key_limit, rate_step, rate_burst, key_order, separator) values ('default', " + c.queue + ")",
	}
	if c.change != "" {
		sqls = append(sqls, "select jobq.act_queue_set('bench', 'default', '"+c.change+"')")
	}
	if c.weights != "" {
		sqls = append(sqls, "insert into jobq.key_weight (queue, key, weight) select 'default', k, 3 from ("+c.weights+") w(k)",
			"insert into proto.key_weight (queue, key, weight) select 'default', k, 3 from ("+c.weights+") w(k)")
	}
	for _, sql := range sqls {
		if _, err := b.pool.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}
