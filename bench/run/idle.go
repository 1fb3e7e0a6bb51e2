package main

import (
	"context"
	"fmt"
	"time"
)

const (
	idleSeconds = 30
	// idleSettle is longer than what any of them does once at its start.
	idleSettle  = 12 * time.Second
	runningJobs = 1000
	// heartbeatSeconds are long enough for every lease to be extended, which
	// happens every 20 s.
	heartbeatSeconds = 60
	herdWorkers      = 50
	herdSettle       = 2 * time.Second
	longHandler      = 600_000 // ms: longer than any scenario

	nobody      = "no worker"
	clientShare = "client CPU, % of a core"
	serverShare = "server CPU, % of a core"
)

// runIdle counts what one idle worker process sends, and what it costs; jobq
// with few slots and with very many, and with jobs that only run. What the
// server costs when nobody does anything stands first.
func (l *lab) runIdle(ctx context.Context) error {
	for _, c := range l.chosen("jobq, defaults") {
		if err := l.with(ctx, c, func(b *bed) error { return b.watch(ctx, "", nobody, nil, l.seconds(idleSeconds)) }); err != nil {
			return err
		}
		if err := l.with(ctx, c, func(b *bed) error { return b.heartbeats(ctx) }); err != nil {
			return err
		}
	}
	for _, c := range l.chosen("jobq", "graphile-worker", "river", "pg-boss") {
		slots := []int{0}
		if c.name == "jobq" && c.tuned {
			slots = []int{10, 1000}
		}
		for _, number := range slots {
			test := ""
			if number > 0 {
				test = fmt.Sprintf("%d slots", number)
			}
			if err := l.with(ctx, c, func(b *bed) error { return b.idle(ctx, test, number) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// idle watches a worker that has nothing to do.
func (b *bed) idle(ctx context.Context, test string, slots int) error {
	child, err := launch(ctx, b.peers, b.contender, b.url, "work", order{ReportMs: 1000, Slots: slots})
	if err != nil {
		return err
	}
	defer func() { _ = child.cmd.Process.Kill() }() // when it has not ended below
	if err := child.awaitReady(); err != nil {
		return err
	}
	if err := b.watch(ctx, test, b.String(), child, b.seconds(idleSeconds)); err != nil {
		return err
	}
	_, err = child.stop()
	return err
}

// heartbeats watches a worker whose jobs all run, and do nothing else.
func (b *bed) heartbeats(ctx context.Context) error {
	if err := b.add(ctx, runningJobs); err != nil {
		return err
	}
	child, err := launch(ctx, b.peers, b.contender, b.url, "work", order{ReportMs: 1000, Slots: runningJobs, HandlerMs: longHandler})
	if err != nil {
		return err
	}
	defer func() { _ = child.cmd.Process.Kill() }() // its jobs do not end
	if err := awaitRan(ctx, []*running{child}, runningJobs); err != nil {
		return err
	}
	return b.watch(ctx, count(runningJobs, "running job"), b.String(), child, b.seconds(heartbeatSeconds))
}

// watch measures for some seconds while nothing is asked of anybody.
func (b *bed) watch(ctx context.Context, test, name string, child *running, seconds float64) error {
	pause(ctx, time.Duration(min(b.scale, 1)*float64(idleSettle)))
	before, err := b.meter.Read(ctx)
	if err != nil {
		return err
	}
	calls, err := b.statements(ctx)
	if err != nil {
		return err
	}
	var cpu int64
	if child != nil {
		cpu = -child.say().CPUMicros
	}
	pause(ctx, time.Duration(seconds*float64(time.Second)))
	callsAfter, err := b.statements(ctx)
	if err != nil {
		return err
	}
	after, err := b.meter.Read(ctx)
	if err != nil {
		return err
	}
	if child != nil {
		cpu += child.say().CPUMicros
	}
	usage := b.meter.Since(before, after)
	elapsed := usage.Elapsed.Seconds()
	rate := float64(callsAfter-calls) / elapsed
	b.say("%-10s %-28s %-28s %.2f statements/s", "idle", test, name, rate)
	b.sheet.put(entry{"idle", test, name, "statements/s"}, rate)
	b.sheet.put(entry{"idle", test, name, clientShare}, float64(cpu)/1e4/elapsed)
	b.sheet.put(entry{"idle", test, name, serverShare}, 100*usage.ServerCPU.Seconds()/elapsed)
	return ctx.Err()
}

// runHerd wakes many idle workers with one job, and counts what they send
// because of it.
func (l *lab) runHerd(ctx context.Context) error {
	for _, c := range l.chosen("jobq, defaults") {
		err := l.with(ctx, c, func(b *bed) error {
			child, err := launch(ctx, b.peers, b.contender, b.url, "work", order{ReportMs: 100, Workers: herdWorkers})
			if err != nil {
				return err
			}
			defer func() { _ = child.cmd.Process.Kill() }() // when it has not ended below
			if err := child.awaitReady(); err != nil {
				return err
			}
			pause(ctx, time.Duration(min(b.scale, 1)*float64(idleSettle)))
			counts := make([]int64, 3)
			for i := range counts { // a while without, and a while with the job
				if i == 2 {
					if err := b.add(ctx, 1); err != nil {
						return err
					}
				}
				if i > 0 {
					pause(ctx, herdSettle)
				}
				if counts[i], err = b.statements(ctx); err != nil {
					return err
				}
			}
			extra := counts[2] - counts[1] - (counts[1] - counts[0])
			b.say("%-10s %-28s %-28s %d statements more", "herd", fmt.Sprintf("%d idle workers, 1 job", herdWorkers), c, extra)
			l.sheet.put(entry{"herd", fmt.Sprintf("%d idle workers, 1 job", herdWorkers), c.String(), "statements more"}, float64(extra))
			_, err = child.stop()
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
