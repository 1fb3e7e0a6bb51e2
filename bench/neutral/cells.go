package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jobq-dev/jobq/bench/child"
	"github.com/jobq-dev/jobq/bench/sheet"
	"github.com/jobq-dev/jobq/bench/stage"
)

const (
	depth        = 4_000
	chaosSlots   = 64
	queueSlots   = 64
	starveSlots  = 16 // few, so that jobs are added faster than they run
	manyQueues   = 4
	perSec       = "jobs/s"
	unfinished   = "unfinished"
	ratioDuring  = "during ÷ before"
	ratioAfter   = "after ÷ before"
	oneQueue     = "1 queue"
	severalQueue = "4 queues"
)

// slotCounts are those of the throughput cells.
func slotCounts() []int { return []int{4, 16, 64, 128, 256} }

// section is a group of cells, and the title under which they stand.
type section struct {
	name, title, about string
	run                func(l *lab, ctx context.Context) error
}

func sections() []section {
	return []section{
		{
			"throughput", "Throughput with work of 1 ms", "4,000 jobs of 256 B are kept waiting while they run. Ideal is a thousand jobs a second for each slot: what is missing is the CPU " +
				"of both sides (two cores have 2,000,000 µs a second) and timers that fire late: a pause of 1 ms takes longer, most of all in a Go process that does other things at the time. " +
				"A system whose slots are busy all the time cannot run more. " +
				"Reported there, on a larger machine, at 4 / 16 / 64 / 128 / 256 slots: awa 427 / 1,729 / 5,369 / 8,499 / 14,158; pg-boss 512 / 2,048 / 2,387 / 2,387 / 2,356; River 79 / 317 / 501 / 491; pgmq 3,571 / 11,277 / 10,243 / 6,180 / 3,252.",
			(*lab).runThroughput,
		},
		{
			"chaos", "Chaos", "Jobs are added at a fixed rate, 64 slots a process. The rate afterwards beside the one before, and the jobs that had not finished when nothing had been added for a while: " +
				"those that nobody works on count as lost here, even where the system would take them up hours later. " +
				"Reported there: awa, PgQue and River recover from all; pg-boss's process ends in the first two; Oban 0 % after the restart; Procrastinate 0 %, 0 %, 18 %.",
			(*lab).runChaos,
		},
		{
			"pressure", "Pressure", "The same rate, with something that presses on the server. Reported there: five of eight systems time out in one or more; beside readers pgmq falls to 0.39, awa to 0.71–0.80.",
			(*lab).runPressure,
		},
		{
			"queues", "Several queues", "64 slots in one process, for one queue and for four with a quarter each, 4,000 jobs kept waiting. graphile-worker has no queues in this sense. Reported there: awa loses 27 %.",
			(*lab).runQueues,
		},
		{
			"starvation", "Starvation", "Nine jobs of high priority are added for each one of low priority, and more of the former always wait; 16 slots. jobq runs jobs of low priority that have waited for age_after, " +
				"which is 5 minutes unless it is set, and so longer than the cell: it is measured as it is, and with age_after of 5 s. Reported there: awa's ageing never fired.",
			(*lab).runStarvation,
		},
	}
}

// times are how long the parts of a cell last.
type times struct {
	Settle, Throughput, Before, During, Burst, After, Starve, DrainLimit time.Duration
}

// standard fit into an hour for four systems, what starts in between included; short show that everything works.
var (
	standard = times{
		Settle: 3 * time.Second, Throughput: 7 * time.Second, Before: 6 * time.Second, During: 10 * time.Second,
		Burst: 5 * time.Minute, After: 8 * time.Second, Starve: 40 * time.Second, DrainLimit: 25 * time.Second,
	}
	short = times{
		Settle: 3 * time.Second, Throughput: time.Second, Before: time.Second, During: 3 * time.Second,
		Burst: 3 * time.Second, After: 2 * time.Second, Starve: 2 * time.Second, DrainLimit: 10 * time.Second,
	}
)

// cellStart is what a database and a process take to begin, on two cores that do nothing else.
const cellStart = 4 * time.Second

