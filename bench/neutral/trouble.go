package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/jobq-dev/jobq/bench/child"
)

const (
	backendKillEvery = 500 * time.Millisecond
	idleConnections  = 300
	readers          = 4
	readerPause      = 100 * time.Millisecond
	overload         = 1.5
)

// trouble is something that happens to a contender at work, for so long.
type trouble struct {
	name, about string
	processes   int
	make        func(ctx context.Context, l *lab, f *flow, lasting time.Duration) error
}

// chaos are five kinds of it, as in the neutral benchmark.
func chaos() []trouble {
	return []trouble{
		{"server restarted", "the server is ended at once and started again", 1, restartServer},
		{"sessions ended", "pg_terminate_backend of one session of the database, twice a second", 1, endSessions},
		{"300 idle connections", "they are opened, held, and closed", 1, holdConnections},
		{"process killed", "one of two is killed, and started again half of the time later", 2, killOnce},
		{"processes killed", "one of two is killed six times, and started again each time", 2, killOften},
	}
}

// pressure are four kinds of it.
func pressure() []trouble {
	return []trouble{
		{"transaction open", "a transaction stays open elsewhere", 1, holdTransaction},
		{"1.5 times the jobs", "half as many jobs more are added", 1, overloadFlow},
		{"four readers", "four REPEATABLE READ transactions count the jobs that wait, over and over", 1, read},
		{burst, "the same as 1.5 times the jobs, for longer", 1, overloadFlow},
	}
}

const burst = "burst"

func restartServer(ctx context.Context, l *lab, _ *flow, lasting time.Duration) error {
	if err := l.Postgres.Halt(); err != nil {
		return err
	}
	if err := l.Postgres.Relaunch(ctx); err != nil {
		return err
	}
	child.Pause(ctx, lasting)
	return nil
}

func endSessions(ctx context.Context, l *lab, f *flow, lasting time.Duration) error {
	database := f.database.Pool.Config().ConnConfig.Database
	for end := time.Now().Add(lasting); time.Now().Before(end); child.Pause(ctx, backendKillEvery) {
		_, err := l.Admin.Exec(ctx, `select pg_terminate_backend(a.pid)
			from (select s.pid from pg_stat_activity s where s.datname = $1 order by random() limit 1) a`, database)
		if err != nil {
			return err
		}
	}
	return nil
}

func holdConnections(ctx context.Context, _ *lab, f *flow, lasting time.Duration) error {
	var mu sync.Mutex
	var held []*pgx.Conn
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(10)
	for range idleConnections {
		group.Go(func() error {
			conn, err := pgx.Connect(groupCtx, f.database.URL)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			held = append(held, conn)
			return nil
		})
	}
	err := group.Wait()
	if err == nil {
		child.Pause(ctx, lasting)
	}
	for _, conn := range held {
		_ = conn.Close(ctx) // it has done nothing
	}
	return err
}

func killOnce(ctx context.Context, _ *lab, f *flow, lasting time.Duration) error {
	if err := f.kill(); err != nil {
		return err
	}
	child.Pause(ctx, lasting/2)
	if err := f.launch(ctx); err != nil {
		return err
	}
	child.Pause(ctx, lasting/2)
	return nil
}

func killOften(ctx context.Context, _ *lab, f *flow, lasting time.Duration) error {
	const times = 6
	for range times {
		if err := f.kill(); err != nil {
			return err
		}
		if err := f.launch(ctx); err != nil {
			return err
		}
		child.Pause(ctx, lasting/times)
	}
	return nil
}

// inTransaction lets work be done in a REPEATABLE READ transaction of a session of its own: the pool's few are for adding jobs.
func inTransaction(ctx context.Context, f *flow, work func(tx pgx.Tx) error) error {
	conn, err := pgx.Connect(ctx, f.database.URL)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // it has written nothing
	return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, work)
}

func holdTransaction(ctx context.Context, _ *lab, f *flow, lasting time.Duration) error {
	return inTransaction(ctx, f, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "select txid_current()"); err != nil {
			return err
		}
		child.Pause(ctx, lasting)
		if _, err := tx.Exec(ctx, "select 1"); err != nil {
			return fmt.Errorf("the transaction was not open to the end: %w", err)
		}
		return nil
	})
}

func overloadFlow(ctx context.Context, _ *lab, f *flow, lasting time.Duration) error {
	offered := f.rate.Load()
	f.rate.Store(int64(overload * float64(offered)))
	child.Pause(ctx, lasting)
	f.rate.Store(offered)
	return nil
}

func read(ctx context.Context, _ *lab, f *flow, lasting time.Duration) error {
	group, ctx := errgroup.WithContext(ctx)
	end := time.Now().Add(lasting)
	for range readers {
		group.Go(func() error {
			return inTransaction(ctx, f, func(tx pgx.Tx) error {
				for time.Now().Before(end) {
					if _, err := tx.Exec(ctx, f.database.Left); err != nil {
						return err
					}
					child.Pause(ctx, readerPause)
				}
				return nil
			})
		})
	}
	return group.Wait()
}
