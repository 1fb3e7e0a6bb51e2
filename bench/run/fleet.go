package main

import (
	"context"
	"time"

	"github.com/jobq-dev/jobq/bench/child"
	"github.com/jobq-dev/jobq/bench/sheet"
	"github.com/jobq-dev/jobq/bench/stage"
)

const (
	fleetSeconds = 20
	fleetLook    = 50 * time.Millisecond
)

// fleetSizes are numbers of worker processes, as many hosts would have them.
func fleetSizes() []int { return []int{1, 8, 64} }

// runFleet measures what many worker processes are to one server, each with the defaults: with nothing to do,
// and with a backlog.
func (l *lab) runFleet(ctx context.Context) error {
	l.now.Rounds = 1
	for _, size := range fleetSizes() {
		for _, c := range l.Chosen(oursAsIs) {
			if err := l.with(ctx, c, func(b *bed) error { return b.fleet(ctx, size) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// fleet is idle first, and then drains.
func (b *bed) fleet(ctx context.Context, size int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the processes when one of them fails
	crew, err := b.Muster(ctx, size, child.Order{ReportMs: reportEvery})
	if err != nil {
		return err
	}
	if err := stage.Begin(crew...); err != nil {
		return err
	}
	child.Pause(ctx, max(time.Duration(min(b.scale, 1)*float64(idleSettle)), idleSettleMin))
	test := sheet.Count(size, "process")
	if err := b.strain(ctx, test+", idle", crew, func() error {
		child.Pause(ctx, time.Duration(max(b.seconds(fleetSeconds), idleSecondsMin)*float64(time.Second)))
		return ctx.Err()
	}); err != nil {
		return err
	}
	if err := b.strain(ctx, test+", a backlog", crew, func() error {
		if err := b.Add(ctx, b.scaled(drainJobs)); err != nil {
			return err
		}
		all, err := stage.AwaitRan(ctx, crew, int64(b.Filled), 3*drainLimit)
		if err == nil && !all {
			b.problem("%s: not all of %d jobs had run after %s", test, b.Filled, 3*drainLimit)
		}
		return err
	}); err != nil {
		return err
	}
	for _, process := range crew {
		if _, err := process.Stop(); err != nil {
			return err
		}
	}
	return b.checkLeft(ctx, int64(b.Filled))
}

// strain puts down what the server bears while work is done: sessions, statements, CPU, WAL, and how many
// sessions wait for a lock.
func (b *bed) strain(ctx context.Context, test string, crew []*stage.Process, work func() error) error {
	ran := func() (sum int64) {
		for _, process := range crew {
			sum += process.Say().Ran
		}
		return sum
	}
	looks := b.look(ctx)
	calls, err := b.Statements(ctx)
	if err != nil {
		return err
	}
	before, err := b.Meter.Read(ctx)
	if err != nil {
		return err
	}
	first := ran()
	if err := work(); err != nil {
		return err
	}
	after, err := b.Meter.Read(ctx)
	if err != nil {
		return err
	}
	callsAfter, err := b.Statements(ctx)
	if err != nil {
		return err
	}
	seen, err := looks()
	if err != nil {
		return err
	}
	usage, jobs := b.Meter.Since(before, after), ran()-first
	elapsed := usage.Elapsed.Seconds()
	put := func(figure string, value float64) { b.sheet.Put(sheet.Of("fleet", test, b.String(), figure), value) }
	put(perSec, float64(jobs)/elapsed)
	put("sessions, most", float64(seen.sessions))
	put("statements/s", max(float64(callsAfter-calls-seen.looks), 0)/elapsed) // without the looks
	put(serverShare, 100*usage.ServerCPU.Seconds()/elapsed)
	put("WAL kB/s", float64(usage.WALBytes)/1000/elapsed)
	put("wait for a lock, on average", float64(seen.waits)/float64(max(seen.looks, 1)))
	put("wait for a lock, most", float64(seen.waitsMost))
	b.say("%-10s %-28s %-28s %8.0f jobs/s, %d sessions, locks %v", "fleet", test, b.Contender, float64(jobs)/elapsed, seen.sessions, seen.events)
	return nil
}

// seen is what looks at the sessions came to. Sessions of the bench itself do not count.
type seen struct {
	looks                      int64
	sessions, waits, waitsMost int
	events                     map[string]int // what was waited for, and how often it was seen
}

// look looks at the sessions every now and then, until the function that it returns is called.
func (b *bed) look(ctx context.Context) (stop func() (seen, error)) {
	ctx, cancel := context.WithCancel(ctx)
	type result struct {
		seen
		err error
	}
	done := make(chan result, 1)
	go func() {
		r := result{seen: seen{events: make(map[string]int)}}
		for ctx.Err() == nil {
			var sessions, waits int
			var events []string
			r.err = b.Pool.QueryRow(ctx, `select count(*), count(*) filter (where wait_event_type = 'Lock'), coalesce(array_agg(wait_event) filter (where wait_event_type = 'Lock'), '{}')
				from pg_stat_activity where datname = current_database() and backend_type = 'client backend' and application_name <> $1`, stage.Name).
				Scan(&sessions, &waits, &events)
			if r.err != nil {
				break
			}
			r.looks, r.waits = r.looks+1, r.waits+waits
			for _, event := range events {
				r.events[event]++
			}
			r.sessions, r.waitsMost = max(r.sessions, sessions), max(r.waitsMost, waits)
			child.Pause(ctx, fleetLook)
		}
		if ctx.Err() != nil {
			r.err = nil // told to stop
		}
		done <- r
	}()
	return func() (seen, error) {
		cancel()
		r := <-done
		return r.seen, r.err
	}
}
