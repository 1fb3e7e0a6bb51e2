package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jobq-dev/jobq/bench/child"
	"github.com/jobq-dev/jobq/bench/sheet"
	"github.com/jobq-dev/jobq/bench/stage"
)

const (
	idleSeconds = 60
	// idleSettle is longer than what any of them does once at its start.
	idleSettle = 12 * time.Second
	// At any scale, what happens every few seconds must show.
	idleSecondsMin = 10.0
	idleSettleMin  = 5 * time.Second
	runningJobs    = 1000
	// heartbeatSeconds are long enough for every lease to be extended, which
	// happens every 20 s.
	heartbeatSeconds = 60
	wakeupWorkers    = 50
	wakeupJobs       = 20
	wakeupSettle     = 500 * time.Millisecond
	wakeupAcquainted = 12 * time.Second // until each has counted the others, with its heartbeat
	longHandler      = 600_000          // ms: longer than any scenario

	nobody      = "no worker"
	clientShare = "client CPU, % of a core"
	serverShare = "server CPU, % of a core"
)

// runIdle counts what one idle worker process sends, and what it costs; jobq
// with few slots and with very many, and with jobs that only run. What the
// server costs when nobody does anything stands first.
func (l *lab) runIdle(ctx context.Context) error {
	l.now.Rounds = 1
	for _, c := range l.Chosen(oursAsIs) {
		if err := l.with(ctx, c, func(b *bed) error { return b.watch(ctx, "", nobody, nil, l.seconds(idleSeconds)) }); err != nil {
			return err
		}
	}
	for _, c := range l.Chosen(oursAsIs, beforeAsIs) {
		if err := l.with(ctx, c, func(b *bed) error { return b.heartbeats(ctx) }); err != nil {
			return err
		}
	}
	for _, c := range l.Chosen("jobq", stage.Before, "graphile-worker", "river", "pg-boss") {
		slots := []int{0}
		if c.Name == "jobq" && c.Tuned {
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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the process when it has not ended below
	process, err := b.One(ctx, child.Order{ReportMs: 1000, Slots: slots})
	if err != nil {
		return err
	}
	if err := b.watch(ctx, test, b.String(), process, b.seconds(idleSeconds)); err != nil {
		return err
	}
	_, err = process.Stop()
	return err
}

// heartbeats watches a worker whose jobs all run, and do nothing else.
func (b *bed) heartbeats(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the process, whose jobs do not end
	process, err := b.busy(ctx, runningJobs, child.Order{ReportMs: 1000, Slots: runningJobs, HandlerMs: longHandler})
	if err != nil {
		return err
	}
	if err := b.watch(ctx, sheet.Count(runningJobs, "running job"), b.String(), process, b.seconds(heartbeatSeconds)); err != nil {
		return err
	}
	return b.stillBusy(ctx, process, runningJobs)
}

// busy is a process of jobq's all of whose slots have jobs that do not end. It
// ends with the context.
func (b *bed) busy(ctx context.Context, slots int, o child.Order) (*stage.Process, error) {
	if err := b.Add(ctx, slots); err != nil {
		return nil, err
	}
	process, err := b.One(ctx, o)
	if err != nil {
		return nil, err
	}
	all, err := stage.AwaitRan(ctx, []*stage.Process{process}, int64(slots), drainLimit)
	if err == nil && !all {
		err = fmt.Errorf("only %d of %d jobs run after %s", process.Say().Ran, slots, drainLimit)
	}
	return process, err
}

// stillBusy is an error when what was measured was not a busy worker.
func (b *bed) stillBusy(ctx context.Context, process *stage.Process, jobs int) error {
	if process.HasEnded() {
		_, err := process.Result()
		return fmt.Errorf("the worker has ended: %w", err)
	}
	var number int
	if err := b.Pool.QueryRow(ctx, "select count(*) from jobq.job where state = 'running'").Scan(&number); err != nil {
		return err
	}
	if number != jobs {
		return fmt.Errorf("%d jobs run, and not %d", number, jobs)
	}
	return nil
}

// watch measures for some seconds while nothing is asked of anybody.
func (b *bed) watch(ctx context.Context, test, name string, process *stage.Process, seconds float64) error {
	seconds = max(seconds, idleSecondsMin)
	child.Pause(ctx, max(time.Duration(min(b.scale, 1)*float64(idleSettle)), idleSettleMin))
	before, err := b.Meter.Read(ctx)
	if err != nil {
		return err
	}
	calls, err := b.Statements(ctx)
	if err != nil {
		return err
	}
	var cpu int64
	if process != nil {
		cpu = -process.Say().CPUMicros
	}
	child.Pause(ctx, time.Duration(seconds*float64(time.Second)))
	callsAfter, err := b.Statements(ctx)
	if err != nil {
		return err
	}
	after, err := b.Meter.Read(ctx)
	if err != nil {
		return err
	}
	if process != nil {
		cpu += process.Say().CPUMicros
	}
	usage := b.Meter.Since(before, after)
	elapsed := usage.Elapsed.Seconds()
	rate := float64(callsAfter-calls) / elapsed
	b.say("%-10s %-28s %-28s %.2f statements/s", "idle", test, name, rate)
	b.sheet.Put(sheet.Of("idle", test, name, "statements/s"), rate)
	b.sheet.Put(sheet.Of("idle", test, name, clientShare), float64(cpu)/1e4/elapsed)
	b.sheet.Put(sheet.Of("idle", test, name, serverShare), 100*usage.ServerCPU.Seconds()/elapsed)
	return ctx.Err()
}

// runWakeup wakes many idle workers with one job, several times, and counts how
// many of them come for it. They do not poll meanwhile, so that all claims are for the job.
func (l *lab) runWakeup(ctx context.Context) error {
	for range l.rounds {
		for _, c := range l.Chosen(oursAsIs) {
			if err := l.with(ctx, c, func(b *bed) error { return b.wakeup(ctx) }); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *bed) wakeup(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the process when it has not ended below
	process, err := b.One(ctx, child.Order{ReportMs: 100, Workers: wakeupWorkers, PollMs: longHandler})
	if err != nil {
		return err
	}
	child.Pause(ctx, wakeupAcquainted)
	before, err := b.claims(ctx)
	if err != nil {
		return err
	}
	for range wakeupJobs {
		if err := b.Add(ctx, 1); err != nil {
			return err
		}
		child.Pause(ctx, wakeupSettle)
	}
	after, err := b.claims(ctx)
	if err != nil {
		return err
	}
	each := float64(after-before) / wakeupJobs
	test := fmt.Sprintf("%d idle workers, 1 job", wakeupWorkers)
	b.say("%-10s %-28s %-28s %.1f claims a job", "wakeup", test, b.Contender, each)
	b.sheet.Put(sheet.Of("wakeup", test, b.String(), "claims a job"), each)
	end, err := process.Stop()
	if err == nil && (end.Ran != wakeupJobs || after-before < wakeupJobs) {
		err = fmt.Errorf("%d of %d jobs ran, after %d claims", end.Ran, wakeupJobs, after-before)
	}
	return err
}

// claims counts how often workers have asked jobq for jobs.
func (b *bed) claims(ctx context.Context) (calls int64, err error) {
	err = b.Pool.QueryRow(ctx, `select coalesce(sum(s.calls), 0)::bigint from pg_stat_statements s
		where s.dbid = (select oid from pg_database where datname = current_database())
		  and s.query like '%insert into "jobq".lease%'`).Scan(&calls)
	return calls, err
}
