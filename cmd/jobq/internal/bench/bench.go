// Package bench is what `jobq bench` does: it measures jobq on the user's own
// database and settings, in a schema that it makes and removes.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/measure"
	"github.com/jobq-dev/jobq/migrate"
)

const (
	// SchemaPrefix begins the name of every schema that a bench makes.
	SchemaPrefix = "jobq_bench_"
	// spareConnections are those that a bench needs beside its writers': for
	// the meter, for filling, for a held transaction and for the janitor.
	spareConnections = 5
	latencySamples   = 50
)

// Config says what to measure with. Each scenario uses some of the fields.
type Config struct {
	Pool     *pgxpool.Config
	Jobs     int           // jobs to run
	Duration time.Duration // how long to measure, where no number of jobs ends it
	Workers  int           // workers, all in this process
	Slots    int           // of each worker; 0 means its default
	Writers  int           // connections that enqueue at once
	Batch    int           // jobs in one call that enqueues many
	Rate     int           // jobs a second
	Rows     int           // jobs that are in the way, waiting or finished
	Samples  int           // single jobs to time
	Progress io.Writer     // told what is being done
}

// Scenario is a thing that can be measured.
type Scenario struct {
	Name    string
	Short   string
	Long    string
	Flags   []string // those that apply, named as in Config
	Default Config
	run     func(ctx context.Context, b *bench) ([]Case, error)
}

// Scenarios are all of them, in the order in which one would try them.
func Scenarios() []Scenario {
	return []Scenario{drainScenario, enqueueScenario, latencyScenario, mixedScenario, idleScenario, backlogScenario, historyScenario, heldScenario}
}

// bench is a scenario that is being measured.
type bench struct {
	Config
	pool   *pgxpool.Pool
	client *jobq.Client
	// caretaker is the janitor's client, whose statements are counted apart.
	caretaker               *jobq.Client
	caretakers              *pgxpool.Pool // caretaker's
	name                    string        // of the schema
	schema                  string        // its name quoted, for SQL
	meter                   *measure.Meter
	tracer, caretakerTracer *tracer
	logger                  *slog.Logger
	latency                 measure.Latencies
	settings                []measure.Setting
}

// Run measures a scenario. The schema is removed whatever happens, and an
// error of the removal names it. A session that cannot write is an error before
// anything is done.
func Run(ctx context.Context, scenario Scenario, config Config) (result *Result, err error) {
	b, err := open(ctx, config)
	if err != nil {
		return nil, err
	}
	defer b.close()
	if err := b.checkWritable(ctx); err != nil {
		return nil, err
	}
	if err := b.sayLeftovers(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.remove(ctx)) }()
	if err := b.prepare(ctx); err != nil {
		return nil, err
	}
	result = &Result{
		Bench: scenario.Name, StartedAt: time.Now().UTC(), Server: b.settings, Cores: runtime.NumCPU(),
		RoundTripMs: milliseconds(b.latency.RoundTrip.P50), CommitMs: milliseconds(b.latency.Commit.P50),
	}
	result.Cases, err = scenario.run(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("bench %s: %w", scenario.Name, err)
	}
	return result, nil
}

// open makes the clients, and touches nothing yet.
func open(ctx context.Context, config Config) (b *bench, err error) {
	b = &bench{Config: config, tracer: newTracer(), caretakerTracer: newTracer()}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	b.logger = slog.New(slog.NewTextHandler(config.Progress, &slog.HandlerOptions{Level: slog.LevelError}))
	if b.name, err = newSchemaName(); err != nil {
		return b, err
	}
	b.schema = pgx.Identifier{b.name}.Sanitize()
	poolConfig := config.Pool.Copy()
	poolConfig.MaxConns = max(poolConfig.MaxConns, int32(min(config.Writers, 1000)+spareConnections)) // #nosec G115 -- bounded
	poolConfig.ConnConfig.Tracer = b.tracer
	if b.pool, err = pgxpool.NewWithConfig(ctx, poolConfig); err != nil {
		return b, err
	}
	poolConfig = poolConfig.Copy()
	poolConfig.ConnConfig.Tracer = b.caretakerTracer
	if b.caretakers, err = pgxpool.NewWithConfig(ctx, poolConfig); err != nil {
		return b, err
	}
	if b.client, err = jobq.NewClient(b.pool, &jobq.Config{Schema: b.name}); err != nil {
		return b, err
	}
	b.caretaker, err = jobq.NewClient(b.caretakers, &jobq.Config{Schema: b.name})
	return b, err
}

// close ends the connections that there are.
func (b *bench) close() {
	for _, pool := range []*pgxpool.Pool{b.caretakers, b.pool} {
		if pool != nil {
			pool.Close()
		}
	}
}

// prepare makes the schema and finds out about the server.
func (b *bench) prepare(ctx context.Context) error {
	_, err := migrate.Up(ctx, b.pool, &migrate.Config{Schema: b.name, Logger: b.logger})
	if err != nil {
		return err
	}
	if b.meter, err = measure.NewMeter(ctx, b.pool); err != nil {
		return err
	}
	if b.settings, err = measure.Settings(ctx, b.pool); err != nil {
		return err
	}
	conn, err := b.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, "create table "+b.schema+".committed (at timestamptz)"); err != nil {
		return err
	}
	b.latency, err = measure.MeasureLatencies(ctx, conn.Conn(), latencySamples, "insert into "+b.schema+".committed values (now())")
	return err
}

// say tells whoever looks on what is being done.
func (b *bench) say(format string, args ...any) { fmt.Fprintf(b.Progress, format+"\n", args...) }
