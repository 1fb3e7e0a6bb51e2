// Command keys measures a prototype of claims by partition keys (sql/) beside those of jobq: the same jobs are claimed and ended, over the same
// connections, on the same private server, in turns. notes/keys.md has the results.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq/bench/stage"
	"github.com/jobq-dev/jobq/internal/measure"
	"github.com/jobq-dev/jobq/migrate"
)

func main() {
	o := options{}
	flag.IntVar(&o.jobs, "jobs", 100_000, "jobs of each drain")
	flag.IntVar(&o.keys, "keys", 10_000, "partition keys that they have")
	flag.IntVar(&o.rounds, "rounds", 3, "drains of each case")
	flag.IntVar(&o.connections, "connections", 1, "claims at once")
	flag.StringVar(&o.only, "only", "", "cases whose names begin like this, separated by commas")
	flag.StringVar(&o.part, "part", "drains", "drains, beside, inserts or profile")
	flag.BoolVar(&o.durable, "durable", false, "wait for the disk")
	sql := flag.String("sql", "", "a folder with a claim.sql and end.sql to measure instead")
	flag.StringVar(&o.sides, "sides", "jobq,proto", "which take part")
	flag.Parse()
	if *sql != "" {
		for name, text := range map[string]*string{"claim.sql": &claimSQL, "end.sql": &endSQL, "schema.sql": &schemaSQL} {
			read, err := os.ReadFile(filepath.Join(*sql, name))
			if err != nil {
				log.Fatal(err)
			}
			*text = string(read)
		}
	}
	if err := run(context.Background(), o); err != nil {
		log.Fatal(err)
	}
}

type options struct {
	jobs, keys, rounds, connections int
	only, part, sides               string
	durable                         bool
}

func run(ctx context.Context, o options) error {
	server, err := stage.Start(ctx, stage.Config{Fleeting: !o.durable})
	if err != nil {
		return err
	}
	defer server.Stop(ctx)
	b, err := newBed(ctx, server.Admin)
	if err != nil {
		return err
	}
	switch o.part {
	case "drains":
		return b.drains(ctx, o)
	case "beside":
		return b.beside(ctx)
	case "inserts":
		return b.inserts(ctx, o)
	}
	return fmt.Errorf("no part %q", o.part)
}

// bed is the database in which it is measured, with the tables of both.
type bed struct {
	pool  *pgxpool.Pool
	meter *measure.Meter
}

func newBed(ctx context.Context, pool *pgxpool.Pool) (*bed, error) {
	if _, err := migrate.Up(ctx, pool, &migrate.Config{Logger: slog.New(slog.DiscardHandler)}); err != nil {
		return nil, err
	}
	for _, sql := range []string{
		"alter system set autovacuum_naptime = '5s'", "select pg_reload_conf()", schemaSQL,
		"insert into proto.queue_lock values ('default')",
	} {
		if _, err := pool.Exec(ctx, sql); err != nil {
			return nil, err
		}
	}
	meter, err := measure.NewMeter(ctx, pool)
	return &bed{pool: pool, meter: meter}, err
}

// keyCase is a way to give a queue jobs with keys.
type keyCase struct {
	name      string
	change    string // of the settings of jobq's queue; "" for none
	queue     string // the same as a row of proto.queue, without its name
	weights   string // keys that have the weight 3, as a query; "" for none
	key       string // SQL: the partition key of job i
	count     int    // jobs of a claim
	isUnkeyed bool
}

