package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/jobq-dev/jobq/bench/layouts"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/migrate"
)

// plan is one thing to measure: a path that jobs take, and the load.
type plan struct {
	path
	jobs, argBytes     int
	batch, connections int
	failPercent        int    // of the jobs fail, and go back to wait for an hour
	longPercent        int    // of the jobs end one round trip after the others
	ownPercent         int    // of the jobs succeed, but not plainly, as those longer than 32 s: see endsOnRow
	resultPercent      int    // of the jobs return something
	held               bool   // a transaction is open while the jobs are drained
	session            string // set on each connection
	compressible       bool   // args are one word, again and again
}

// path is how jobs are claimed and finished, as SQL for jobq's own schema.
// Statements take the parameters of the statements that they stand for.
type path struct {
	name     string
	setUp    string // after the migrations
	settings string // begins each transaction; none when empty
	lock     string // before the claim, when a claim must wait for the one before it; takes the queue
	claim    string // as db.JobClaim; a last column `batch` where batches are leased
	complete string // as db.JobComplete
	second   bool   // the second layout: the claim is runClaim, and the ends are runEnd and leaseEnd
	batched  bool   // jobs are finished by the three below, and those split off by complete
	finish   string // all of a batch: its id, owner, kinds, counts, seconds run and waited
	split    string // all of a batch but some: the same, and the ids of these, which become rows of running
	history  string // how many jobs have completed; "" where the path keeps no history
	fill     string // takes the args of some jobs
	keep     string // kept with each completion: ids, tokens and owner; mostly none
	look     string // shows one finished job by its id; "" where that is not measured
	page     string // the newest 50 finished jobs
	scan     string // asks all finished jobs for something that has no index
}

// figures are what one round came to.
type figures struct{ fillMicros, fillWAL, perSecond, micros, wal, lookMillis, pageMillis, scanMillis, historyBytes float64 }

// bed is a schema of a plan's own, and the plan's connections.
type bed struct {
	plan
	schema *db.Schema
	conns  []*pgx.Conn
	added  int // jobs of this round
}

