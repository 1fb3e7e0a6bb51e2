package stage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq/bench/child"
	"github.com/jobq-dev/jobq/internal/measure"
)

// fillChunk is how many jobs one statement adds.
const fillChunk = 100_000

// Database is one with a contender's tables in it.
type Database struct {
	Contender
	URL    string
	Pool   *pgxpool.Pool
	Meter  *measure.Meter
	Filled int // jobs that were added and are not known to have ended
	server *Server
}

// Name is what the bench's own sessions are called, which the processes have not.
const Name = "bench"

// With makes a database for a contender, lets work be done in it, and drops it.
func (s *Server) With(ctx context.Context, c Contender, work func(d *Database) error) (err error) {
	s.serial++
	name := fmt.Sprintf("bench_%d", s.serial)
	if _, err := s.Admin.Exec(ctx, "create database "+name); err != nil {
		return err
	}
	defer func() {
		if _, dropErr := s.Admin.Exec(context.WithoutCancel(ctx), "drop database "+name+" with (force)"); err == nil {
			err = dropErr
		}
	}()
	d := &Database{Contender: c, URL: s.Postgres.URL(name), server: s}
	config, err := pgxpool.ParseConfig(d.URL)
	if err != nil {
		return err
	}
	config.ConnConfig.RuntimeParams["application_name"] = Name
	if d.Pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	defer d.Pool.Close()
	if _, err := d.Call(ctx, "setup", child.Order{}); err != nil {
		return fmt.Errorf("%s: set up: %w", c, err)
	}
	if _, err := d.Pool.Exec(ctx, "create extension pg_stat_statements"); err != nil {
		return err
	}
	if d.Meter, err = measure.NewMeter(ctx, d.Pool); err != nil {
		return err
	}
	if !d.Meter.KnowsServer() {
		return errors.New("the server's processes cannot be seen in /proc, and so what it uses cannot be measured")
	}
	if err := work(d); err != nil {
		return fmt.Errorf("%s: %w", c, err)
	}
	return nil
}

// callLimit is far more than any child takes that ends by itself, unless it
// waits for a job that was lost.
const callLimit = 10 * time.Minute

// Call runs a child that ends by itself.
func (d *Database) Call(ctx context.Context, command string, o child.Order) (child.Line, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, callLimit, fmt.Errorf("%s took longer than %s", command, callLimit))
	defer cancel()
	process, err := launch(ctx, d.server.config.Peers, d.Contender, d.URL, command, o)
	if err != nil {
		return child.Line{}, err
	}
	end, err := process.Result()
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return end, err
}

// Add makes jobs that wait, by SQL: the same for all.
func (d *Database) Add(ctx context.Context, jobs int) error { return d.AddLike(ctx, Jobs{}, jobs) }

// AddLike makes jobs that are not all plain.
func (d *Database) AddLike(ctx context.Context, like Jobs, jobs int) error {
	err := d.Chunks(ctx, d.Fill(like), d.Filled+1, d.Filled+jobs)
	if err == nil && d.Notify != nil {
		_, err = d.Pool.Exec(ctx, d.Notify(like))
	}
	d.Filled += jobs
	return err
}

// Chunks runs a statement for a range of numbers, not too many at a time.
func (d *Database) Chunks(ctx context.Context, sql string, first, last int) error {
	for ; first <= last; first += fillChunk {
		if _, err := d.Pool.Exec(ctx, sql, first, min(first+fillChunk-1, last)); err != nil {
			return err
		}
	}
	return nil
}

// Settle makes every contender begin alike: nothing left to write, and no
// vacuum that starts in the middle.
func (d *Database) Settle(ctx context.Context) error {
	if _, err := d.Pool.Exec(ctx, "vacuum (analyze)"); err != nil {
		return err
	}
	_, err := d.server.Admin.Exec(ctx, "checkpoint")
	return err
}

// Statements is how many the database has been sent.
func (d *Database) Statements(ctx context.Context) (calls int64, err error) {
	err = d.Pool.QueryRow(ctx, `select coalesce(sum(s.calls), 0)::bigint from pg_stat_statements s
		where s.dbid = (select oid from pg_database where datname = current_database()) and s.toplevel
		  and s.query not like '%pg_stat_statements%'`).Scan(&calls)
	return calls, err
}
