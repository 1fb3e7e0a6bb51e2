package main

import (
	_ "embed" // for what is written by hand
	"fmt"
	"io"
	"math"

	"github.com/jobq-dev/jobq/bench/sheet"
	"github.com/jobq-dev/jobq/bench/stage"
	"github.com/jobq-dev/jobq/internal/measure"
)

const (
	ours     = "jobq, tuned"
	oursAsIs = "jobq, defaults"
	perSec   = "jobs/s"

	beforeTuned = stage.Before + ", tuned"
	beforeAsIs  = stage.Before + ", defaults"
)

// heartbeats is what 1,000 running jobs cost, with what an idle server costs
// taken off.
func heartbeats(s *sheet.Sheet) (float64, bool) {
	sum := 0.0
	for _, name := range []string{clientShare, serverShare} {
		with, ok := s.Median(sheet.Of("idle", "1000 running jobs", oursAsIs, name))
		if !ok {
			return 0, false
		}
		sum += with
	}
	idle, ok := s.Median(sheet.Of("idle", "", nobody, serverShare))
	return sum - idle, ok
}

// tailOfBest is our p99 of a pickup, of that of the best peer with the same settings: tuned beside tuned, defaults beside defaults.
func tailOfBest(test, ours string, peers ...string) func(s *sheet.Sheet) (float64, bool) {
	return func(s *sheet.Sheet) (float64, bool) {
		best, all := math.Inf(1), true
		for _, peer := range peers {
			p99, ok := s.Median(sheet.Of("latency", test, peer, "p99 ms"))
			best, all = min(best, p99), all && ok
		}
		mine, ok := s.Median(sheet.Of("latency", test, ours, "p99 ms"))
		return mine / best, all && ok
	}
}

func drainOf(contender string) sheet.Entry { return sheet.Of("drain", "", contender, perSec) }

