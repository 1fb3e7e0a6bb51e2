package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/bench/child"
	"github.com/jobq-dev/jobq/bench/sheet"
	"github.com/jobq-dev/jobq/bench/stage"
	"github.com/jobq-dev/jobq/internal/measure"
)

const (
	enqueueSeconds = 5.0
	enqueueBatch   = 1000
	enqueueWriters = 16
	busyWriters    = 8
	busySlots      = 10
	latencySamples = 500
	fewSamples     = 200 // of those that take long over each
	latencyWarmUp  = 20
	mixedRate      = 2000
	mixedSeconds   = 10.0
	mixedWriters   = 16
)

// seconds is a duration at the chosen scale, not too short to mean anything.
func (l *lab) seconds(full float64) float64 { return max(full*min(l.scale, 1), 0.5) }

// samples are how many single jobs are timed.
func (l *lab) samples(c stage.Contender) int {
	full := fewSamples
	if c.Tuned || c.IsJobq() {
		full = latencySamples
	}
	return max(int(float64(full)*min(l.scale, 1)), 5)
}

// runEnqueue enqueues one by one and many at once, jobq beside plain INSERTs.
func (l *lab) runEnqueue(ctx context.Context) error {
	ways := map[string][]string{"jobq": {"", "insert", "bare"}}
	for range l.rounds {
		for _, c := range l.Chosen("jobq, tuned", beforeTuned, "graphile-worker, tuned", "river, tuned", "pg-boss, tuned") {
			for _, test := range []struct{ connections, batch int }{{1, 1}, {enqueueWriters, 1}, {1, enqueueBatch}} {
				for _, way := range append(ways[c.Name], "")[:max(len(ways[c.Name]), 1)] {
					if way != "" && test.batch > 1 {
						continue
					}
					o := child.Order{Connections: test.connections, Batch: test.batch, Way: way}
					name := enqueueName(test.batch, test.connections)
					if err := l.with(ctx, c, func(b *bed) error { return b.enqueue(ctx, "enqueue", name, o) }); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// enqueueName names a case.
func enqueueName(batch, connections int) string {
	return fmt.Sprintf("%d at once, %s", batch, sheet.Count(connections, "connection"))
}

// enqueue measures one way to enqueue.
func (b *bed) enqueue(ctx context.Context, scenario, test string, o child.Order) error {
	o.Seconds = b.seconds(enqueueSeconds)
	before, err := b.Meter.Read(ctx)
	if err != nil {
		return err
	}
	end, err := b.Call(ctx, "enqueue", o)
	if err != nil {
		return err
	}
	after, err := b.Meter.Read(ctx)
	if err != nil {
		return err
	}
	name := b.Name
	if o.Way != "" {
		name = map[string]string{"insert": "plain INSERT, with jobq's triggers", "bare": "plain INSERT, no triggers"}[o.Way]
	}
	usage, jobs := b.Meter.Since(before, after), float64(max(end.Jobs, 1))
	b.say("%-10s %-28s %-28s %8.0f/s", scenario, test, name, jobs/end.Seconds)
	b.sheet.Put(sheet.Of(scenario, test, name, "jobs/s"), jobs/end.Seconds)
	b.sheet.Put(sheet.Of(scenario, test, name, "server µs/job"), float64(usage.ServerCPU.Microseconds())/jobs)
	b.sheet.Put(sheet.Of(scenario, test, name, "client µs/job"), float64(end.CPUMicros)/jobs)
	b.sheet.Put(sheet.Of(scenario, test, name, "WAL B/job"), float64(usage.WALBytes)/jobs)
	return nil
}

// runTriggers shows what jobq's triggers cost writers while all workers are
// busy, so that nobody needs to be woken.
func (l *lab) runTriggers(ctx context.Context) error {
	for range l.rounds {
		for _, c := range l.Chosen("jobq, defaults") {
			for _, way := range []string{"bare", "insert", ""} {
				err := l.with(ctx, c, func(b *bed) error {
					ctx, cancel := context.WithCancel(ctx)
					defer cancel() // ends the process, whose jobs do not end
					process, err := b.busy(ctx, busySlots, child.Order{ReportMs: reportEvery, Slots: busySlots, HandlerMs: longHandler})
					if err != nil {
						return err
					}
					test := fmt.Sprintf("%d writers, workers busy", busyWriters)
					if err := b.enqueue(ctx, "triggers", test, child.Order{Connections: busyWriters, Batch: 1, Way: way}); err != nil {
						return err
					}
					return b.stillBusy(ctx, process, busySlots)
				})
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// asyncCommit names the case in which commits do not wait for the disk, whose tail is longer than all
// else together, and says nothing about the systems.
const asyncCommit = "synchronous_commit off"

// runLatency times single jobs on idle queues, beside a bare NOTIFY.
func (l *lab) runLatency(ctx context.Context) error {
	for range l.rounds {
		for _, test := range []string{"", asyncCommit} {
			for _, claims := range []bool{false, true} {
				if err := l.notifyLatency(ctx, test, claims); err != nil {
					return err
				}
			}
			for _, c := range l.Chosen("jobq", stage.Before, "graphile-worker", "river", "pg-boss, tuned") {
				if test == asyncCommit && !c.Tuned && !c.IsJobq() {
					continue
				}
				if err := l.with(ctx, c, func(b *bed) error { return b.latency(ctx, test) }); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (b *bed) latency(ctx context.Context, test string) error {
	if test == asyncCommit {
		if _, err := b.Pool.Exec(ctx, "do $$ begin execute format('alter database %I set synchronous_commit = off', current_database()); end $$"); err != nil {
			return err
		}
	}
	samples := b.samples(b.Contender)
	if b.String() == oursAsIs && test == "" {
		end, err := b.Call(ctx, "scheduled", child.Order{Samples: samples})
		if err != nil {
			return err
		}
		b.putSamples("latency", "scheduled", b.String(), end.SamplesMs)
	}
	end, err := b.Call(ctx, "latency", child.Order{Samples: samples, WarmUp: min(latencyWarmUp, samples)})
	if err == nil {
		b.putSamples("latency", test, b.String(), end.SamplesMs)
	}
	return err
}

func (l *lab) putSamples(scenario, test, name string, samplesMs []float64) {
	durations := make([]time.Duration, len(samplesMs))
	for i, ms := range samplesMs {
		durations[i] = time.Duration(ms * float64(time.Millisecond))
	}
	summary := measure.Summarize(durations)
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	l.say("%-10s %-28s %-28s p50 %.2f ms, p99 %.2f ms", scenario, test, name, ms(summary.P50), ms(summary.P99))
	l.sheet.Put(sheet.Of(scenario, test, name, "p50 ms"), ms(summary.P50))
	l.sheet.Put(sheet.Of(scenario, test, name, "p99 ms"), ms(summary.P99))
	l.sheet.Put(sheet.Of(scenario, test, name, "max ms"), ms(summary.Max))
}

const (
	bareNotify  = "bare NOTIFY"
	notifyWrite = "bare NOTIFY, then a commit"
)

// notifyLatency is the limit: a transaction that writes a row and notifies,
// and a connection that does nothing but listen; or, when it claims, writes a row
// itself when it hears.
func (l *lab) notifyLatency(ctx context.Context, test string, claims bool) error {
	synchronous := "set synchronous_commit = on"
	if test == asyncCommit {
		synchronous = "set synchronous_commit = off"
	}
	sender, err := pgx.Connect(ctx, l.Postgres.URL("postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = sender.Close(ctx) }() // neither has anything to lose
	listener, err := pgx.Connect(ctx, l.Postgres.URL("postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close(ctx) }()
	for _, conn := range []*pgx.Conn{sender, listener} {
		if _, err := conn.Exec(ctx, synchronous); err != nil {
			return err
		}
	}
	if _, err := listener.Exec(ctx, "create table if not exists bench_notified (at timestamptz); listen bench"); err != nil {
		return err
	}
	hear := func() error {
		_, err := listener.WaitForNotification(ctx)
		if err == nil && claims {
			_, err = listener.Exec(ctx, "insert into bench_notified values (now())")
		}
		return err
	}
	name := bareNotify
	if claims {
		name = notifyWrite
	}
	var samples []float64
	for i := range latencyWarmUp + latencySamples {
		child.Pause(ctx, child.LatencyApart)
		tx, err := sender.Begin(ctx)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "insert into bench_notified values (now())"); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "notify bench"); err != nil {
			return err
		}
		arrived := make(chan error, 1)
		var at time.Time
		go func() {
			err := hear()
			at = time.Now()
			arrived <- err
		}()
		committing := time.Now()
		if err := tx.Commit(ctx); err != nil {
			return err
		}
		if err := <-arrived; err != nil {
			return err
		}
		if i >= latencyWarmUp {
			samples = append(samples, float64(at.Sub(committing))/float64(time.Millisecond))
		}
	}
	l.putSamples("latency", test, name, samples)
	return nil
}

// runMixed enqueues at a fixed rate while a worker runs the jobs.
func (l *lab) runMixed(ctx context.Context) error {
	for range l.rounds {
		for _, c := range l.Chosen("jobq", "graphile-worker, tuned", "river, tuned", "pg-boss, tuned") {
			err := l.with(ctx, c, func(b *bed) error {
				end, err := b.Call(ctx, "mixed", child.Order{Rate: mixedRate, Seconds: l.seconds(mixedSeconds), Connections: mixedWriters})
				if err != nil {
					return err
				}
				l.sheet.Put(sheet.Of("mixed", "", c.String(), "jobs/s"), float64(end.Jobs)/end.Seconds)
				l.putSamples("mixed", "", c.String(), end.SamplesMs)
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
