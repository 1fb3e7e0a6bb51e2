package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/measure"
	"github.com/jobq-dev/jobq/worker"
)

// nothing is the load; probe is what is waited for on the screen.
type nothing struct{}

func (nothing) Kind() string { return "nothing" }

type probe struct {
	N int `json:"n"`
}

func (probe) Kind() string { return "probe" }

// load runs jobs as fast as this machine can, with probes among them.
func (b *bench) load(ctx context.Context, queue string, span time.Duration, probes int) error {
	w, err := b.worker(probes)
	if err != nil {
		return err
	}
	ids := make([]int64, probes)
	for i := range probes {
		job, err := b.client.Enqueue(ctx, probe{i}, &jobq.EnqueueOptions{Queue: queue})
		if err != nil {
			return err
		}
		ids[i] = job.ID
	}
	return beside(ctx, func(ctx context.Context) error { return b.underLoad(ctx, ids, queue, span) }, w.Run, b.feed)
}

// worker is one that counts the load, and ends probes when they are released.
func (b *bench) worker(probes int) (*worker.Worker, error) {
	w, err := worker.New(b.client, &worker.Config{NoJanitor: true, Queues: map[string]worker.QueueConfig{"load": {Slots: 100 + probes}, "quiet": {Slots: probes}}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	for range probes {
		b.release = append(b.release, make(chan struct{}))
	}
	b.released = make([]time.Time, probes)
	if err := worker.Handle(w, func(context.Context, *worker.Job[nothing]) error { b.done.Add(1); return nil }, nil); err != nil {
		return nil, err
	}
	return w, worker.Handle(w, func(ctx context.Context, job *worker.Job[probe]) error {
		select {
		case <-b.release[job.Args.N]:
		case <-ctx.Done():
		}
		b.released[job.Args.N] = time.Now()
		return nil
	}, nil)
}

// beside measures while the others run, and ends them afterwards. The first
// error ends all, and is returned: what was measured without a load is no figure.
func beside(ctx context.Context, measuring func(context.Context) error, others ...func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for _, other := range others {
		group.Go(func() error { return other(ctx) })
	}
	group.Go(func() error {
		defer stop()
		return measuring(ctx)
	})
	return group.Wait()
}

// underLoad measures while jobs run.
func (b *bench) underLoad(ctx context.Context, ids []int64, queue string, span time.Duration) error {
	if err := b.silence(ctx, span/2); err != nil {
		return err
	}
	if _, err := b.open(ctx, tall, "--open", "overview"); err != nil {
		return err
	}
	defer b.close()
	if _, err := b.await(ctx, func(s string) bool { return strings.Contains(s, "live") }); err != nil {
		return err
	}
	if err := pause(ctx, 2*time.Second); err != nil {
		return err
	}
	if err := b.measure(ctx, "load, overview", span, true); err != nil {
		return err
	}
	b.tmux("send-keys", "-t", session, "2")
	if err := pause(ctx, 2*time.Second); err != nil {
		return err
	}
	if err := b.measure(ctx, "load, jobs", span, true); err != nil {
		return err
	}
	return b.latency(ctx, ids, queue)
}

// feed keeps the queue filled until the context ends.
func (b *bench) feed(ctx context.Context) error {
	jobs := make([]jobq.EnqueueParams, 2000)
	for i := range jobs {
		jobs[i] = jobq.EnqueueParams{Args: nothing{}, EnqueueOptions: jobq.EnqueueOptions{Queue: "load"}}
	}
	var sent int64
	for ctx.Err() == nil {
		if sent-b.done.Load() > 6000 {
			if pause(ctx, time.Millisecond) != nil {
				return nil // it is over
			}
			continue
		}
		if _, err := b.client.EnqueueMany(ctx, jobs); err != nil && ctx.Err() == nil {
			return fmt.Errorf("feed of the queue: %w", err)
		}
		sent += int64(len(jobs))
	}
	return nil
}

// silence counts digests while nobody watches: an ear on their channel is no watcher.
func (b *bench) silence(ctx context.Context, span time.Duration) error {
	conn, err := pgx.ConnectConfig(ctx, b.pool.Config().ConnConfig)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.Background()) }()
	var channel string
	if err := conn.QueryRow(ctx, "select jobq.channel('event')").Scan(&channel); err != nil {
		return err
	}
	if err := pause(ctx, 41*time.Second); err != nil { // watchers before are forgotten, and a beat later
		return err
	}
	if _, err := conn.Exec(ctx, "listen "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return err
	}
	done := b.done.Load()
	count, err := notifications(ctx, conn, span)
	if err != nil {
		return fmt.Errorf("wait for digests: %w", err)
	}
	rate := float64(b.done.Load()-done) / span.Seconds()
	fmt.Printf("nobody watches     %d digests in %s at %.0f jobs/s\n", count, span, rate)
	b.bars.check(count == 0, "digests without a watcher: %d, none", count)
	b.bars.load(rate)
	return nil
}

// notifications counts those of a span. It is an error when the connection is lost: nothing could be heard.
func notifications(ctx context.Context, conn *pgx.Conn, span time.Duration) (count int, err error) {
	during, cancel := context.WithTimeout(ctx, span)
	defer cancel()
	for {
		if _, err := conn.WaitForNotification(during); err != nil {
			if ctx.Err() == nil && during.Err() != nil {
				return count, nil
			}
			return count, err
		}
		count++
	}
}

// latency lets probes end one by one, and waits for each to be seen.
func (b *bench) latency(ctx context.Context, ids []int64, queue string) error {
	if err := b.filter(ctx, "state:running kind:probe"); err != nil {
		return err
	}
	if _, err := b.await(ctx, func(s string) bool { return strings.Contains(s, fmt.Sprintf("%d running", ids[len(ids)-1])) }); err != nil {
		return err
	}
	var times []time.Duration
	done, began := b.done.Load(), time.Now()
	for i := len(ids) - 1; i >= 0; i-- {
		row := fmt.Sprintf("%d completed", ids[i])
		close(b.release[i])
		at, err := b.await(ctx, func(s string) bool { return strings.Contains(s, row) })
		if err != nil {
			return err
		}
		times = append(times, at.Sub(b.released[i]))
		if err := pause(ctx, time.Duration(50+i*7%100)*time.Millisecond); err != nil {
			return err
		}
	}
	s, rate := measure.Summarize(times), float64(b.done.Load()-done)/time.Since(began).Seconds()
	fmt.Printf("event to screen    p50 %s, p90 %s, p99 %s of %d, in queue %s at %.0f jobs/s; from the handler's return to tmux's screen\n",
		round(s.P50), round(s.P90), round(s.P99), s.Count, queue, rate)
	b.bars.atMost("event to screen, median", s.P50, eventMedianMax)
	b.bars.atMost("event to screen, 99th percentile", s.P99, eventWorstMax)
	b.bars.load(rate)
	return nil
}
