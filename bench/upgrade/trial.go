package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/jobq-dev/jobq/bench/stage"
	"github.com/jobq-dev/jobq/internal/sleep"
)

// trial is an upgrade, and what was seen of it.
type trial struct {
	options
	folder, url, log string // log is the server's
	old, next        program
	pool             *pgxpool.Pool
	held             *held

	inserters []*inserter
	windows   []window
	crew      []*process // all that were started
	commands  int        // of the old program that were given meanwhile
}

// window is a part of the trial.
type window struct {
	what string
	span
}

// upgrade does it all. Inserters, and people at the old program, go on whatever happens.
func (t *trial) upgrade(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	defer func() { // nobody outlives the trial, however it ends
		end()
		for _, p := range t.crew {
			<-p.ended
		}
	}()
	if err := t.command(ctx, t.old, "migrate", "up"); err != nil {
		return err
	}
	if err := t.fill(ctx); err != nil {
		return err
	}
	if err := t.hold(ctx); err != nil {
		return err
	}
	loading, stop := context.WithCancel(ctx)
	defer stop()
	load, loading := errgroup.WithContext(loading)
	for _, sql := range inserts {
		i := &inserter{}
		t.inserters = append(t.inserters, i)
		load.Go(func() error { return i.insert(loading, t.url, sql, t.every) })
	}
	load.Go(func() error { return t.look(loading) })
	err := t.steps(ctx, loading)
	stop()
	if err := errors.Join(load.Wait(), err); err != nil {
		return err
	}
	return t.finish(ctx)
}

// fill adds the jobs that wait and those that have finished.
func (t *trial) fill(ctx context.Context) error {
	fmt.Printf("%d waiting jobs, %d finished ones, and %d that run during the whole trial\n", t.backlog, t.history, t.running)
	const (
		tomorrow = "insert into jobq.pending (kind, run_at) select 'later', now() + interval '1 day' from generate_series(1, $1)"
		unserved = "insert into jobq.pending (kind, queue) select 'later', 'unserved' from generate_series(1, $1)"
	)
	if _, err := t.pool.Exec(ctx, tomorrow, t.backlog/2); err != nil {
		return err
	}
	if _, err := t.pool.Exec(ctx, unserved, t.backlog-t.backlog/2); err != nil {
		return err
	}
	if _, err := t.pool.Exec(ctx, "vacuum (analyze) jobq.pending"); err != nil {
		return err
	}
	return stage.FillHistory(ctx, t.pool, t.history)
}

// look gives the old program's commands, one after the other, until the context ends.
func (t *trial) look(ctx context.Context) error {
	const pause = 200 * time.Millisecond
	for {
		for _, args := range [][]string{
			{"stats"}, {"queues", "list"}, {"kinds", "list"}, {"list", "--state", "completed", "--limit", "20"}, {"workers"}, {"errors"}, {"migrate", "status"},
		} {
			if err := t.command(ctx, t.old, args...); err != nil && ctx.Err() == nil {
				return err
			}
			if sleep.For(ctx, pause) != nil {
				return nil
			}
			t.commands++
		}
	}
}

// command runs a command to its end.
func (t *trial) command(ctx context.Context, p program, args ...string) error {
	command := exec.CommandContext(ctx, p.path, args...) // #nosec G204 -- the programs that are measured
	command.Env = environment(t.url, "command")
	if said, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s, %s: %w: %s", p.name, strings.Join(args, " "), err, said)
	}
	return nil
}

// notes is where handlers note what they do.
func (t *trial) notes() string { return filepath.Join(t.folder, "begun") }

// idle are the workers that have begun no job in the window.
func (t *trial) idle(window span, workers []*process) ([]string, error) {
	all, err := readBegun(t.notes())
	if err != nil {
		return nil, err
	}
	busy := map[string]bool{}
	for _, b := range all {
		if window.overlaps(span{b.at, b.at}) {
			busy[b.worker] = true
		}
	}
	var idle []string
	for _, w := range workers {
		if !busy[w.name] {
			idle = append(idle, w.name)
		}
	}
	return idle, nil
}

// alive says whether all work that were not told to leave.
func (t *trial) alive() error {
	var all error
	for _, p := range t.crew {
		all = errors.Join(all, p.check())
	}
	return all
}

// patience is how long something may take that is not measured.
const patience = 2 * time.Minute

// within waits until something is so.
func within(ctx context.Context, what string, is func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		done, err := is()
		if done || err != nil {
			return err
		}
		if err := sleep.For(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("waited for %s: %w", what, err)
		}
	}
}
