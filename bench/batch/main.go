// Command batch measures what docs/decisions/0008 and 0013 argue with: ways to
// lease and finish jobs by the batch, what each element of today's path costs,
// and the second table layout. It works on jobq's own schema and statements, on
// a private PostgreSQL with durable commits, in interleaved rounds.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/jobq-dev/jobq/internal/postgres"
)

func main() {
	part := flag.String("part", "designs", "designs, sizes, exceptions, elements; second, second-sizes, second-variants, second-held, slots or lists")
	rounds := flag.Int("rounds", 3, "rounds of each")
	jobs := flag.Int("jobs", 200_000, "jobs per round")
	only := flag.String("only", "", "only those whose names have this; the first is always measured")
	flag.Parse()
	if err := run(context.Background(), *part, *only, *rounds, *jobs); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, part, only string, rounds, jobs int) error {
	switch part {
	case "lists":
		return onServer(ctx, true, func(server *postgres.Server) error { return runLists(ctx, server, jobs, rounds) })
	case "slots":
		return onServer(ctx, true, func(server *postgres.Server) error { return runSlots(ctx, server, rounds) })
	}
	plans, ok := map[string]func() []plan{
		"designs": designPlans, "sizes": sizePlans, "exceptions": exceptionPlans, "elements": elementPlans,
		"second": secondPlans, "second-sizes": secondSizePlans, "second-variants": secondVariantPlans, "second-held": secondHeldPlans,
	}[part]
	if !ok {
		return fmt.Errorf("no part %q", part)
	}
	// Elements are a matter of CPU and WAL, which waiting for the disk does not change.
	return onServer(ctx, part != "elements", func(server *postgres.Server) error {
		return runPlans(ctx, server, plans(), part == "elements", only, rounds, jobs)
	})
}

// onServer does some work on a private server.
func onServer(ctx context.Context, durable bool, work func(*postgres.Server) error) error {
	server, err := postgres.Start(ctx, postgres.Config{Durable: durable, Settings: map[string]string{
		"shared_buffers": "1GB", "max_wal_size": "16GB", "checkpoint_timeout": "1h", "autovacuum": "off", "max_connections": "200",
	}})
	if err != nil {
		return err
	}
	defer func() { _ = server.Stop(ctx) }()
	return work(server)
}

// runPlans measures plans in interleaved rounds, or each beside the first.
func runPlans(ctx context.Context, server *postgres.Server, chosen []plan, pairs bool, only string, rounds, jobs int) (err error) {
	for i := len(chosen) - 1; i > 0; i-- {
		if !strings.Contains(chosen[i].name, only) {
			chosen = append(chosen[:i], chosen[i+1:]...)
		}
	}
	beds := make([]*bed, len(chosen))
	for i, p := range chosen {
		p.jobs = jobs
		if beds[i], err = makeBed(ctx, server.URL("postgres"), p, i); err != nil {
			return err
		}
		defer beds[i].close(ctx)
	}
	if pairs {
		return runPairs(ctx, beds, chosen, rounds)
	}
	results := make([][]figures, len(chosen))
	for round := range rounds {
		for i := range beds {
			if round%2 == 1 { // what comes early in one round comes late in the next
				i = len(beds) - 1 - i
			}
			f, err := beds[i].round(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", chosen[i].name, err)
			}
			results[i] = append(results[i], f)
		}
	}
	report(os.Stdout, chosen, results)
	return nil
}

// runPairs measures each bed but the first beside the first.
func runPairs(ctx context.Context, beds []*bed, plans []plan, rounds int) error {
	results := make([][][2]figures, len(beds)-1)
	for range rounds {
		for i := range results {
			of, err := pair(ctx, [2]*bed{beds[0], beds[i+1]})
			if err != nil {
				return fmt.Errorf("%s: %w", plans[i+1].name, err)
			}
			results[i] = append(results[i], of)
		}
	}
	reportPairs(os.Stdout, plans[1:], results)
	return nil
}

func standard(p path) plan { return plan{path: p, argBytes: 100, batch: 500, connections: 2} }

func designPlans() (plans []plan) {
	for _, p := range designs() {
		plans = append(plans, standard(p))
	}
	return plans
}

// contrasted are the designs that the sizes of batches are varied for.
func contrasted() []path {
	return []path{today(), leasePerBatch(), rowPerBatch("row per batch, lz4", "alter jobs set compression lz4")}
}

func sizePlans() (plans []plan) {
	for _, size := range []int{10, 100, 500, 1000} {
		for _, p := range contrasted() {
			p.name = fmt.Sprintf("%s, batches of %d", p.name, size)
			each := standard(p)
			each.batch = size
			plans = append(plans, each)
		}
	}
	for _, each := range []struct {
		connections int
		commit      string
	}{{1, "on"}, {2, "on"}, {3, "on"}, {4, "on"}, {1, "off"}, {2, "off"}} {
		p := standard(today())
		p.name = fmt.Sprintf("today, %d connections, synchronous_commit %s", each.connections, each.commit)
		p.connections, p.session = each.connections, "set synchronous_commit = "+each.commit
		plans = append(plans, p)
	}
	return plans
}

func exceptionPlans() (plans []plan) {
	for _, share := range []struct {
		name       string
		fail, long int
	}{{"no exceptions", 0, 0}, {"1 % fail", 1, 0}, {"10 % fail", 10, 0}, {"1 % long", 0, 1}, {"10 % long", 0, 10}} {
		for _, p := range contrasted() {
			p.name += ", " + share.name
			each := standard(p)
			each.failPercent, each.longPercent, each.look = share.fail, share.long, "" // some of the ids are not in the history
			plans = append(plans, each)
		}
	}
	return plans
}
