// Command layout measures the table layouts that docs/decisions/0001 chooses
// from: hand-written SQL for the full life of a job, on a private PostgreSQL
// with durable commits, in interleaved rounds.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/jobq-dev/jobq/bench/layouts"
	"github.com/jobq-dev/jobq/internal/postgres"
)

const (
	connections = 2
	batch       = 500
)

// figures are what one round of one layout came to.
type figures struct {
	insertPerSecond, drainPerSecond, serverMicros, walBytes float64
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
	fmt.Printf("%-28s %-8s %14s %14s %14s %12s\n", "layout", "args", "insert/s", "drain/s", "server us/job", "WAL B/job")
	for _, size := range []struct {
		name        string
		bytes, jobs int
	}{{"100 B", 100, 40_000}, {"2 kB", 2_000, 40_000}, {"100 kB", 100_000, 2_000}} {
		results := make(map[string][]figures)
		for range rounds {
			for _, layout := range layouts.All() {
				f, err := measure(ctx, server, layout, size.bytes, int(float64(size.jobs)*scale))
				if err != nil {
					return fmt.Errorf("%s, %s: %w", layout.Name, size.name, err)
				}
				results[layout.Name] = append(results[layout.Name], f)
			}
		}
		for _, layout := range layouts.All() {
			report(layout.Name, size.name, results[layout.Name])
		}
	}
	return nil
}

// report prints the median and, of the drain, the range.
func report(layout, size string, all []figures) {
	median := func(value func(figures) float64) float64 {
		values := make([]float64, len(all))
		for i, f := range all {
			values[i] = value(f)
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	drains := make([]float64, len(all))
	for i, f := range all {
		drains[i] = f.drainPerSecond
	}
	fmt.Printf("%-28s %-8s %14.0f %14.0f %14.1f %12.0f   drain %.0f to %.0f\n", layout, size,
		median(func(f figures) float64 { return f.insertPerSecond }), median(func(f figures) float64 { return f.drainPerSecond }),
		median(func(f figures) float64 { return f.serverMicros }), median(func(f figures) float64 { return f.walBytes }),
		slices.Min(drains), slices.Max(drains))
}

func measure(ctx context.Context, server *postgres.Server, layout layouts.Layout, argBytes, jobs int) (figures, error) {
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
	var f figures
	started := time.Now()
	wal, err := layouts.WALPosition(ctx, conns[0])
	if err != nil {
		return figures{}, err
	}
	for range jobs / batch {
		if _, err := conns[0].Exec(ctx, layout.Insert, batch, args); err != nil {
			return figures{}, err
		}
	}
	f.insertPerSecond = float64(jobs) / time.Since(started).Seconds()

	cpu, err := layouts.CPUTime(conns)
	if err != nil {
		return figures{}, err
	}
	started = time.Now()
	var group errgroup.Group
	for i, conn := range conns {
		group.Go(func() error { return layout.Drain(ctx, conn, fmt.Sprint("owner", i), batch, func(int) {}) })
	}
	if err := group.Wait(); err != nil {
		return figures{}, err
	}
	f.drainPerSecond = float64(jobs) / time.Since(started).Seconds()
	used, err := layouts.CPUTime(conns)
	if err != nil {
		return figures{}, err
	}
	f.serverMicros = float64((used - cpu).Microseconds()) / float64(jobs)
	end, err := layouts.WALPosition(ctx, conns[0])
	if err != nil {
		return figures{}, err
	}
	f.walBytes = (end - wal) / float64(jobs)
	return f, nil
}
