package main

import (
	_ "embed" // for what is written by hand
	"fmt"
	"io"
	"math"

	"github.com/jobq-dev/jobq/internal/measure"
)

// bar is a promise of ours, and a ratio or figure that shows whether it is
// kept.
type bar struct {
	what  string
	value func(s *sheet) (float64, bool)
	limit float64
	most  bool // the limit is the most that is allowed, and not the least
}

// ratio divides two medians.
func ratio(above, below entry) func(s *sheet) (float64, bool) {
	return func(s *sheet) (float64, bool) {
		a, okA := s.median(above)
		b, okB := s.median(below)
		return a / b, okA && okB && b != 0
	}
}

// ofBest is a figure's share of the better of the two.
func ofBest(e, other entry) func(s *sheet) (float64, bool) {
	return func(s *sheet) (float64, bool) {
		a, okA := s.median(e)
		b, okB := s.median(other)
		return a / max(a, b), okA && okB && a > 0
	}
}

func figure(e entry) func(s *sheet) (float64, bool) {
	return func(s *sheet) (float64, bool) { return s.median(e) }
}

const (
	ours     = "jobq, tuned"
	oursAsIs = "jobq, defaults"
	perSec   = "jobs/s"

	beforeTuned = before + ", tuned"
	beforeAsIs  = before + ", defaults"
)

// heartbeats is what 1,000 running jobs cost, with what an idle server costs
// taken off.
func heartbeats(s *sheet) (float64, bool) {
	sum := 0.0
	for _, name := range []string{clientShare, serverShare} {
		with, ok := s.median(entry{"idle", "1000 running jobs", oursAsIs, name})
		if !ok {
			return 0, false
		}
		sum += with
	}
	idle, ok := s.median(entry{"idle", "", nobody, serverShare})
	return sum - idle, ok
}

// heartbeatsAlone is what the leases of 1,000 running jobs cost, claimed together: what a process costs that has as many
// slots and runs nothing is taken off, on both sides.
func heartbeatsAlone(s *sheet) (float64, bool) {
	sum := 0.0
	for _, name := range []string{clientShare, serverShare} {
		busy, ok := s.median(entry{"idle", count(runningJobs, "running job"), oursAsIs, name})
		idle, okIdle := s.median(entry{"idle", fmt.Sprintf("%d slots", runningJobs), ours, name})
		if !ok || !okIdle {
			return 0, false
		}
		sum += busy - idle
	}
	return max(sum, 0), true
}

// asyncTail is the p99 of a pickup, of the best peer's, where no commit waits
// for the disk.
func asyncTail(s *sheet) (float64, bool) {
	best, all := math.Inf(1), true
	for _, peer := range []string{"river, tuned", "graphile-worker, tuned", "pg-boss, tuned"} {
		p99, ok := s.median(entry{"latency", asyncCommit, peer, "p99 ms"})
		best, all = min(best, p99), all && ok
	}
	ours, ok := s.median(entry{"latency", asyncCommit, oursAsIs, "p99 ms"})
	return ours / best, all && ok
}

func drainOf(contender string) entry { return entry{"drain", "", contender, perSec} }