// most is the longest that all cells take with so many systems.
func (t times) most(systems int) time.Duration {
	perSystem := time.Duration(len(slotCounts()))*(cellStart+t.Settle+t.Throughput) +
		time.Duration(len(chaos()))*(cellStart+t.Settle+t.Before+t.During+t.After+t.DrainLimit) +
		time.Duration(len(pressure())-1)*(cellStart+t.Settle+t.Before+t.During+t.After) +
		cellStart + t.Settle + t.Before + t.Burst + t.After +
		2*(cellStart+t.Settle+t.Throughput) + cellStart + t.Starve
	return time.Duration(systems)*perSystem + cellStart + t.Starve // jobq starves twice
}

// contenders are the tuned ones that take part.
func (l *lab) contenders(but ...string) []stage.Contender {
	all := l.Chosen("jobq, tuned", "river, tuned", "graphile-worker, tuned", "pg-boss, tuned")
	return slices.DeleteFunc(all, func(c stage.Contender) bool { return slices.Contains(but, c.Name) })
}

// cell lets a contender work in a database of its own. What goes wrong in it is a problem of the report: the other cells go on.
func (l *lab) cell(ctx context.Context, section, test string, c stage.Contender, work func(ctx context.Context, d *stage.Database) error) error {
	err := l.With(ctx, c, func(d *stage.Database) error {
		cellCtx, cancel := context.WithCancel(ctx)
		defer cancel() // ends the processes
		return work(cellCtx, d)
	})
	if err != nil && ctx.Err() == nil {
		l.problem("%s, %s, %s: %v", section, test, c.Name, err)
		return nil
	}
	return err
}

func (l *lab) put(section, test string, c stage.Contender, figure string, value float64) {
	l.say("%-11s %-22s %-16s %-18s %s", section, test, c.Name, figure, sheet.Number(value))
	l.sheet.Put(sheet.Of(section, test, c.Name, figure), value)
}

// saturated measures a contender with so many jobs waiting all the time.
func (l *lab) saturated(ctx context.Context, section, test string, c stage.Contender, o child.Order) error {
	return l.cell(ctx, section, test, c, func(ctx context.Context, d *stage.Database) error {
		f := newFlow(d, o)
		f.feed(ctx, keep(depth, child.QueueNames(o.Queues)))
		if err := f.launch(ctx); err != nil {
			return err
		}
		child.Pause(ctx, l.times.Settle)
		before, err := d.Meter.Read(ctx)
		if err != nil {
			return err
		}
		ran, _ := f.ran()
		cpuBefore, busyBefore := f.used()
		child.Pause(ctx, l.times.Throughput)
		after, err := d.Meter.Read(ctx)
		if err != nil {
			return err
		}
		now, _ := f.ran()
		cpu, busy := f.used()
		if err := errors.Join(f.stopFeeding(), f.ended()); err != nil {
			return err
		}
		if now == ran {
			return errors.New("no job ran")
		}
		usage, jobs := d.Meter.Since(before, after), float64(now-ran)
		l.put(section, test, c, perSec, jobs/usage.Elapsed.Seconds())
		l.put(section, test, c, "of the ideal", jobs/usage.Elapsed.Seconds()/float64(1000*o.Slots))
		l.put(section, test, c, "slots busy", (busy-busyBefore).Seconds()/usage.Elapsed.Seconds()/float64(o.Slots))
		l.put(section, test, c, "a pause, ms", float64((busy-busyBefore).Microseconds())/1000/jobs)
		l.put(section, test, c, "server µs/job", float64(usage.ServerCPU.Microseconds())/jobs)
		l.put(section, test, c, "client µs/job", float64((cpu-cpuBefore).Microseconds())/jobs)
		return nil
	})
}

func slotsName(slots int) string { return fmt.Sprintf("%d slots", slots) }