// bars are those of the project that can be put as one number.
func (l *lab) bars() []sheet.Bar {
	many := func(what string, jobs int) string { return measure.Short(float64(jobs)) + " " + what }
	one, batch := enqueueName(1, 1), enqueueName(enqueueBatch, 1)
	busy := fmt.Sprintf("%d writers, workers busy", busyWriters)
	const bare, triggers = "plain INSERT, no triggers", "plain INSERT, with jobq's triggers"
	return []sheet.Bar{
		{What: "1. drain, of graphile-worker's", Value: sheet.Ratio(drainOf(ours), drainOf("graphile-worker, tuned")), Limit: 1.5},
		{What: "1. drain, of pg-boss's", Value: sheet.Ratio(drainOf(ours), drainOf("pg-boss, tuned")), Limit: 1.5},
		{What: "1. drain, of River's", Value: sheet.Ratio(drainOf(ours), drainOf("river, tuned")), Limit: 3},
		{What: "1. drain, of hand-written SQL", Value: sheet.Ratio(drainOf(ours), drainOf("hand-written SQL")), Limit: 0.7},
		{What: "2. drain at defaults, of our best", Value: sheet.OfBest(drainOf(oursAsIs), drainOf(ours)), Limit: 0.8},
		{What: "3. enqueue one, time of a bare INSERT's", Value: sheet.Ratio(sheet.Of("enqueue", one, bare, perSec), sheet.Of("enqueue", one, "jobq", perSec)), Limit: 1.1, Most: true},
		{What: "3. enqueue many, of graphile-worker's", Value: sheet.Ratio(sheet.Of("enqueue", batch, "jobq", perSec), sheet.Of("enqueue", batch, "graphile-worker", perSec)), Limit: 1},
		{What: "3. enqueue many, of pg-boss's", Value: sheet.Ratio(sheet.Of("enqueue", batch, "jobq", perSec), sheet.Of("enqueue", batch, "pg-boss", perSec)), Limit: 1},
		{What: "3. enqueue many, of River's COPY", Value: sheet.Ratio(sheet.Of("enqueue", batch, "jobq", perSec), sheet.Of("enqueue", batch, "river", perSec)), Limit: 1},
		{What: "3. 8 writers with triggers, of those without", Value: sheet.Ratio(sheet.Of("triggers", busy, triggers, perSec), sheet.Of("triggers", busy, bare, perSec)), Limit: 0.95},
		{What: "4. pickup p50, of a bare NOTIFY's", Value: sheet.Ratio(sheet.Of("latency", "", oursAsIs, "p50 ms"), sheet.Of("latency", "", bareNotify, "p50 ms")), Limit: 1.5, Most: true},
		{What: "4. pickup p50, of a NOTIFY's and a commit's", Value: sheet.Ratio(sheet.Of("latency", "", oursAsIs, "p50 ms"), sheet.Of("latency", "", notifyWrite, "p50 ms")), Limit: 1.5, Most: true},
		{What: "4. pickup p99, of River's", Value: sheet.Ratio(sheet.Of("latency", "", ours, "p99 ms"), sheet.Of("latency", "", "river, tuned", "p99 ms")), Limit: 1, Most: true},
		{What: "4. pickup p99, of graphile-worker's", Value: sheet.Ratio(sheet.Of("latency", "", ours, "p99 ms"), sheet.Of("latency", "", "graphile-worker, tuned", "p99 ms")), Limit: 1, Most: true},
		{What: "4. pickup p99, of pg-boss's", Value: sheet.Ratio(sheet.Of("latency", "", ours, "p99 ms"), sheet.Of("latency", "", "pg-boss, tuned", "p99 ms")), Limit: 1, Most: true},
		{What: "4. pickup p99, of the best peer's, synchronous_commit off", Value: tailOfBest(asyncCommit, ours, "river, tuned", "graphile-worker, tuned", "pg-boss, tuned"), Limit: 1, Most: true},
		{What: "4. pickup p99 at defaults, of the best peer's at its defaults", Value: tailOfBest("", oursAsIs, "river, defaults", "graphile-worker, defaults"), Limit: 1, Most: true},
		{What: "4. scheduled p99, ms", Value: sheet.Figure(sheet.Of("latency", "scheduled", oursAsIs, "p99 ms")), Limit: 20, Most: true},
		{What: "5. drain with a backlog, of without", Value: sheet.Ratio(sheet.Of("backlog", many("waiting", l.scaled(manyJobs)), ours, perSec), sheet.Of("backlog", many("waiting", 0), ours, perSec)), Limit: 0.9},
		{What: "5. drain with a history, of without", Value: sheet.Ratio(sheet.Of("history", many("finished", l.scaled(manyJobs)), ours, perSec), sheet.Of("history", many("finished", 0), ours, perSec)), Limit: 0.9},
		{What: "5. transaction open: the end, of without", Value: sheet.Ratio(sheet.Of("held", "transaction open", ours, "last tenth, jobs/s"), sheet.Of("held", "nothing open", ours, "last tenth, jobs/s")), Limit: 0.8},
		{What: "5. transaction open: the end, of its best tenth", Value: sheet.Ratio(sheet.Of("held", "transaction open", ours, "last tenth, jobs/s"), sheet.Of("held", "transaction open", ours, "best tenth, jobs/s")), Limit: 0.8},
		{What: "5. transaction open: jobs", Value: sheet.Figure(sheet.Of("held", "transaction open", ours, "jobs in all")), Limit: 1_000_000},
		{What: "6. server CPU, µs a job", Value: sheet.Figure(sheet.Of("drain", "", ours, "server µs/job")), Limit: 40, Most: true},
		{What: "6. client CPU, µs a job", Value: sheet.Figure(sheet.Of("drain", "", ours, "client µs/job")), Limit: 20, Most: true},
		{What: "6. WAL, bytes a job", Value: sheet.Figure(sheet.Of("drain", "", ours, "WAL B/job")), Limit: 900, Most: true},
		{What: "6. 1,000 running jobs: % of a core, both sides", Value: heartbeats, Limit: 1, Most: true},
		{What: "7. idle: statements a second", Value: sheet.Figure(sheet.Of("idle", "", oursAsIs, "statements/s")), Limit: 0.5, Most: true},
		{What: "7. idle with 1,000 slots, of with 10", Value: sheet.Ratio(sheet.Of("idle", "1000 slots", ours, "statements/s"), sheet.Of("idle", "10 slots", ours, "statements/s")), Limit: 1.2, Most: true},
		{What: "8. 8 processes, of one", Value: sheet.Ratio(sheet.Of("scaling", sheet.Count(8, "process"), ours, perSec), sheet.Of("scaling", sheet.Count(1, "process"), ours, perSec)), Limit: 1},
		{What: "8. one job, 50 idle workers: claims", Value: sheet.Figure(sheet.Of("wakeup", fmt.Sprintf("%d idle workers, 1 job", wakeupWorkers), oursAsIs, "claims a job")), Limit: 5, Most: true},
		{What: "9. drain, of the earlier commit's", Value: sheet.Ratio(drainOf(ours), drainOf(beforeTuned)), Limit: 0.98},
		{What: "9. pickup p50, of the earlier commit's", Value: sheet.Ratio(sheet.Of("latency", "", oursAsIs, "p50 ms"), sheet.Of("latency", "", beforeAsIs, "p50 ms")), Limit: 1.02, Most: true},
		{What: "9. pickup p99, of the earlier commit's", Value: sheet.Ratio(sheet.Of("latency", "", oursAsIs, "p99 ms"), sheet.Of("latency", "", beforeAsIs, "p99 ms")), Limit: 1.02, Most: true},
	}
}

// missed says why bars are missed, and what was tried: by hand, since no program
// knows.
//
//go:embed missed.md
var missed string

// writeBars writes all bars, and why some are missed.
func (l *lab) writeBars(out io.Writer) {
	fmt.Fprint(out, "\n## Bars\n\nWhat the project asks of itself, as ratios of medians within this run.\n\n")
	sheet.WriteBars(out, l.sheet, l.bars())
	fmt.Fprintf(out, "\n%s", missed)
}
