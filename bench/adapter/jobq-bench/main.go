// Command jobq-bench is the adapter of jobq for hardbyte/postgresql-job-queue-benchmarking: one process that adds and runs
// jobs as its environment says, and writes what it measures to standard output, a line of JSON for each figure. The
// contract is that repository's CONTRIBUTING_ADAPTERS.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log.SetFlags(0)
	log.SetPrefix("[jobq] ") // standard error is for logs
	s, err := readSettings(os.Getenv)
	if err == nil {
		err = run(ctx, s)
	}
	if err != nil {
		stop()
		log.Fatal(err) // #nosec -- nothing is deferred but stop
	}
}

// run does one scenario. It returns nil when it was told to end.
func run(ctx context.Context, s settings) error {
	q, err := openQueue(ctx, s)
	if err != nil {
		return err
	}
	defer q.close()
	switch s.scenario {
	case "migrate_only":
		return nil // openQueue has done it
	case "worker_only":
		return q.work(ctx, newMeter())
	case "long_horizon":
		return longHorizon(ctx, s, q)
	}
	return fmt.Errorf("no SCENARIO %q: there are long_horizon, worker_only and migrate_only", s.scenario)
}

// longHorizon adds and runs jobs until the context ends, and reports meanwhile.
func longHorizon(ctx context.Context, s settings, q *queue) error {
	m := newMeter()
	out := newReporter(s, os.Stdout)
	if err := out.descriptor(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := &producer{settings: s, queue: q, meter: m}
	tasks := []func(context.Context) error{
		func(ctx context.Context) error { return q.work(ctx, m) },
		func(ctx context.Context) error { return p.run(ctx, os.Stdin) },
		func(ctx context.Context) error { return out.sample(ctx, m, p) },
	}
	if s.observes() || s.mode == depthTarget {
		tasks = append(tasks, func(ctx context.Context) error { return q.watchDepth(ctx, m) })
	}
	errs := make([]error, len(tasks))
	var all sync.WaitGroup
	for i, task := range tasks {
		all.Go(func() {
			if errs[i] = task(ctx); errs[i] != nil {
				cancel() // the others need not go on
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
