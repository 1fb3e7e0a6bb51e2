package main

import (
	"context"
	"errors"
	"time"

	"github.com/jobq-dev/jobq/bench/child"
	"github.com/jobq-dev/jobq/bench/sheet"
	"github.com/jobq-dev/jobq/bench/stage"
	"github.com/jobq-dev/jobq/internal/measure"
)

const (
	drainJobs    = 100_000
	drainLimit   = 20 * time.Second // for systems that would take minutes: their rate shows by then
	reportEvery  = 20               // ms
	manyJobs     = 10_000_000
	processesMax = 8
	costJobsMin  = 1000
)

// drained is what a drain came to.
type drained struct {
	jobs                                                int64
	jobsPerSecond, serverMicros, clientMicros, walBytes float64
}

// drain lets some processes run jobs until so many have run, or the time is
// over, and checks that all that ran is stored.
func (b *bed) drain(ctx context.Context, jobs, processes int) (drained, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the processren when one of them fails
	children, err := b.Muster(ctx, processes, child.Order{ReportMs: reportEvery})
	if err != nil {
		return drained{}, err
	}
	before, err := b.Meter.Read(ctx)
	if err != nil {
		return drained{}, err
	}
	if err := stage.Begin(children...); err != nil {
		return drained{}, err
	}
	all, err := stage.AwaitRan(ctx, children, int64(jobs), drainLimit)
	if err != nil {
		return drained{}, err
	}
	var ran, cpu int64
	first, last := 0.0, 0.0
	for _, process := range children {
		end, err := process.Stop()
		if err != nil {
			return drained{}, err
		}
		ran, cpu = ran+end.Ran, cpu+end.CPUMicros-process.First().CPUMicros
		if end.Ran > 0 && (first == 0 || end.FirstMs < first) {
			first = end.FirstMs
		}
		last = max(last, end.LastMs)
	}
	after, err := b.Meter.Read(ctx)
	if err != nil {
		return drained{}, err
	}
	if !all {
		b.problem("%s, %s: stopped after %s, when %d of %d had run", b.Contender, sheet.Count(processes, "process"), drainLimit, ran, jobs)
	}
	if err := b.checkLeft(ctx, ran); err != nil {
		return drained{}, err
	}
	usage := b.Meter.Since(before, after)
	count := float64(max(ran, 1))
	return drained{
		jobs: ran, jobsPerSecond: count / max((last-first)/1000, 0.001), serverMicros: float64(usage.ServerCPU.Microseconds()) / count,
		clientMicros: float64(cpu) / count, walBytes: float64(usage.WALBytes) / count,
	}, nil
}

// checkLeft reports when jobs that ran are not stored as such, or others are.
func (b *bed) checkLeft(ctx context.Context, ran int64) error {
	var left int64
	if err := b.Pool.QueryRow(ctx, b.Left).Scan(&left); err != nil {
		return err
	}
	if left != int64(b.Filled)-ran {
		b.problem("%s: %d jobs ran, and %d of %d are left", b.Contender, ran, left, b.Filled)
	}
	b.Filled = int(left)
	return nil
}

// put records a drain.
func (l *lab) put(scenario, test string, c stage.Contender, d drained) {
	l.say("%-10s %-28s %-28s %8.0f/s", scenario, test, c, d.jobsPerSecond)
	for figure, value := range d.figures() {
		l.sheet.Put(sheet.Of(scenario, test, c.String(), figure), value)
	}
}

// figures in the order of a table's columns. What a process costs at its start
// hides what a job costs when there were few.
func (d drained) figures() func(yield func(string, float64) bool) {
	return func(yield func(string, float64) bool) {
		_ = yield("jobs/s", d.jobsPerSecond) && d.jobs >= costJobsMin && yield("server µs/job", d.serverMicros) &&
			yield("client µs/job", d.clientMicros) && yield("WAL B/job", d.walBytes)
	}
}

// runDrain drains the same number of jobs with every contender, in turns.
func (l *lab) runDrain(ctx context.Context) error {
	for range l.rounds {
		for _, c := range l.Chosen() {
			if err := l.drainOnce(ctx, c, "drain", "", 1); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *lab) drainOnce(ctx context.Context, c stage.Contender, scenario, test string, processes int) error {
	return l.with(ctx, c, func(b *bed) error {
		if err := b.Add(ctx, l.scaled(drainJobs)); err != nil {
			return err
		}
		if err := b.Settle(ctx); err != nil {
			return err
		}
		d, err := b.drain(ctx, b.Filled, processes)
		if err == nil {
			l.put(scenario, test, c, d)
		}
		return err
	})
}

// runScaling drains with more and more processes.
func (l *lab) runScaling(ctx context.Context) error {
	for range l.rounds {
		for processes := 1; processes <= processesMax; processes *= 2 {
			for _, c := range l.Chosen("jobq, tuned", "jobq, defaults", "graphile-worker, tuned", "river, tuned", "pg-boss, tuned", "hand-written SQL") {
				if err := l.drainOnce(ctx, c, "scaling", sheet.Count(processes, "process"), processes); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// runBacklog drains without and with very many jobs that wait behind.
func (l *lab) runBacklog(ctx context.Context) error {
	return l.obstructed(ctx, "backlog", "waiting", func(b *bed, jobs int) error { return b.Add(ctx, jobs) })
}

// runHistory drains without and with very many jobs that have finished.
func (l *lab) runHistory(ctx context.Context) error {
	return l.obstructed(ctx, "history", "finished", func(b *bed, jobs int) error {
		if b.FillHistory == "" {
			return nil // the system keeps none: it has nothing in its way
		}
		return b.Chunks(ctx, b.FillHistory, 1, jobs)
	})
}

// obstructed drains in turns from a database with nothing in the way and from
// one with very much, so that the machine's moods meet both.
func (l *lab) obstructed(ctx context.Context, scenario, what string, obstruct func(b *bed, jobs int) error) error {
	many := l.scaled(manyJobs)
	for _, c := range l.Chosen("jobq, tuned", "jobq, defaults", "river, tuned", "graphile-worker, tuned") {
		err := l.with(ctx, c, func(full *bed) error {
			l.say("%-10s %s: making %d jobs", scenario, c, many)
			if err := errors.Join(obstruct(full, many), full.Settle(ctx)); err != nil {
				return err
			}
			return l.with(ctx, c, func(empty *bed) error {
				for range l.rounds {
					if err := empty.drainSome(ctx, scenario, "0 "+what); err != nil {
						return err
					}
					if err := full.drainSome(ctx, scenario, measure.Short(float64(many))+" "+what); err != nil {
						return err
					}
				}
				return nil
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// drainSome adds as many jobs as it drains.
func (b *bed) drainSome(ctx context.Context, scenario, test string) error {
	jobs := b.scaled(drainJobs)
	if err := b.Add(ctx, jobs); err != nil {
		return err
	}
	if err := b.Settle(ctx); err != nil {
		return err
	}
	d, err := b.drain(ctx, jobs, 1)
	if err == nil {
		b.put(scenario, test, b.Contender, d)
	}
	return err
}
