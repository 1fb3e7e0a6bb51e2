// Package bench is what `jobq bench` does: it measures jobq on the user's own
// database and settings, in a schema that it makes and removes.
package bench

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/measure"
	"github.com/jobq-dev/jobq/migrate"
)

const (
	// SchemaPrefix begins the name of every schema that a bench makes.
	SchemaPrefix = "jobq_bench_"
	// removeTimeout bounds the removal of the schema, which happens also when
	// the bench was interrupted.
	removeTimeout = time.Minute
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
	schema                  string // quoted, for SQL
	meter                   *measure.Meter
	tracer, caretakerTracer *tracer
	logger                  *slog.Logger
	latency                 measure.Latencies
	settings                []measure.Setting
}

// Run measures a scenario. The schema is removed whatever happens, and an
// error of the removal names it.
func Run(ctx context.Context, scenario Scenario, config Config) (result *Result, err error) {
	b := &bench{Config: config, tracer: &tracer{}, caretakerTracer: &tracer{}}
	b.logger = slog.New(slog.NewTextHandler(config.Progress, &slog.HandlerOptions{Level: slog.LevelError}))
	poolConfig := config.Pool.Copy()
	poolConfig.MaxConns = max(poolConfig.MaxConns, int32(min(config.Writers, 1000)+spareConnections)) // #nosec G115 -- bounded
	poolConfig.ConnConfig.Tracer = b.tracer
	b.pool, err = pgxpool.NewWithConfig(ctx, poolConfig)
	if err != nil {
		return nil, err
	}
	defer b.pool.Close()
	poolConfig = poolConfig.Copy()
	poolConfig.ConnConfig.Tracer = b.caretakerTracer
	caretakers, err := pgxpool.NewWithConfig(ctx, poolConfig)
	if err != nil {
		return nil, err
	}
	defer caretakers.Close()
	name, err := newSchemaName()
	if err != nil {
		return nil, err
	}
	if b.client, err = jobq.NewClient(b.pool, &jobq.Config{Schema: name}); err != nil {
		return nil, err
	}
	if b.caretaker, err = jobq.NewClient(caretakers, &jobq.Config{Schema: name}); err != nil {
		return nil, err
	}
	b.schema = pgx.Identifier{name}.Sanitize()
	if err := b.sayLeftovers(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.remove(ctx)) }()
	if err := b.prepare(ctx, name); err != nil {
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

// sayLeftovers names the schemas of benches that run elsewhere, or that were
// killed: it cannot tell which.
func (b *bench) sayLeftovers(ctx context.Context) error {
	rows, err := b.pool.Query(ctx, "select n.nspname::text from pg_namespace n where starts_with(n.nspname, $1) order by 1", SchemaPrefix)
	if err != nil {
		return err
	}
	schemas, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, schema := range schemas {
		b.say("schema %[1]s is there: another bench runs, or one was killed; drop schema %[1]s cascade removes it", schema)
	}
	return err
}

// prepare makes the schema and finds out about the server.
func (b *bench) prepare(ctx context.Context, schema string) error {
	_, err := migrate.Up(ctx, b.pool, &migrate.Config{Schema: schema, Logger: b.logger})
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

// remove drops the schema, also when the context has ended. Statements that
// were interrupted may still be ending in the server, and get in its way.
func (b *bench) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	err := db.Retry(ctx, func(ctx context.Context) error {
		_, err := b.pool.Exec(ctx, "drop schema if exists "+b.schema+" cascade")
		return err
	})
	if err != nil {
		return fmt.Errorf("remove schema %s, which is left behind: %w", b.schema, err)
	}
	return nil
}

// reset empties the tables, for the next case.
func (b *bench) reset(ctx context.Context) error {
	tables := ""
	for _, table := range []string{"pending", "running", "finished", "attempt", "stat_delta", "stat"} {
		tables += ", " + b.schema + "." + table
	}
	_, err := b.pool.Exec(ctx, "truncate "+tables[2:])
	return err
}

// say tells whoever looks on what is being done.
func (b *bench) say(format string, args ...any) { fmt.Fprintf(b.Progress, format+"\n", args...) }

// newSchemaName is a name that no other bench has.
func newSchemaName() (string, error) {
	var random [4]byte
	if _, err := rand.Read(random[:]); err != nil {
		return "", err
	}
	return SchemaPrefix + hex.EncodeToString(random[:]), nil
}
