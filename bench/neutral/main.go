// Command neutral runs the cells of a benchmark that none of the systems has written
// (hardbyte/postgresql-job-queue-benchmarking), in short forms, with jobq and the peers that this module has, and writes
// what came out. `make bench-neutral` runs it.
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

// lab is what a run of this command knows.
type lab struct {
	*stage.Server
	config  stage.Config
	log     io.Writer
	sheet   *sheet.Sheet
	times   times
	rate    int        // jobs a second that are offered in chaos and pressure
	now     *sheet.Run // the section that is being measured
	version string
	disk    measure.Latencies
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) > 1 && os.Args[1] == "child" {
		if err := child.Run(context.WithoutCancel(ctx), os.Args[2:]); err != nil { // the end of standard input ends it
			log.Fatal(err)
		}
		return
	}
	l := &lab{log: os.Stderr, sheet: sheet.New(), times: standard}
	flag.StringVar(&l.config.Only, "only", "", "systems, separated by commas: jobq, river, graphile-worker, pg-boss (default all)")
	flag.StringVar(&l.config.Peers, "peers", "peers", "folder of the peers that run on Node")
	flag.IntVar(&l.rate, "rate", 800, "jobs a second that are offered in chaos and pressure")
	quick := flag.Bool("quick", false, "a few seconds a cell, to see that everything works: the figures mean nothing")
	names := flag.String("cells", "", "groups of cells, separated by commas: throughput, chaos, pressure, queues, starvation (default all)")
	out := flag.String("out", "", "file to write the results to (default standard output)")
	flag.Parse()
	if *quick {
		l.times = short
	}
	if err := run(ctx, l, *names, *out); err != nil {
		stop()
		log.Fatal(err) // #nosec -- nothing is deferred but stop
	}
}

// check refuses what would measure nothing, or lose what was measured.
func (l *lab) check(names, out string) error {
	var known []string
	for _, s := range sections() {
		known = append(known, s.name)
	}
	if err := errors.Join(stage.CheckNames(names, known...), stage.CheckOnly(l.config)); err != nil {
		return err
	}
	if l.rate < 1 {
		return errors.New("-rate must be at least 1")
	}
	if out != "" && l.times == short {
		return errors.New("-quick measures nothing that a file should keep: leave -out away")
	}
	return nil
}

func run(ctx context.Context, l *lab, names, out string) (err error) {
	if err := l.check(names, out); err != nil {
		return err
	}
	if out != "" {
		titles := make(map[string]string)
		for _, s := range sections() {
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
	if l.disk, err = l.Latencies(ctx); err != nil {
		return err
	}
	for _, s := range sections() {
		if names != "" && !strings.Contains(","+names+",", ","+s.name+",") {
			continue
		}
		if err := l.measure(ctx, s); err != nil {
			return err
		}
		if out == "" {
			continue
		}
		// After each, so that an interruption costs one at most.
		var report bytes.Buffer
		if err := errors.Join(l.sheet.Save(sheet.DataFile(out)), l.report(ctx, &report)); err != nil {
			return err
		}
		if err := os.WriteFile(out, report.Bytes(), 0o644); err != nil { // #nosec G306 -- for everybody to read
			return err
		}
	}
	if out == "" {
		return l.report(ctx, os.Stdout)
	}
	return nil
}

// measure runs a section anew, and keeps what the report says about it.
func (l *lab) measure(ctx context.Context, s section) error {
	l.sheet.Forget(s.name)
	l.now = &sheet.Run{
		Started: time.Now().UTC(), Commit: l.version, Environment: l.Environment(), Scale: 1, Only: l.config.Only,
		Command: "go run ./neutral " + strings.Join(os.Args[1:], " "), Rounds: 1,
	}
	l.sheet.Runs[s.name] = l.now
	if err := s.run(l, ctx); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	l.now.Ended = time.Now().UTC()
	return nil
}

func (l *lab) report(ctx context.Context, out io.Writer) error {
	fmt.Fprint(out, "# The cells of a neutral benchmark\n\nWritten by `make bench-neutral`; do not edit. The cells are those of hardbyte/postgresql-job-queue-benchmarking (results of 2026-05-09),\n"+
		"in short forms, on one machine for server and clients. Jobs are added by SQL, the same way for all. Only ratios within one table mean anything.\n\n")
	if err := l.Describe(ctx, out, l.disk); err != nil {
		return err
	}
	if l.times == short {
		fmt.Fprint(out, "- A quick pass: these figures mean nothing\n")
	}
	fmt.Fprint(out, "\n## Bars\n\nThe neutral benchmark sets none for starvation: ours is that jobs of low priority come to half of their share where age_after is shorter than the cell.\n\n")
	sheet.WriteBars(out, l.sheet, bars())
	environment := l.Environment()
	for _, s := range sections() {
		l.sheet.WriteScenario(out, s.name, s.title, s.about, environment)
	}
	return nil
}

// problem is something that the report must not hide.
func (l *lab) problem(format string, args ...any) {
	l.now.Problems = append(l.now.Problems, fmt.Sprintf(format, args...))
	l.say("problem: "+format, args...)
}

func (l *lab) say(format string, args ...any) { fmt.Fprintf(l.log, format+"\n", args...) }