// bars are those of the project that can be put as one number.
func (l *lab) bars() []bar {
	many := func(what string, jobs int) string { return measure.Short(float64(jobs)) + " " + what }
	one, batch := enqueueName(1, 1), enqueueName(enqueueBatch, 1)
	busy := fmt.Sprintf("%d writers, workers busy", busyWriters)
	const bare, triggers = "plain INSERT, no triggers", "plain INSERT, with jobq's triggers"
	return []bar{
		{"1. drain, of graphile-worker's", ratio(drainOf(ours), drainOf("graphile-worker, tuned")), 1.5, false},
		{"1. drain, of pg-boss's", ratio(drainOf(ours), drainOf("pg-boss, tuned")), 1.5, false},
		{"1. drain, of River's", ratio(drainOf(ours), drainOf("river, tuned")), 3, false},
		{"1. drain, of hand-written SQL", ratio(drainOf(ours), drainOf("hand-written SQL")), 0.7, false},
		{"2. drain at defaults, of our best", ofBest(drainOf(oursAsIs), drainOf(ours)), 0.8, false},
		{"3. enqueue one, time of a bare INSERT's", ratio(entry{"enqueue", one, bare, perSec}, entry{"enqueue", one, "jobq", perSec}), 1.1, true},
		{"3. enqueue many, of graphile-worker's", ratio(entry{"enqueue", batch, "jobq", perSec}, entry{"enqueue", batch, "graphile-worker", perSec}), 1, false},
		{"3. enqueue many, of pg-boss's", ratio(entry{"enqueue", batch, "jobq", perSec}, entry{"enqueue", batch, "pg-boss", perSec}), 1, false},
		{"3. enqueue many, of River's COPY", ratio(entry{"enqueue", batch, "jobq", perSec}, entry{"enqueue", batch, "river", perSec}), 1, false},
		{"3. 8 writers with triggers, of those without", ratio(entry{"triggers", busy, triggers, perSec}, entry{"triggers", busy, bare, perSec}), 0.95, false},
		{"4. pickup p50, of a bare NOTIFY's", ratio(entry{"latency", "", oursAsIs, "p50 ms"}, entry{"latency", "", bareNotify, "p50 ms"}), 1.5, true},
		{"4. pickup p50, of a NOTIFY's and a commit's", ratio(entry{"latency", "", oursAsIs, "p50 ms"}, entry{"latency", "", notifyWrite, "p50 ms"}), 1.5, true},
		{"4. pickup p99, of River's", ratio(entry{"latency", "", oursAsIs, "p99 ms"}, entry{"latency", "", "river, tuned", "p99 ms"}), 1, true},
		{"4. pickup p99, of graphile-worker's", ratio(entry{"latency", "", oursAsIs, "p99 ms"}, entry{"latency", "", "graphile-worker, tuned", "p99 ms"}), 1, true},
		{"4. pickup p99, of pg-boss's", ratio(entry{"latency", "", oursAsIs, "p99 ms"}, entry{"latency", "", "pg-boss, tuned", "p99 ms"}), 1, true},
		{"4. pickup p99, of the best peer's, synchronous_commit off", asyncTail, 1, true},
		{"4. scheduled p99, ms", figure(entry{"latency", "scheduled", oursAsIs, "p99 ms"}), 20, true},
		{"5. drain with a backlog, of without", ratio(entry{"backlog", many("waiting", l.scaled(manyJobs)), ours, perSec}, entry{"backlog", many("waiting", 0), ours, perSec}), 0.9, false},
		{"5. drain with a history, of without", ratio(entry{"history", many("finished", l.scaled(manyJobs)), ours, perSec}, entry{"history", many("finished", 0), ours, perSec}), 0.9, false},
		{"5. transaction open: the end, of without", ratio(entry{"held", "transaction open", ours, "last tenth, jobs/s"}, entry{"held", "nothing open", ours, "last tenth, jobs/s"}), 0.8, false},
		{"5. transaction open: the end, of its best tenth", ratio(entry{"held", "transaction open", ours, "last tenth, jobs/s"}, entry{"held", "transaction open", ours, "best tenth, jobs/s"}), 0.8, false},
		{"5. transaction open: jobs", figure(entry{"held", "transaction open", ours, "jobs in all"}), 1_000_000, false},
		{"6. server CPU, µs a job", figure(entry{"drain", "", ours, "server µs/job"}), 40, true},
		{"6. client CPU, µs a job", figure(entry{"drain", "", ours, "client µs/job"}), 20, true},
		{"6. WAL, bytes a job", figure(entry{"drain", "", ours, "WAL B/job"}), 900, true},
		{"6. 1,000 running jobs: % of a core, both sides", heartbeats, 1, true},
		{"7. idle: statements a second", figure(entry{"idle", "", oursAsIs, "statements/s"}), 0.5, true},
		{"7. idle with 1,000 slots, of with 10", ratio(entry{"idle", "1000 slots", ours, "statements/s"}, entry{"idle", "10 slots", ours, "statements/s"}), 1.2, true},
		{"8. 8 processes, of one", ratio(entry{"scaling", count(8, "process"), ours, perSec}, entry{"scaling", count(1, "process"), ours, perSec}), 1, false},
		{"8. one job, 50 idle workers: claims", figure(entry{"herd", fmt.Sprintf("%d idle workers, 1 job", herdWorkers), oursAsIs, "claims a job"}), 5, true},
	}
}

// layoutBars are those of the second table layout (docs/decisions/0013): beside the commit before it, the peers, and as figures.
func layoutBars() []bar {
	ofBefore := func(figure string) func(s *sheet) (float64, bool) {
		return ratio(entry{"latency", "", oursAsIs, figure}, entry{"latency", "", beforeAsIs, figure})
	}
	return []bar{
		{"layout: drain, of the commit before", ratio(drainOf(ours), drainOf(beforeTuned)), 1.4, false},
		{"layout: drain, of graphile-worker's", ratio(drainOf(ours), drainOf("graphile-worker, tuned")), 2.2, false},
		{"layout: drain, of River's", ratio(drainOf(ours), drainOf("river, tuned")), 4, false},
		{"layout: server CPU, µs a job", figure(entry{"drain", "", ours, "server µs/job"}), 20, true},
		{"layout: server CPU, µs a job, as aimed at", figure(entry{"drain", "", ours, "server µs/job"}), 17, true},
		{"layout: WAL, bytes a job", figure(entry{"drain", "", ours, "WAL B/job"}), 480, true},
		{"layout: heartbeats of 1,000 jobs claimed together, % of a core", heartbeatsAlone, 0.2, true},
		{"layout: pickup p50, of the commit before", ofBefore("p50 ms"), 1, true},
		{"layout: pickup p99, of the commit before", ofBefore("p99 ms"), 1, true},
	}
}

// missed says why bars are missed, and what was tried: by hand, since no program
// knows.
//
//go:embed missed.md
var missed string

// writeBars writes the bars, also those that were not measured.
func (l *lab) writeBars(out io.Writer) {
	fmt.Fprint(out, "\n## Bars\n\nWhat the project asks of itself, as ratios of medians within this run.\n\n| | value | bar | |\n|---|---:|---:|---|\n")
	for _, b := range append(l.bars(), layoutBars()...) {
		value, ok := b.value(l.sheet)
		sign, met := "≥", value >= b.limit
		if b.most {
			sign, met = "≤", value <= b.limit
		}
		if !ok {
			fmt.Fprintf(out, "| %s | | %s %s | not measured |\n", b.what, sign, number(b.limit))
			continue
		}
		verdict := "met"
		if !met {
			verdict = "**not met**"
		}
		fmt.Fprintf(out, "| %s | %s | %s %s | %s |\n", b.what, number(value), sign, number(b.limit), verdict)
	}
	fmt.Fprintf(out, "\n%s", missed)
}
