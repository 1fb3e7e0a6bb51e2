// Command flow measures what limits and partition keys cost: drains of one queue with and without them, in turns, and claims beside
// keys that are full. The server is private and does not wait for the disk. notes/flow.md has the results.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq/bench/stage"
	"github.com/jobq-dev/jobq/internal/measure"
	"github.com/jobq-dev/jobq/migrate"
)

// flowCase is a way to give a queue jobs.
type flowCase struct {
	name   string
	change string // of the queue's settings; "" for none
	key    string // SQL: the partition key of job i
}

func cases(keys int) []flowCase {
	key := fmt.Sprintf("'key ' || i %% %d", keys)
	return []flowCase{
		{"without limits and keys", "", "''"},
		{"a queue limit of 10,000", `{"max_running": 10000}`, "''"},
		{fmt.Sprintf("%d keys", keys), "", key},
		{fmt.Sprintf("%d keys, a limit of 1 each", keys), `{"key_limit": 1}`, key},
		{fmt.Sprintf("%d keys in 100 groups", keys), `{"key_separator": "/"}`, "'group ' || i % 100 || '/' || " + key},
	}
}

// fullKeys are how many keys are full beside those that a claim takes from.
var fullKeys = []int{10, 1_000, 100_000}

func main() {
	jobs := flag.Int("jobs", 200_000, "jobs of each drain")
	keys := flag.Int("keys", 10_000, "partition keys that they have")
	slots := flag.Int("slots", 200, "slots of the worker")
	rounds := flag.Int("rounds", 6, "drains of each case")
	only := flag.Int("cases", 5, "how many of the five cases are measured, from the first on")
	flag.Parse()
	if err := run(context.Background(), *jobs, *keys, *slots, *rounds, *only); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, jobs, keys, slots, rounds, only int) error {
	server, err := stage.Start(ctx, stage.Config{Fleeting: true})
	if err != nil {
		return err
	}
	defer server.Stop(ctx)
	if _, err := migrate.Up(ctx, server.Admin, &migrate.Config{Logger: slog.New(slog.DiscardHandler)}); err != nil {
		return err
	}
	b, err := newBed(ctx, server.Admin, slots)
	if err != nil {
		return err
	}
	if err := b.drains(ctx, cases(keys)[:only], jobs, rounds); err != nil {
		return err
	}
	fmt.Println("\n| a claim of 20 jobs of 20 keys, median | ms |\n|---|---:|")
	for _, full := range fullKeys {
		took, err := b.claims(ctx, full)
		if err != nil {
			return err
		}
		fmt.Printf("| beside %d full keys | %.2f |\n", full, took.Seconds()*1000)
	}
	return nil
}

// bed is the database in which it is measured.
type bed struct {
	pool  *pgxpool.Pool
	meter *measure.Meter
	slots int
}

func newBed(ctx context.Context, pool *pgxpool.Pool, slots int) (*bed, error) {
	meter, err := measure.NewMeter(ctx, pool)
	return &bed{pool: pool, meter: meter, slots: slots}, err
}

// drains measures each case in each round, beginning with another one each time, and prints a table.
func (b *bed) drains(ctx context.Context, all []flowCase, jobs, rounds int) error {
	if _, err := b.drain(ctx, all[0], jobs); err != nil { // a new server is slow
		return err
	}
	figures := make([][]figure, len(all))
	for round := range rounds {
		for i := range all {
			at := (i + round) % len(all)
			f, err := b.drain(ctx, all[at], jobs)
			if err != nil {
				return fmt.Errorf("%s: %w", all[at].name, err)
			}
			figures[at] = append(figures[at], f)
			fmt.Fprintf(os.Stderr, "round %d: %s: %.0f jobs/s\n", round+1, all[at].name, f.perSecond)
		}
	}
	fmt.Println("| drain | jobs/s (least to most) | of the first, within rounds | server CPU, µs a job |\n|---|---:|---:|---:|")
	for i, c := range all {
		rate := spread(figures[i], func(f figure) float64 { return f.perSecond })
		ratios := make([]float64, rounds)
		for round := range rounds {
			ratios[round] = figures[i][round].perSecond / figures[0][round].perSecond
		}
		ratio := measure.SpreadOf(ratios)
		micros := spread(figures[i], func(f figure) float64 { return f.serverMicros })
		fmt.Printf("| %s | %.0f (%.0f to %.0f) | %.2f (%.2f to %.2f) | %.1f (%.1f to %.1f) |\n", c.name,
			rate.Median, rate.Min, rate.Max, ratio.Median, ratio.Min, ratio.Max, micros.Median, micros.Min, micros.Max)
	}
	return nil
}

func spread(figures []figure, value func(figure) float64) measure.Spread {
	values := make([]float64, len(figures))
	for i, f := range figures {
		values[i] = value(f)
	}
	return measure.SpreadOf(values)
}
