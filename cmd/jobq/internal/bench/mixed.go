package bench

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jobq-dev/jobq/worker"
)

var mixedScenario = Scenario{
	Name:  "mixed",
	Short: "Enqueue at a fixed rate while workers run the jobs",
	Long: `Enqueue single jobs at a fixed rate over several connections while workers run them, and
time each from the moment at which it was to be enqueued until its handler starts: a
system that falls behind shows it, and does not slow the clock down.`,
	Flags:   []string{"rate", "duration", "writers", "workers", "slots"},
	Default: Config{Rate: 1000, Duration: 10 * time.Second, Writers: 8, Workers: 1},
	run: func(ctx context.Context, b *bench) ([]Case, error) {
		c, err := b.mixed(ctx)
		return []Case{c}, err
	},
}

// keptUp is the part of the wanted rate that counts as all of it.
const keptUp = 0.95

// timings gathers the times of jobs from many goroutines.
type timings struct {
	mu sync.Mutex
	// guarded by mu
	samples []time.Duration
	done    chan struct{} // closed when there are as many as wanted
	wanted  int
}

func (t *timings) add(sample time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.samples = append(t.samples, sample); len(t.samples) == t.wanted {
		close(t.done)
	}
}

func (b *bench) mixed(ctx context.Context) (Case, error) {
	c := Case{Name: "mixed"}
	jobs := max(int(float64(b.Rate)*b.Duration.Seconds()), 1)
	times := &timings{done: make(chan struct{}), wanted: jobs}
	var base time.Time      // written before the first job is enqueued that counts
	var warm sync.WaitGroup // done when each writer's first job, which does not count, has run
	warm.Add(b.Writers)
	crew, err := b.startCrew(ctx, func(_ context.Context, job *worker.Job[task]) error {
		if job.Args.N < 0 {
			warm.Done()
			return nil
		}
		times.add(time.Since(base.Add(time.Duration(job.Args.N))))
		return nil
	})
	if err != nil {
		return c, err
	}
	if err := b.awaitReady(crew.ctx); err != nil {
		return c, crew.failed(err)
	}
	if err := b.warmUp(crew.ctx, &warm); err != nil {
		return c, crew.failed(err)
	}
	b.say("enqueueing %d jobs a second for %s", b.Rate, b.Duration)
	before, err := b.meter.Read(ctx)
	if err != nil {
		return c, crew.failed(err)
	}
	calls := b.tracer.read()
	base = time.Now()
	if err := b.enqueueAt(crew.ctx, base, jobs); err != nil {
		return c, crew.failed(err)
	}
	crew.await(times.done)
	after, err := b.meter.Read(ctx)
	if stopErr := crew.stop(); err == nil {
		err = stopErr
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return c, err
	}
	usage := b.meter.Since(before, after)
	c.add("wanted", "/s", float64(b.Rate))
	c.add("jobs", "/s", float64(jobs)/usage.Elapsed.Seconds())
	c.addLatency(times.samples)
	c.addCost(usage, jobs)
	if c.Limit = "the rate that was wanted"; c.rate() < keptUp*float64(b.Rate) {
		sent := b.tracer.read().since(calls)
		c.Limit = b.limit(usage, sent, sent.connections())
	}
	return c, nil
}

// warmUp enqueues one job over each writer's connection, and waits until they have run. A new session takes
// milliseconds for its first one, and the figures are to be of a load that goes on.
func (b *bench) warmUp(ctx context.Context, ran *sync.WaitGroup) error {
	group, groupCtx := errgroup.WithContext(ctx)
	for range b.Writers {
		group.Go(func() error {
			_, err := b.client.Enqueue(groupCtx, task{-1}, nil)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	all := make(chan struct{})
	go func() {
		ran.Wait()
		close(all)
	}()
	select {
	case <-all:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// enqueueAt enqueues job i at base + i / rate, whichever writer is free. What
// a job carries is the moment at which it was to be enqueued, after base.
func (b *bench) enqueueAt(ctx context.Context, base time.Time, jobs int) error {
	moments := make(chan time.Duration)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(moments)
		timer := time.NewTimer(0)
		defer timer.Stop()
		for i := range jobs {
			moment := time.Duration(float64(i) / float64(b.Rate) * float64(time.Second))
			timer.Reset(time.Until(base.Add(moment)))
			select {
			case <-timer.C:
			case <-ctx.Done():
				return ctx.Err()
			}
			select {
			case moments <- moment:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	for range b.Writers {
		group.Go(func() error {
			for moment := range moments {
				if _, err := b.client.Enqueue(ctx, task{int64(moment)}, nil); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}
