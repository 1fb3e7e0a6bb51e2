package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq/internal/measure"
	"github.com/jobq-dev/jobq/internal/postgres"
)

// fillChunk is how many jobs one statement adds.
const fillChunk = 100_000

// lab is where everything is measured: a private server, and what is known
// of the results so far.
type lab struct {
	server *postgres.Server
	admin  *pgxpool.Pool
	peers  string
	log    io.Writer
	sheet  *sheet
	scale  float64
	rounds int
	held   time.Duration
	only   string
	// durable is false in tests only.
	durable bool
	serial  int
	now     *runOf // the scenario that is being measured
	version string // of the sources: the commit, when they were built
	commit  measure.Latencies
}

// serverSettings are for durable commits on a machine of this size; the
// extension counts statements.
func serverSettings() map[string]string {
	return map[string]string{
		"shared_buffers": "1GB", "max_wal_size": "8GB", "max_connections": "400",
		"shared_preload_libraries": "pg_stat_statements", "track_activity_query_size": "4096",
	}
}

// quiet keeps systems from writing between the figures.
func quiet() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

// scaled is a number of jobs at the chosen scale.
func (l *lab) scaled(jobs int) int { return max(int(float64(jobs)*l.scale), 100) }

// chosen are the contenders that take part: of the names given, not excluded
// by the user, and installed.
func (l *lab) chosen(names ...string) []contender {
	var chosen []contender
	for _, c := range contenders() {
		wanted := len(names) == 0
		for _, name := range names {
			wanted = wanted || c.String() == name || c.name == name
		}
		if wanted && c.installed(l.peers) && (l.only == "" || strings.Contains(","+l.only+",", ","+c.name+",")) {
			chosen = append(chosen, c)
		}
	}
	return chosen
}

// bed is a database with one contender's tables in it.
type bed struct {
	*lab
	contender
	url    string
	pool   *pgxpool.Pool
	meter  *measure.Meter
	filled int
}

// with makes a database for a contender, lets work be done in it, and drops it.
func (l *lab) with(ctx context.Context, c contender, work func(b *bed) error) (err error) {
	l.serial++
	name := fmt.Sprintf("bench_%d", l.serial)
	if _, err := l.admin.Exec(ctx, "create database "+name); err != nil {
		return err
	}
	defer func() {
		if _, dropErr := l.admin.Exec(context.WithoutCancel(ctx), "drop database "+name+" with (force)"); err == nil {
			err = dropErr
		}
	}()
	b := &bed{lab: l, contender: c, url: l.server.URL(name)}
	if b.pool, err = pgxpool.New(ctx, b.url); err != nil {
		return err
	}
	defer b.pool.Close()
	if _, err := b.call(ctx, "setup", order{}); err != nil {
		return fmt.Errorf("%s: set up: %w", c, err)
	}
	if _, err := b.pool.Exec(ctx, "create extension pg_stat_statements"); err != nil {
		return err
	}
	if b.meter, err = measure.NewMeter(ctx, b.pool); err != nil {
		return err
	}
	if !b.meter.KnowsServer() {
		return errors.New("the server's processes cannot be seen in /proc, and so what it uses cannot be measured")
	}
	if err := work(b); err != nil {
		return fmt.Errorf("%s: %w", c, err)
	}
	return nil
}

// callLimit is far more than any child takes that ends by itself, unless it
// waits for a job that was lost.
const callLimit = 10 * time.Minute

// call runs a child that ends by itself.
func (b *bed) call(ctx context.Context, command string, o order) (line, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, callLimit, fmt.Errorf("%s took longer than %s", command, callLimit))
	defer cancel()
	child, err := launch(ctx, b.peers, b.contender, b.url, command, o)
	if err != nil {
		return line{}, err
	}
	end, err := child.result()
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return end, err
}

// add makes jobs that wait, by SQL: the same for all.
func (b *bed) add(ctx context.Context, jobs int) error {
	err := b.chunks(ctx, b.fill, b.filled+1, b.filled+jobs)
	b.filled += jobs
	return err
}

func (b *bed) chunks(ctx context.Context, sql string, first, last int) error {
	for ; first <= last; first += fillChunk {
		if _, err := b.pool.Exec(ctx, sql, first, min(first+fillChunk-1, last)); err != nil {
			return err
		}
	}
	return nil
}

// settle makes every contender begin alike: nothing left to write, and no
// vacuum that starts in the middle.
func (b *bed) settle(ctx context.Context) error {
	if _, err := b.pool.Exec(ctx, "vacuum (analyze)"); err != nil {
		return err
	}
	_, err := b.admin.Exec(ctx, "checkpoint")
	return err
}

// statements is how many the database has been sent.
func (b *bed) statements(ctx context.Context) (calls int64, err error) {
	err = b.pool.QueryRow(ctx, `select coalesce(sum(s.calls), 0)::bigint from pg_stat_statements s
		where s.dbid = (select oid from pg_database where datname = current_database()) and s.toplevel
		  and s.query not like '%pg_stat_statements%'`).Scan(&calls)
	return calls, err
}

// problem is something that the report must not hide.
func (l *lab) problem(format string, args ...any) {
	l.now.Problems = append(l.now.Problems, fmt.Sprintf(format, args...))
}

func (l *lab) say(format string, args ...any) { fmt.Fprintf(l.log, format+"\n", args...) }
