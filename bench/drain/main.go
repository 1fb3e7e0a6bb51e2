// Command drain measures how fast one worker process runs jobs that do
// nothing, jobq beside River, in interleaved rounds on a private PostgreSQL
// with durable commits. Both keep history. River runs with the settings that
// its authors' benchmark uses; jobq with its defaults.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq/internal/postgres"
)

// contender enqueues jobs and drains them; setUp makes its tables in an empty
// database.
type contender struct {
	name    string
	setUp   func(ctx context.Context, pool *pgxpool.Pool) error
	enqueue func(ctx context.Context, pool *pgxpool.Pool, jobs int) error
	drain   func(ctx context.Context, pool *pgxpool.Pool, jobs int) error
}

// quiet keeps workers from writing between the figures.
var quiet = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))

func main() {
	jobs := flag.Int("jobs", 100_000, "jobs in a round")
	rounds := flag.Int("rounds", 3, "rounds of each contender")
	flag.Parse()
	if err := run(context.Background(), *jobs, *rounds); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, jobs, rounds int) error {
	server, err := postgres.Start(ctx, postgres.Config{Durable: true, Settings: map[string]string{
		"shared_buffers": "1GB", "max_wal_size": "8GB",
	}})
	if err != nil {
		return err
	}
	defer func() { _ = server.Stop(ctx) }()
	contenders := []contender{jobqDefaults, newRiver("River, tuned", 500, true), newRiver("River, its defaults", 100, false)}
	drained, enqueued := make(map[string][]float64), make(map[string][]float64)
	for round := range rounds {
		for i, c := range contenders {
			e, d, err := measure(ctx, server, c, fmt.Sprintf("round_%d_%d", round, i), jobs)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			enqueued[c.name], drained[c.name] = append(enqueued[c.name], e), append(drained[c.name], d)
			fmt.Printf("round %d  %-20s enqueue %7.0f/s  drain %7.0f/s\n", round+1, c.name, e, d)
		}
	}
	for _, c := range contenders {
		d := drained[c.name]
		fmt.Printf("median   %-20s enqueue %7.0f/s  drain %7.0f/s (%.0f to %.0f), %.2f x jobq's\n", c.name, median(enqueued[c.name]),
			median(d), slices.Min(d), slices.Max(d), median(d)/median(drained[contenders[0].name]))
	}
	return nil
}

func median(values []float64) float64 {
	values = slices.Sorted(slices.Values(values))
	return values[len(values)/2]
}

func measure(ctx context.Context, server *postgres.Server, c contender, database string, jobs int) (enqueued, drained float64, err error) {
	admin, err := pgxpool.New(ctx, server.URL("postgres"))
	if err != nil {
		return 0, 0, err
	}
	defer admin.Close()
	if _, err := admin.Exec(ctx, "create database "+database); err != nil {
		return 0, 0, err
	}
	defer func() { _, _ = admin.Exec(ctx, "drop database "+database+" with (force)") }()
	config, err := pgxpool.ParseConfig(server.URL(database))
	if err != nil {
		return 0, 0, err
	}
	config.MaxConns = 20
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return 0, 0, err
	}
	defer pool.Close()
	if err := c.setUp(ctx, pool); err != nil {
		return 0, 0, err
	}
	started := time.Now()
	if err := c.enqueue(ctx, pool, jobs); err != nil {
		return 0, 0, err
	}
	enqueued = float64(jobs) / time.Since(started).Seconds()
	if _, err := admin.Exec(ctx, "checkpoint"); err != nil {
		return 0, 0, err
	}
	started = time.Now()
	if err := c.drain(ctx, pool, jobs); err != nil {
		return 0, 0, err
	}
	return enqueued, float64(jobs) / time.Since(started).Seconds(), nil
}
