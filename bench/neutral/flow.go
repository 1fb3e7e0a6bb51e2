package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/jobq-dev/jobq/bench/child"
	"github.com/jobq-dev/jobq/bench/stage"
)

const (
	reportEveryMs = 20
	feedEvery     = 10 * time.Millisecond
	feedMost      = 2_000 // jobs in one statement
	feedRetry     = 100 * time.Millisecond
	payloadBytes  = 224 // of padding: the arguments have some 256 then
)

// flow is a contender at work: jobs are added while its processes run them.
type flow struct {
	database *stage.Database
	order    child.Order
	cancel   context.CancelFunc // ends the feeding
	fed      chan error         // why the feeding has ended, once; nil when it was told to

	// rate is how many jobs a second are added; 0 while a number of them is kept waiting.
	rate atomic.Int64

	mu sync.Mutex
	// guarded by mu
	processes []*stage.Process // all that were started, those that were killed included
	killed    map[*stage.Process]bool
}

// newFlow is one without processes: launch starts them.
func newFlow(d *stage.Database, o child.Order) *flow {
	o.ReportMs, o.HandlerMs, o.Tolerant = reportEveryMs, 1, true
	return &flow{database: d, order: o, killed: make(map[*stage.Process]bool)}
}

// launch starts one process more.
func (f *flow) launch(ctx context.Context) error {
	process, err := f.database.One(ctx, f.order)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.processes = append(f.processes, process)
	return nil
}

// kill ends the process that has run for longest, as a crash would.
func (f *flow) kill() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, process := range f.processes {
		if !f.killed[process] && !process.HasEnded() {
			f.killed[process] = true
			return process.Kill()
		}
	}
	return fmt.Errorf("%s: no process is left to kill", f.database)
}

// ran is how many jobs have started in all processes, and how many of these have low priority. What a killed process ran
// since its last report is not in it.
func (f *flow) ran() (all, low int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, process := range f.processes {
		said := process.Say()
		all, low = all+said.Ran, low+said.Low
	}
	return all, low
}

// used is what the processes have used: time of processors, and of slots with a job.
func (f *flow) used() (cpu, slots time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, process := range f.processes {
		said := process.Say()
		cpu += time.Duration(said.CPUMicros) * time.Microsecond
		slots += time.Duration(said.HandlerMicros) * time.Microsecond
	}
	return cpu, slots
}

// ended is why a process has ended that nobody killed, or nil.
func (f *flow) ended() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, process := range f.processes {
		if process.HasEnded() && !f.killed[process] {
			_, err := process.Result()
			return fmt.Errorf("a process has ended by itself: %w", err)
		}
	}
	return nil
}

// batch is jobs of one kind that are to be added next.
type batch struct {
	like stage.Jobs
	jobs int
}

// feed adds jobs in the background until stopFeeding: next is asked for what is due, and gets how many were added and how many ran.
// A server that is away for a while is asked again; a refused statement ends the feeding.
func (f *flow) feed(ctx context.Context, next func(added, ran, low int64) []batch) {
	ctx, f.cancel = context.WithCancel(ctx)
	f.fed = make(chan error, 1)
	go func() {
		defer close(f.fed)
		var added int64
		for ctx.Err() == nil {
			ran, low := f.ran()
			due := next(added, ran, low)
			for _, b := range due {
				for b.jobs > 0 && ctx.Err() == nil {
					jobs := min(b.jobs, feedMost)
					if err := f.database.AddLike(ctx, b.like, jobs); err != nil && !isAway(err) && ctx.Err() == nil {
						f.fed <- fmt.Errorf("add jobs: %w", err)
						return
					} else if err != nil {
						child.Pause(ctx, feedRetry)
						continue
					}
					b.jobs -= jobs
					added += int64(jobs)
				}
			}
			if len(due) == 0 {
				child.Pause(ctx, feedEvery)
			}
		}
	}()
}

// isAway says whether an error means that the server is away or full, or that it ended this session. All others are
// mistakes of ours.
func isAway(err error) bool {
	var refused *pgconn.PgError
	return !errors.As(err, &refused) || strings.HasPrefix(refused.Code, "57P") || strings.HasPrefix(refused.Code, "08") || refused.Code == "53300"
}

// stopFeeding returns when no job will be added any more. Its error is why that was so before.
func (f *flow) stopFeeding() error {
	f.cancel()
	return <-f.fed
}

// keep keeps a number of jobs waiting, divided among queues if there are several.
func keep(depth int, queues []string) func(added, ran, low int64) []batch {
	if len(queues) == 0 {
		queues = []string{""}
	}
	return func(added, ran, _ int64) []batch {
		missing := int(ran + int64(depth) - added)
		if missing < max(depth/40, len(queues)) {
			return nil
		}
		var due []batch
		for _, queue := range queues {
			due = append(due, batch{stage.Jobs{Bytes: payloadBytes, Queue: queue}, missing / len(queues)})
		}
		return due
	}
}

// keepMixed keeps a number of jobs of high priority waiting, and adds one of low priority for each nine of them.
func keepMixed(depth int) func(added, ran, low int64) []batch {
	var high int64
	return func(_, ran, low int64) []batch {
		missing := (ran - low + int64(depth) - high) / 9 * 9
		if missing < int64(depth)/40 {
			return nil
		}
		high += missing
		return []batch{
			{stage.Jobs{Bytes: payloadBytes}, int(missing)},
			{stage.Jobs{Bytes: payloadBytes, Low: true}, int(missing / 9)},
		}
	}
}

// atRate adds jobs by a clock: what could not be added while the server was away is added later.
func (f *flow) atRate(clock func() time.Time) func(added, ran, low int64) []batch {
	last, credit := clock(), 0.0
	return func(int64, int64, int64) []batch {
		now := clock()
		credit += float64(f.rate.Load()) * now.Sub(last).Seconds()
		last = now
		jobs := int(credit)
		if jobs < int(f.rate.Load()/100) || jobs == 0 {
			return nil
		}
		credit -= float64(jobs)
		return []batch{{stage.Jobs{Bytes: payloadBytes}, jobs}}
	}
}

// drain waits until all jobs have ended, or so long, and returns how many have not.
func (f *flow) drain(ctx context.Context, limit time.Duration) (left int64, err error) {
	deadline := time.Now().Add(limit)
	for {
		if err = f.database.Pool.QueryRow(ctx, f.database.Left).Scan(&left); err == nil && left == 0 {
			return 0, nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return left, err
		}
		child.Pause(ctx, 200*time.Millisecond)
	}
}

// measureRate is how many jobs a second start while something goes on.
func (f *flow) measureRate(during func() error) (float64, error) {
	began := time.Now()
	before, _ := f.ran()
	err := during()
	after, _ := f.ran()
	return float64(after-before) / time.Since(began).Seconds(), err
}