func (l *lab) runThroughput(ctx context.Context) error {
	for _, slots := range slotCounts() {
		for _, c := range l.contenders() {
			if err := l.saturated(ctx, "throughput", slotsName(slots), c, child.Order{Slots: slots}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *lab) runQueues(ctx context.Context) error {
	for _, c := range l.contenders("graphile-worker") {
		for _, queues := range []int{1, manyQueues} {
			if err := l.saturated(ctx, "queues", sheet.Count(queues, "queue"), c, child.Order{Slots: queueSlots, Queues: queues}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *lab) runChaos(ctx context.Context) error { return l.troubled(ctx, "chaos", chaos()) }

func (l *lab) runPressure(ctx context.Context) error { return l.troubled(ctx, "pressure", pressure()) }

func (l *lab) troubled(ctx context.Context, section string, all []trouble) error {
	for _, t := range all {
		for _, c := range l.contenders() {
			err := l.cell(ctx, section, t.name, c, func(ctx context.Context, d *stage.Database) error { return l.under(ctx, section, t, d) })
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// under measures a contender before, during and after a trouble.
func (l *lab) under(ctx context.Context, section string, t trouble, d *stage.Database) error {
	f := newFlow(d, child.Order{Slots: chaosSlots})
	for range t.processes {
		if err := f.launch(ctx); err != nil {
			return err
		}
	}
	f.rate.Store(int64(l.rate))
	f.feed(ctx, f.atRate(time.Now))
	wait := func(duration time.Duration) func() error {
		return func() error { child.Pause(ctx, duration); return nil }
	}
	child.Pause(ctx, l.times.Settle)
	before, _ := f.measureRate(wait(l.times.Before))
	lasting := l.times.During
	if t.name == burst {
		lasting = l.times.Burst
	}
	use := stage.NewUse(lasting)
	if err := use.Now(ctx, d); err != nil {
		return err
	}
	during, err := f.measureRate(func() error { return t.make(ctx, l, f, lasting) })
	if err != nil {
		return fmt.Errorf("%s: %w", t.about, err)
	}
	if section == "pressure" {
		if err := use.Now(ctx, d); err != nil {
			return err
		}
	}
	after, _ := f.measureRate(wait(l.times.After))
	if err := f.stopFeeding(); err != nil {
		return err
	}
	if before == 0 {
		return errors.New("no job ran before the trouble")
	}
	c := d.Contender
	l.put(section, t.name, c, "before, jobs/s", before)
	l.put(section, t.name, c, ratioDuring, during/before)
	l.put(section, t.name, c, ratioAfter, after/before)
	if section == "pressure" {
		l.putUse(section, t.name, c, use)
		return f.ended()
	}
	left, err := f.drain(ctx, l.times.DrainLimit)
	if err != nil {
		return err
	}
	l.put(section, t.name, c, unfinished, float64(left))
	return f.ended()
}

func (l *lab) putUse(section, test string, c stage.Contender, use *stage.Use) {
	l.put(section, test, c, "dead rows", use.Dead.Values[len(use.Dead.Values)-1])
	l.put(section, test, c, "MB on disk", use.Disk.Values[len(use.Disk.Values)-1])
}

// aged is the case in which jobs of low priority have waited for too long within the cell.
const aged = "age_after 5 s"

func (l *lab) runStarvation(ctx context.Context) error {
	for _, c := range l.contenders() {
		tests := []string{""}
		if c.IsJobq() {
			tests = append(tests, aged)
		}
		for _, test := range tests {
			if err := l.cell(ctx, "starvation", test, c, func(ctx context.Context, d *stage.Database) error { return l.starve(ctx, test, d) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// starve measures what is left for jobs of low priority.
func (l *lab) starve(ctx context.Context, test string, d *stage.Database) error {
	if test == aged {
		if _, err := d.Pool.Exec(ctx, `select jobq.act_queue_set('bench', 'default', '{"age_after": "5 s"}')`); err != nil {
			return err
		}
	}
	f := newFlow(d, child.Order{Slots: starveSlots})
	f.feed(ctx, keepMixed(depth))
	if err := f.launch(ctx); err != nil {
		return err
	}
	began := time.Now()
	child.Pause(ctx, l.times.Starve)
	all, low := f.ran()
	seconds := time.Since(began).Seconds()
	if err := errors.Join(f.stopFeeding(), f.ended()); err != nil {
		return err
	}
	l.put("starvation", test, d.Contender, "high, jobs/s", float64(all-low)/seconds)
	l.put("starvation", test, d.Contender, "low, jobs/s", float64(low)/seconds)
	l.put("starvation", test, d.Contender, "low, of a fair share", float64(low)*9/float64(max(all-low, 1)))
	return nil
}
