// Command layout measures the table layouts that docs/decisions/0001 chooses
// from: hand-written SQL for the full life of a job, on a private PostgreSQL
// with durable commits, in interleaved rounds.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/jobq-dev/jobq/bench/layouts"
	"github.com/jobq-dev/jobq/internal/measure"
	"github.com/jobq-dev/jobq/internal/postgres"
)

const (
	connections = 2
	batch       = 500
)

// figures are what one round of one layout came to. CPU and WAL are per job.
type figures struct {
	insertPerSecond, insertWAL, drainPerSecond, drainMicros, drainWAL float64
}

func main() {
	rounds := flag.Int("rounds", 3, "rounds of each layout and size")
	scale := flag.Float64("scale", 1, "multiplies the numbers of jobs")
	flag.Parse()
	if err := run(context.Background(), *rounds, *scale); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, rounds int, scale float64) error {
	server, err := postgres.Start(ctx, postgres.Config{Durable: true, Settings: map[string]string{
		"shared_buffers": "1GB", "max_wal_size": "8GB", "autovacuum_naptime": "5s",
	}})
	if err != nil {
		return err
	}
	defer func() { _ = server.Stop(ctx) }()
	fmt.Printf("%-28s %-8s %14s %14s %14s %14s %14s\n", "layout", "args", "insert/s", "insert WAL B", "drain/s", "drain us/job", "drain WAL B")
	for _, size := range []struct {
		name        string
		bytes, jobs int
	}{{"100 B", 100, 40_000}, {"2 kB", 2_000, 40_000}, {"100 kB", 100_000, 2_000}} {
		results := make(map[string][]figures)
		for range rounds {
			for _, layout := range layouts.All() {
				f, err := round(ctx, server, layout, size.bytes, int(float64(size.jobs)*scale))
				if err != nil {
					return fmt.Errorf("%s, %s: %w", layout.Name, size.name, err)
				}
				results[layout.Name] = append(results[layout.Name], f)
			}
		}
		for _, layout := range layouts.All() {
			report(os.Stdout, layout.Name, size.name, results[layout.Name])
		}
	}
	return nil
}

// report prints medians and, of the drain, the range.
func report(out io.Writer, layout, size string, all []figures) {
	of := func(value func(figures) float64) measure.Spread {
		values := make([]float64, len(all))
		for i, f := range all {
			values[i] = value(f)
		}
		return measure.SpreadOf(values)
	}
	drain := of(func(f figures) float64 { return f.drainPerSecond })
	fmt.Fprintf(out, "%-28s %-8s %14.0f %14.0f %14.0f %14.1f %14.0f   drain %.0f to %.0f\n", layout, size,
		of(func(f figures) float64 { return f.insertPerSecond }).Median, of(func(f figures) float64 { return f.insertWAL }).Median,
		drain.Median, of(func(f figures) float64 { return f.drainMicros }).Median, of(func(f figures) float64 { return f.drainWAL }).Median,
		drain.Min, drain.Max)
}

// round fills a layout's tables and drains them.
func round(ctx context.Context, server *postgres.Server, layout layouts.Layout, argBytes, jobs int) (figures, error) {
	conns := make([]*pgx.Conn, connections)
	for i := range conns {
		conn, err := pgx.Connect(ctx, server.URL("postgres"))
		if err != nil {
			return figures{}, err
		}
		defer func() { _ = conn.Close(ctx) }()
		conns[i] = conn
	}
	setUp := "drop schema if exists layout cascade; create schema layout; set search_path = layout;" + layout.Tables
	if _, err := conns[0].Exec(ctx, setUp); err != nil {
		return figures{}, err
	}
	for _, conn := range conns {
		if _, err := conn.Exec(ctx, "set search_path = layout; set enable_seqscan = off; set enable_hashjoin = off; set enable_mergejoin = off; checkpoint"); err != nil {
			return figures{}, err
		}
	}
	args, err := layouts.RandomArgs(argBytes)
	if err != nil {
		return figures{}, err
	}
	inserted := 0
	insert, err := spend(ctx, conns, func() (err error) {
		inserted, err = layout.Fill(ctx, conns[0], jobs, batch, args)
		return err
	})
	if err != nil {
		return figures{}, err
	}
	drain, err := spend(ctx, conns, func() error { return drainAll(ctx, conns, layout, inserted) })
	if err != nil {
		return figures{}, err
	}
	count := float64(inserted)
	return figures{
		insertPerSecond: count / insert.seconds, insertWAL: insert.wal / count,
		drainPerSecond: count / drain.seconds, drainMicros: drain.micros / count, drainWAL: drain.wal / count,
	}, nil
}

// drainAll drains over all connections. It is an error when not all jobs ran.
func drainAll(ctx context.Context, conns []*pgx.Conn, layout layouts.Layout, inserted int) error {
	var done atomic.Int64
	var group errgroup.Group
	for i, conn := range conns {
		group.Go(func() error {
			return layout.Drain(ctx, conn, fmt.Sprint("owner", i), batch, func(jobs int) { done.Add(int64(jobs)) })
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if ran := int(done.Load()); ran != inserted {
		return fmt.Errorf("%d jobs ran of %d", ran, inserted)
	}
	return nil
}

// spent is what some work took: time, CPU time of the backends in
// microseconds, and WAL in bytes.
type spent struct{ seconds, micros, wal float64 }

func spend(ctx context.Context, conns []*pgx.Conn, work func() error) (spent, error) {
	walBefore, err := layouts.WALPosition(ctx, conns[0])
	if err != nil {
		return spent{}, err
	}
	cpuBefore, err := layouts.CPUTime(conns)
	if err != nil {
		return spent{}, err
	}
	started := time.Now()
	if err := work(); err != nil {
		return spent{}, err
	}
	seconds := time.Since(started).Seconds()
	cpu, err := layouts.CPUTime(conns)
	if err != nil {
		return spent{}, err
	}
	wal, err := layouts.WALPosition(ctx, conns[0])
	return spent{seconds: seconds, micros: float64((cpu - cpuBefore).Nanoseconds()) / 1000, wal: wal - walBefore}, err
}
