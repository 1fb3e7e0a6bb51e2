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
	"io"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/jobq-dev/jobq/bench/child"
	"github.com/jobq-dev/jobq/bench/sheet"
	"github.com/jobq-dev/jobq/bench/stage"
	"github.com/jobq-dev/jobq/internal/measure"
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
		{"reports", "Reports", "1,000 jobs in one process that run all the time and say once a second how far they are, for ten minutes; beside them the same jobs that say nothing, for one minute. " +
			"The worker stores what all have said in one round trip a second.", (*lab).runReports},
		{"fleet", "Many processes, one server", "Worker processes at their defaults, as many hosts would run them, first with nothing to do and then with 100,000 jobs that are added at once; " +
			"the rate contains the time that it takes to add them. Sessions are those of the processes, looked at 20 times a second; so is who waits for a lock.", (*lab).runFleet},
		{"wakeup", "One job, many idle workers", "One job for many idle workers, which do not poll: how many of them come for it.", (*lab).runWakeup},
		{"backlog", "Backlog", "100,000 jobs of a queue in which no others wait, and very many.", (*lab).runBacklog},
		{"history", "History", "100,000 jobs with an empty history, and a very long one.", (*lab).runHistory},
		{"held", "A transaction held open", "Jobs flow, inserted as fast as they run, while a transaction stays open elsewhere; beside it the same without, for half of the time, and a tenth for the peers.", (*lab).runHeld},
	}
}

// lab is what a run of this command knows: where it measures, how much, and the results so far.
type lab struct {
	*stage.Server
	config stage.Config
	log    io.Writer
	sheet  *sheet.Sheet
	scale  float64
	rounds int
	held   time.Duration
	now    *sheet.Run // the scenario that is being measured
	// version of the sources: the commit, when they were built.
	version string
	commit  measure.Latencies
}

// bed is a database with a contender's tables in it.
type bed struct {
	*lab
	*stage.Database
}

// with makes a database for a contender, lets work be done in it, and drops it.
func (l *lab) with(ctx context.Context, c stage.Contender, work func(b *bed) error) error {
	return l.Server.With(ctx, c, func(d *stage.Database) error { return work(&bed{l, d}) })
}

// scaled is a number of jobs at the chosen scale.
func (l *lab) scaled(jobs int) int { return max(int(float64(jobs)*l.scale), 100) }

// problem is something that the report must not hide.
func (l *lab) problem(format string, args ...any) {
	l.now.Problems = append(l.now.Problems, fmt.Sprintf(format, args...))
}

func (l *lab) say(format string, args ...any) { fmt.Fprintf(l.log, format+"\n", args...) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) > 1 && os.Args[1] == "child" {
		if err := child.Run(context.WithoutCancel(ctx), os.Args[2:]); err != nil { // the end of standard input ends it
			log.Fatal(err)
		}
		return
	}
	l := &lab{log: os.Stderr, sheet: sheet.New()}
	flag.IntVar(&l.rounds, "rounds", 3, "rounds of each contender")
	flag.Float64Var(&l.scale, "scale", 1, "multiplies numbers of jobs, and shortens times when below 1")
	flag.DurationVar(&l.held, "held", 10*time.Minute, "how long a transaction is held open")
	flag.StringVar(&l.config.Only, "only", "", "systems, separated by commas: jobq, jobq-before, river, graphile-worker, pg-boss, sql (default all)")
	flag.StringVar(&l.config.Peers, "peers", "peers", "folder of the peers that run on Node")
	names := flag.String("scenarios", "", "scenarios, separated by commas (default all)")
	out := flag.String("out", "", "file to write the results to (default standard output)")
	flag.Parse()
	if err := run(ctx, l, *names, *out); err != nil {
		stop()
		log.Fatal(err) // #nosec -- nothing is deferred but stop
	}
}

func run(ctx context.Context, l *lab, names, out string) (err error) {
	if err := l.check(names); err != nil {
		return err
	}
	if out != "" {
		titles := make(map[string]string)
		for _, s := range scenarios() {
			titles[s.name] = s.title
		}
		if err := l.sheet.LoadFor(out, titles); err != nil {
			return err
		}
	}
	l.version = stage.Version() // now: this program was built a moment ago
	if l.Server, err = stage.Start(ctx, l.config); err != nil {
		return err
	}
	defer l.Stop(ctx)
	if l.commit, err = l.Latencies(ctx); err != nil {
		return err
	}
	for _, s := range scenarios() {
		if names != "" && !strings.Contains(","+names+",", ","+s.name+",") {
			continue
		}
		if kept := l.sheet.Runs[s.name]; kept != nil && l.config.Only != "" && kept.Only != l.config.Only {
			return fmt.Errorf("%s: -only %s would replace what was measured of other systems: write to another file", s.name, l.config.Only)
		}
		if err := l.measure(ctx, s); err != nil {
			return err
		}
		if out == "" {
			continue
		}
		// After each scenario, so that an interruption costs one at most.
		if err := errors.Join(l.sheet.Save(sheet.DataFile(out)), l.writeReport(ctx, out)); err != nil {
			return err
		}
	}
	if out == "" {
		return l.report(ctx, os.Stdout)
	}
	return nil
}

// check refuses what would measure nothing.
func (l *lab) check(names string) error {
	var known []string
	for _, s := range scenarios() {
		known = append(known, s.name)
	}
	if err := errors.Join(stage.CheckNames(names, known...), stage.CheckOnly(l.config)); err != nil {
		return err
	}
	if l.rounds < 1 || l.scale <= 0 {
		return errors.New("-rounds must be at least 1, and -scale more than 0")
	}
	return nil
}

// measure runs a scenario anew, and keeps what the report says about it.
func (l *lab) measure(ctx context.Context, s scenario) error {
	l.sheet.Forget(s.name)
	l.now = &sheet.Run{
		Started: time.Now().UTC(), Commit: l.version, Environment: l.Environment(), Scale: l.scale, Only: l.config.Only,
		Command: "go run ./run " + strings.Join(os.Args[1:], " "), Rounds: l.rounds,
	}
	l.sheet.Runs[s.name] = l.now
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
