package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/worker"
)

const (
	// warmUp are the samples at the start that do not count.
	warmUp = 10
	// scheduleAhead is how long before it is due a scheduled job is made, and
	// scheduleApart how far apart they are due, so that each is alone.
	scheduleAhead = 100 * time.Millisecond
	scheduleApart = 7 * time.Millisecond
	lateMax       = time.Minute
)

var latencyScenario = Scenario{
	Name:  "latency",
	Short: "Time single jobs from their commit to their start",
	Long: `Enqueue single jobs while the workers wait, and time each from the moment at which its
transaction is told to commit until its handler starts. Beside it stands the same with a
bare NOTIFY and a connection that listens: what PostgreSQL itself takes. Then time
scheduled jobs, from the time at which they are due.`,
	Flags:   []string{"samples", "workers", "slots"},
	Default: Config{Samples: 200, Workers: 1},
	run: func(ctx context.Context, b *bench) ([]Case, error) {
		bare, err := b.notifyLatency(ctx)
		if err != nil {
			return nil, err
		}
		started := make(chan arrival, b.Samples+warmUp)
		crew, err := b.startCrew(ctx, func(_ context.Context, job *worker.Job[task]) error {
			started <- arrival{job.Args.N, time.Now()}
			return nil
		})
		if err != nil {
			return nil, err
		}
		cases, err := b.latencies(crew, started)
		if stopErr := crew.stop(); err == nil {
			err = stopErr
		}
		return append([]Case{bare}, cases...), err
	},
}

// arrival is what was waited for: a job that starts, or a notification.
type arrival struct {
	n  int64 // what the job carries
	at time.Time
}

// latencies measures with workers that run, and stops when they fail.
func (b *bench) latencies(crew *crew, started <-chan arrival) ([]Case, error) {
	ctx := crew.ctx
	if err := b.awaitReady(ctx); err != nil {
		return nil, err
	}
	pickup, scheduled := Case{Name: "pickup"}, Case{Name: "scheduled"}
	b.say("timing %d single jobs", b.Samples)
	samples, err := b.time(ctx, started, func(tx pgx.Tx) error {
		_, err := b.client.EnqueueTx(ctx, tx, task{}, nil)
		return err
	})
	if err != nil {
		return nil, err
	}
	pickup.addLatency(samples)
	if samples, err = b.timeScheduled(ctx, started); err != nil {
		return nil, err
	}
	scheduled.addLatency(samples)
	return []Case{pickup, scheduled}, nil
}

// time commits transactions one after the other, each after what the one
// before has set off.
func (b *bench) time(ctx context.Context, arrived <-chan arrival, work func(tx pgx.Tx) error) ([]time.Duration, error) {
	samples := make([]time.Duration, 0, b.Samples)
	for i := range warmUp + b.Samples {
		tx, err := b.pool.Begin(ctx)
		if err != nil {
			return nil, err
		}
		err = work(tx)
		committing := time.Now()
		if err == nil {
			err = tx.Commit(ctx)
		}
		if err != nil {
			_ = tx.Rollback(ctx) // of a transaction that has failed
			return nil, err
		}
		next, err := receive(ctx, arrived)
		if err != nil {
			return nil, err
		}
		if i >= warmUp {
			samples = append(samples, next.at.Sub(committing))
		}
	}
	return samples, nil
}

func receive(ctx context.Context, arrived <-chan arrival) (arrival, error) {
	timer := time.NewTimer(lateMax)
	defer timer.Stop()
	select {
	case a := <-arrived:
		return a, nil
	case <-timer.C:
		return arrival{}, fmt.Errorf("nothing has happened for %s", lateMax)
	case <-ctx.Done():
		return arrival{}, context.Cause(ctx)
	}
}

// notifyLatency is the limit: a transaction that writes a row and notifies,
// and a connection that waits for nothing else.
func (b *bench) notifyLatency(ctx context.Context) (Case, error) {
	c := Case{Name: "bare NOTIFY"}
	conn, err := b.pool.Acquire(ctx)
	if err != nil {
		return c, err
	}
	defer conn.Release()
	channel := pgx.Identifier{"bench of " + b.schema}.Sanitize()
	if _, err := conn.Exec(ctx, "listen "+channel); err != nil {
		return c, err
	}
	ctx, cancel := context.WithCancel(ctx)
	arrived, ended := make(chan arrival, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			if _, err := conn.Conn().WaitForNotification(ctx); err != nil {
				return // the end of the context, or of the connection, which time notices
			}
			arrived <- arrival{at: time.Now()}
		}
	}()
	samples, err := b.time(ctx, arrived, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "insert into "+b.schema+".committed values (now())")
		if err == nil {
			_, err = tx.Exec(ctx, "notify "+channel)
		}
		return err
	})
	cancel()
	<-ended
	if err != nil {
		return c, err
	}
	c.addLatency(samples)
	// The connection goes back to the pool, where nobody expects it to listen.
	_, err = conn.Exec(context.WithoutCancel(ctx), "unlisten *")
	return c, err
}

// timeScheduled makes jobs that are due one after the other, and compares
// when each was to start with when it did, by this process's clock. They carry
// when they are due, after the first: one that is late starts after others that
// are not.
func (b *bench) timeScheduled(ctx context.Context, started <-chan arrival) ([]time.Duration, error) {
	offset, err := b.clockOffset(ctx)
	if err != nil {
		return nil, err
	}
	b.say("timing %d scheduled jobs", b.Samples)
	samples := make([]time.Duration, b.Samples)
	jobs := make([]jobq.EnqueueParams, b.Samples)
	first := time.Now().Add(scheduleAhead)
	for i := range jobs {
		due := time.Duration(i) * scheduleApart
		jobs[i] = jobq.EnqueueParams{Args: task{int64(due)}, EnqueueOptions: jobq.EnqueueOptions{RunAt: first.Add(due + offset)}}
	}
	for chunk := range slices.Chunk(jobs, jobq.EnqueueManyMax) {
		if _, err := b.client.EnqueueMany(ctx, chunk); err != nil {
			return nil, err
		}
	}
	for i := range samples {
		start, err := receive(ctx, started)
		if err != nil {
			return nil, err
		}
		samples[i] = start.at.Sub(first.Add(time.Duration(start.n)))
	}
	return samples, nil
}

// clockOffset is by how much the server's clock is ahead of ours, from the
// fastest of a few looks at it.
func (b *bench) clockOffset(ctx context.Context) (time.Duration, error) {
	best, offset := time.Duration(1<<62), time.Duration(0)
	for range warmUp {
		asked := time.Now()
		var server time.Time
		if err := b.pool.QueryRow(ctx, "select clock_timestamp()").Scan(&server); err != nil {
			return 0, err
		}
		if trip := time.Since(asked); trip < best {
			best, offset = trip, server.Sub(asked.Add(trip/2))
		}
	}
	return offset, nil
}