// makeBed makes the schema in a database and opens the connections, for all rounds.
func makeBed(ctx context.Context, url string, p plan, number int) (*bed, error) {
	schema, err := db.NewSchema(fmt.Sprint("plan", number))
	if err != nil {
		return nil, err
	}
	b := &bed{plan: p, schema: schema}
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	if _, err := migrate.Up(ctx, pool, &migrate.Config{Schema: schema.Name(), Logger: slog.New(slog.DiscardHandler)}); err != nil {
		return nil, err
	}
	if _, err := pool.Exec(ctx, schema.SQL(p.setUp)); err != nil {
		return nil, fmt.Errorf("%s: set up: %w", p.name, err)
	}
	for range p.connections {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return nil, err
		}
		b.conns = append(b.conns, conn)
		if _, err := conn.Exec(ctx, p.session); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (b *bed) close(ctx context.Context) {
	for _, conn := range b.conns {
		_ = conn.Close(ctx) // all is committed
	}
}

// round fills the schema, drains it, and looks at what came to be.
func (b *bed) round(ctx context.Context) (f figures, err error) {
	if err := b.clear(ctx); err != nil {
		return f, err
	}
	if _, f.fillMicros, f.fillWAL, err = b.cost(ctx, func() error { return b.add(ctx) }); err != nil {
		return f, err
	}
	if f.perSecond, f.micros, f.wal, err = b.cost(ctx, func() error { return b.drainHeld(ctx) }); err != nil {
		return f, err
	}
	if err := b.check(ctx); err != nil {
		return f, err
	}
	return f, b.read(ctx, &f)
}

// cost is the rate, and the server's CPU in microseconds and WAL in bytes per job, of some work.
func (b *bed) cost(ctx context.Context, work func() error) (perSecond, micros, wal float64, err error) {
	cpuBefore, err := layouts.CPUTime(b.conns)
	if err != nil {
		return 0, 0, 0, err
	}
	walBefore, err := layouts.WALPosition(ctx, b.conns[0])
	if err != nil {
		return 0, 0, 0, err
	}
	started, jobs := time.Now(), float64(b.jobs)
	if err := work(); err != nil {
		return 0, 0, 0, err
	}
	perSecond = jobs / time.Since(started).Seconds()
	walAfter, err := layouts.WALPosition(ctx, b.conns[0])
	if err != nil {
		return 0, 0, 0, err
	}
	cpu, err := layouts.CPUTime(b.conns)
	return perSecond, float64((cpu - cpuBefore).Nanoseconds()) / 1000 / jobs, (walAfter - walBefore) / jobs, err
}

// check counts the history: a path that loses jobs must not win.
func (b *bed) check(ctx context.Context) error {
	if b.history == "" {
		return nil
	}
	var completed int
	if err := b.conns[0].QueryRow(ctx, b.schema.SQL(b.history)).Scan(&completed); err != nil {
		return fmt.Errorf("count the history: %w", err)
	}
	want := b.added
	for id := range b.added {
		if b.fails(int64(id + 1)) {
			want--
		}
	}
	if completed != want {
		return fmt.Errorf("%d jobs completed, not %d", completed, want)
	}
	return nil
}

// read measures how dear it is to look at the history.
func (b *bed) read(ctx context.Context, f *figures) error {
	if b.held {
		return b.size(ctx, f, "")
	}
	if b.look == "" {
		return nil
	}
	conn := b.conns[0]
	if _, err := conn.Exec(ctx, "analyze"); err != nil {
		return err
	}
	const looks = 100
	started := time.Now()
	for i := range looks {
		var id int64
		if err := conn.QueryRow(ctx, b.schema.SQL(b.look), int64(i*(b.jobs/looks)+1)).Scan(&id); err != nil {
			return fmt.Errorf("look at one: %w", err)
		}
	}
	f.lookMillis = time.Since(started).Seconds() * 1000 / looks
	started = time.Now()
	for range looks {
		if _, err := conn.Exec(ctx, b.schema.SQL(b.page)); err != nil {
			return fmt.Errorf("page: %w", err)
		}
	}
	f.pageMillis = time.Since(started).Seconds() * 1000 / looks
	started = time.Now()
	if _, err := conn.Exec(ctx, b.schema.SQL(b.scan)); err != nil {
		return fmt.Errorf("scan: %w", err)
	}
	f.scanMillis = time.Since(started).Seconds() * 1000
	return b.size(ctx, f, "^(finished|batch|run_|lease|past_lease)")
}

// size is what tables of some names take on disk, per job.
func (b *bed) size(ctx context.Context, f *figures, names string) error {
	var bytes int64
	err := b.conns[0].QueryRow(ctx, b.schema.SQL(`select coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint from pg_class c
		where c.relnamespace = left('jobq.', -1)::regnamespace and c.relkind = 'r' and c.relname ~ $1`), names).Scan(&bytes)
	f.historyBytes = float64(bytes) / float64(b.jobs)
	return err
}

// drainHeld drains, with a transaction open beside it where the plan says so.
func (b *bed) drainHeld(ctx context.Context) error {
	if !b.held {
		return b.drain(ctx)
	}
	conn, err := pgx.ConnectConfig(ctx, b.conns[0].Config())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }() // it has changed nothing
	if _, err := conn.Exec(ctx, "begin isolation level repeatable read; select 1"); err != nil {
		return err
	}
	return b.drain(ctx)
}

func (b *bed) drain(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for i := range b.conns {
		group.Go(func() error { return b.worker(i).drain(ctx) })
	}
	return group.Wait()
}

func (b *bed) worker(number int) *worker {
	return &worker{bed: b, conn: b.conns[number], owner: fmt.Sprint("owner", number), line: db.Line{}}
}

// claimed are the jobs of one claim.
type claimed struct {
	ids, tokens []int64
	batch       int64
	last        int64 // position
	slots       []int // in their lease, from 1: second layout only
}

// read takes a row of the claim's answer, which is as JobClaimRow and may have a batch, or a lease.
func (c *claimed) read(values [][]byte, p path) {
	number := func(column int) int64 { return int64(binary.BigEndian.Uint64(values[column])) } // #nosec G115 -- an int8
	c.ids, c.tokens, c.last = append(c.ids, number(0)), append(c.tokens, number(2)), max(c.last, number(1))
	switch {
	case p.batched:
		c.batch = number(len(values) - 1)
	case p.second:
		c.readRun(values)
	}
}
