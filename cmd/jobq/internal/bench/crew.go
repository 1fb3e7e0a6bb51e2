package bench

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jobq-dev/jobq/janitor"
	"github.com/jobq-dev/jobq/worker"
)

const (
	kind  = "bench"
	queue = "default"
	// fillChunk is how many jobs one statement makes: few enough that an
	// interrupt is obeyed soon.
	fillChunk = 100_000
	readyTick = 5 * time.Millisecond
)

// task is what the jobs carry.
type task struct {
	N int64 `json:"n"`
}

// Kind names the handler.
func (task) Kind() string { return kind }

// crew is a number of workers that run.
type crew struct {
	group *errgroup.Group
	ctx   context.Context // ends when the crew is stopped, or one of it fails
	end   context.CancelFunc
}

// startCrew starts the configured workers with one handler, and a janitor
// beside them, which scheduled jobs need.
func (b *bench) startCrew(ctx context.Context, handler worker.Handler[task]) (*crew, error) {
	c := &crew{}
	ctx, c.end = context.WithCancel(ctx)
	c.group, c.ctx = errgroup.WithContext(ctx)
	for range b.Workers {
		config := &worker.Config{NoJanitor: true, Logger: b.logger, Version: "bench"}
		if b.Slots > 0 {
			config.Queues = map[string]worker.QueueConfig{queue: {Slots: b.Slots}}
		}
		w, err := worker.New(b.client, config)
		if err == nil {
			err = worker.Handle(w, handler, nil)
		}
		if err != nil {
			return nil, c.failed(err)
		}
		c.group.Go(func() error { return w.Run(c.ctx) })
	}
	j, err := janitor.New(b.caretaker, &janitor.Config{Logger: b.logger})
	if err != nil {
		return nil, c.failed(err)
	}
	c.group.Go(func() error { return j.Run(c.ctx) })
	return c, nil
}

// failed stops those that run already.
func (c *crew) failed(err error) error {
	_ = c.stop() // the first error is the one to tell
	return err
}

// stop lets the workers store their last results and returns what went wrong.
func (c *crew) stop() error {
	c.end()
	return c.group.Wait()
}

// await waits until the channel is closed, or the crew ends before.
func (c *crew) await(done <-chan struct{}) {
	select {
	case <-done:
	case <-c.ctx.Done():
	}
}

// awaitReady waits until every worker has registered.
func (b *bench) awaitReady(ctx context.Context) error {
	ticker := time.NewTicker(readyTick)
	defer ticker.Stop()
	for {
		var workers int
		if err := b.pool.QueryRow(ctx, "select count(*) from "+b.schema+".worker").Scan(&workers); err != nil || workers >= b.Workers {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// fill makes jobs that are ready to run, the way any client does by SQL.
func (b *bench) fill(ctx context.Context, jobs int) error {
	b.say("enqueueing %d jobs", jobs)
	return b.inChunks(ctx, jobs, "insert into "+b.schema+".pending (kind, args) select '"+kind+
		"', jsonb_build_object('n', i) from generate_series($1::bigint, $2::bigint) i")
}

// inChunks runs a statement for numbers from 1 up, which it takes as from and to.
func (b *bench) inChunks(ctx context.Context, count int, sql string) error {
	for first := 1; first <= count; first += fillChunk {
		if _, err := b.pool.Exec(ctx, sql, first, min(first+fillChunk-1, count)); err != nil {
			return err
		}
	}
	return nil
}