func cases(keys int) []keyCase {
	key := fmt.Sprintf("'key ' || i %% %d", keys)
	grouped := fmt.Sprintf("'group ' || i %% 100 || '/key ' || i %% %d", keys)
	none := "null, null, null, null, null"
	return []keyCase{
		{name: "plain", queue: none, key: "''", count: 1000, isUnkeyed: true},
		{name: "fair", queue: none, key: key, count: 1000},
		{name: "weights", queue: none, key: key, count: 1000, weights: fmt.Sprintf("select 'key ' || i * 100 from generate_series(0, %d) i", keys/100-1)},
		{name: "groups", change: `{"key_separator": "/"}`, queue: "null, null, null, null, '/'", key: grouped, count: 1000},
		{name: "limit 1", change: `{"key_limit": 1}`, queue: "1, null, null, null, null", key: key, count: 1000},
		{name: "limit 1 by 200", change: `{"key_limit": 1}`, queue: "1, null, null, null, null", key: key, count: 200},
		{name: "rate", change: `{"key_rate_jobs": 100, "key_rate_period": "1 s", "key_rate_burst": 20}`, queue: "null, '10 ms', 20, null, null", key: key, count: 1000},
		{name: "rate by 200", change: `{"key_rate_jobs": 100, "key_rate_period": "1 s", "key_rate_burst": 20}`, queue: "null, '10 ms', 20, null, null", key: key, count: 200},
		{name: "order", change: `{"key_order": "hold", "key_limit": 1}`, queue: "1, null, null, 'hold', null", key: key, count: 1000},
	}
}

func (o options) chosen() (chosen []keyCase) {
	for _, c := range cases(o.keys) {
		if o.only == "" || slices.ContainsFunc(strings.Split(o.only, ","), func(name string) bool { return strings.HasPrefix(c.name, name) }) {
			chosen = append(chosen, c)
		}
	}
	return chosen
}

// sideOf is what claims: "jobq" or "proto".
func (b *bed) sideOf(name string, connection int) (side, error) {
	owner := fmt.Sprintf("worker %d", connection)
	if name == "jobq" {
		return newToday(b.pool, owner)
	}
	return &proto{conn: b.pool, owner: owner, kinds: []string{"bench"}}, nil
}

// drains measures each case on both sides in each round, beginning with another one each time.
func (b *bed) drains(ctx context.Context, o options) error {
	type pair struct {
		c    keyCase
		side string
	}
	var pairs []pair
	for _, c := range o.chosen() {
		if c.isUnkeyed || strings.Contains(o.sides, "jobq") {
			pairs = append(pairs, pair{c, "jobq"})
		}
		if !c.isUnkeyed && strings.Contains(o.sides, "proto") {
			pairs = append(pairs, pair{c, "proto"})
		}
	}
	figures := make(map[string][]figure)
	for round := range o.rounds {
		for i := range pairs {
			p := pairs[(i+round)%len(pairs)]
			f, err := b.drain(ctx, p.c, p.side, o.jobs, o.connections)
			if err != nil {
				return fmt.Errorf("%s of %s: %w", p.c.name, p.side, err)
			}
			figures[p.side+p.c.name] = append(figures[p.side+p.c.name], f)
			fmt.Fprintf(os.Stderr, "round %d: %s, %s: %.0f jobs/s, %.1f us, %d claims\n", round+1, p.c.name, p.side, f.perSecond, f.micros, f.claims)
		}
	}
	fmt.Println("| case | side | jobs/s (least to most) | of plain | server CPU, µs a job | plain's CPU of it | WAL, B a job | claims |\n|---|---|---:|---:|---:|---:|---:|---:|")
	plain := figures["jobqplain"]
	for _, p := range pairs {
		mine := figures[p.side+p.c.name]
		rate, micros := spread(mine, func(f figure) float64 { return f.perSecond }), spread(mine, func(f figure) float64 { return f.micros })
		wal, claims := spread(mine, func(f figure) float64 { return f.wal }), spread(mine, func(f figure) float64 { return float64(f.claims) })
		var ratios, costs []float64
		for i := range plain {
			ratios, costs = append(ratios, mine[i].perSecond/plain[i].perSecond), append(costs, plain[i].micros/mine[i].micros)
		}
		if plain == nil {
			ratios, costs = []float64{0}, []float64{0}
		}
		ratio, cost := measure.SpreadOf(ratios), measure.SpreadOf(costs)
		fmt.Printf("| %s | %s | %.0f (%.0f to %.0f) | %.2f (%.2f to %.2f) | %.1f (%.1f to %.1f) | %.2f | %.0f | %.0f |\n", p.c.name, p.side, rate.Median, rate.Min, rate.Max,
			ratio.Median, ratio.Min, ratio.Max, micros.Median, micros.Min, micros.Max, cost.Median, wal.Median, claims.Median)
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
