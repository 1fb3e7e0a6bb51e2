// Command run measures jobq beside its peers on a private PostgreSQL with
// durable commits, in interleaved rounds, and writes what came out. Every
// contender works in processes of its own. `make bench` runs it.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq/internal/postgres"
)

// scenario is one thing that is measured, and why.
type scenario struct {
	name, title, about string
	run                func(l *lab, ctx context.Context) error
}

func scenarios() []scenario {
	return []scenario{
		{"drain", "Drain", "100,000 waiting jobs that do nothing, one worker process; the rate is taken from the first job's start to the last one's. " +
			"graphile-worker keeps no finished jobs. Hand-written SQL claims and completes batches of 500 on two connections, with no handlers.", (*lab).runDrain},
		{"scaling", "More processes", "The same, with several worker processes at once.", (*lab).runScaling},
		{"enqueue", "Enqueue", "For 5 s, into empty tables, with nobody listening.", (*lab).runEnqueue},
		{"triggers", "What the triggers cost", "8 connections that insert one by one, while all slots of a worker are busy.", (*lab).runTriggers},
		{"latency", "Pickup latency", "Single jobs on an idle queue, 20 ms after the one before has started, from the moment at which the transaction is told to commit until the handler starts. " +
			"Beside it what the least is that anybody needs: a NOTIFY, and for a claim that survives a crash a second commit. " +
			"500 samples a round, 200 of peers at their defaults.", (*lab).runLatency},
		{"mixed", "Mixed", "2,000 jobs a second enqueued one by one over 16 connections, for 10 s, timed from the moment at which each was due.", (*lab).runMixed},
		{"idle", "Idle", "One worker process with nothing to do. Statements are those of the whole database.", (*lab).runIdle},
		{"herd", "No herd", "One job for many idle workers, which do not poll: how many of them come for it.", (*lab).runHerd},
		{"backlog", "Backlog", "100,000 jobs of a queue in which no others wait, and very many.", (*lab).runBacklog},
		{"history", "History", "100,000 jobs with an empty history, and a very long one.", (*lab).runHistory},
		{"held", "A transaction held open", "Jobs flow, inserted as fast as they run, while a transaction stays open elsewhere; beside it the same without, for half of the time, and a tenth for the peers.", (*lab).runHeld},
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) > 1 && os.Args[1] == "child" {
		if err := runChild(context.WithoutCancel(ctx), os.Args[2:]); err != nil { // the end of standard input ends it
			log.Fatal(err)
		}
		return
	}
	l := &lab{log: os.Stderr, sheet: newSheet(), durable: true}
	flag.IntVar(&l.rounds, "rounds", 3, "rounds of each contender")
	flag.Float64Var(&l.scale, "scale", 1, "multiplies numbers of jobs, and shortens times when below 1")
	flag.DurationVar(&l.held, "held", 10*time.Minute, "how long a transaction is held open")
	flag.StringVar(&l.only, "only", "", "systems, separated by commas: jobq, jobq-before, river, graphile-worker, pg-boss, sql (default all)")
	flag.StringVar(&l.peers, "peers", "peers", "folder of the peers that run on Node")
	names := flag.String("scenarios", "", "scenarios, separated by commas (default all)")
	out := flag.String("out", "", "file to write the results to (default standard output)")
	flag.Parse()
	if err := run(ctx, l, *names, *out); err != nil {
		stop()
		log.Fatal(err) // #nosec -- nothing is deferred but stop
	}
}

func run(ctx context.Context, l *lab, names, out string) error {
	if err := l.check(names, out); err != nil {
		return err
	}
	l.version = version() // now: this program was built a moment ago
	server, err := postgres.Start(ctx, postgres.Config{Durable: l.durable, Settings: serverSettings()})
	if err != nil {
		return err
	}
	l.server = server
	defer func() {
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if err := server.Stop(stopCtx); err != nil {
			log.Print(err)
		}
	}()
	if l.admin, err = pgxpool.New(ctx, server.URL("postgres")); err != nil {
		return err
	}
	defer l.admin.Close()
	if l.commit, err = l.latencies(ctx); err != nil {
		return err
	}
	if out != "" {
		if err := l.sheet.load(dataFile(out)); err != nil {
			return err
		}
	}
	for _, s := range scenarios() {
		if names != "" && !strings.Contains(","+names+",", ","+s.name+",") {
			continue
		}
		if kept := l.sheet.runs[s.name]; kept != nil && l.only != "" && kept.Only != l.only {
			return fmt.Errorf("%s: -only %s would replace what was measured of other systems: write to another file", s.name, l.only)
		}
		if err := l.measure(ctx, s); err != nil {
			return err
		}
		if out == "" {
			continue
		}
		// After each scenario, so that an interruption costs one at most.
		if err := errors.Join(l.sheet.save(dataFile(out)), l.writeReport(ctx, out)); err != nil {
			return err
		}
	}
	if out == "" {
		return l.report(ctx, os.Stdout)
	}
	return nil
}

// check refuses what would measure nothing, or lose what was measured.
func (l *lab) check(names, out string) error {
	known := func(names string, all ...string) error {
		for name := range strings.SplitSeq(names, ",") {
			if names != "" && !slices.Contains(all, name) {
				return fmt.Errorf("no %q: there are %s", name, strings.Join(all, ", "))
			}
		}
		return nil
	}
	var scenarioNames, systemNames []string
	for _, s := range scenarios() {
		scenarioNames = append(scenarioNames, s.name)
	}
	for _, c := range contenders() {
		if !slices.Contains(systemNames, c.name) {
			systemNames = append(systemNames, c.name)
		}
	}
	if err := errors.Join(known(names, scenarioNames...), known(l.only, systemNames...)); err != nil {
		return err
	}
	if strings.Contains(","+l.only+",", ","+before+",") && !(contender{queueSystem: beforeTables}).installed(l.peers) {
		return fmt.Errorf("%s is not there: run make bench-before", beforeProgram(l.peers))
	}
	if l.rounds < 1 || l.scale <= 0 {
		return errors.New("-rounds must be at least 1, and -scale more than 0")
	}
	if out == "" || names == "" {
		return nil
	}
	_, reportErr := os.Stat(out)
	_, dataErr := os.Stat(dataFile(out))
	if reportErr == nil && dataErr != nil {
		return fmt.Errorf("%s is not here, so that %s would lose all other scenarios: measure all, or write to another file", dataFile(out), out)
	}
	return nil
}

// measure runs a scenario anew, and keeps what the report says about it.
func (l *lab) measure(ctx context.Context, s scenario) error {
	l.sheet.forget(s.name)
	l.now = &runOf{
		Started: time.Now().UTC(), Commit: l.version, Environment: l.environment(), Scale: l.scale, Only: l.only,
		Command: "go run ./run " + strings.Join(os.Args[1:], " "), Rounds: l.rounds,
	}
	l.sheet.runs[s.name] = l.now
	if err := s.run(l, ctx); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	l.now.Ended = time.Now().UTC()
	return nil
}

// writeReport replaces the report.
func (l *lab) writeReport(ctx context.Context, file string) error {
	var report bytes.Buffer
	if err := l.report(ctx, &report); err != nil {
		return err
	}
	return os.WriteFile(file, report.Bytes(), 0o644) // #nosec G306 -- for everybody to read
}
