package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jobq-dev/jobq/internal/sleep"
)

// steps are those of docs/upgrade.md, there, back, and there again. They end early with the context loading, which is that of
// the load; processes live as long as ctx.
func (t *trial) steps(ctx, loading context.Context) error {
	// Somebody looks all the time, in one session.
	for _, command := range []string{"stats", "list"} {
		if _, err := t.start(ctx, t.old, command, command, "--watch"); err != nil {
			return err
		}
	}
	for _, step := range []func() error{
		func() error { return t.join(ctx, loading, t.old, "old-1", "old-2") },
		func() error { return t.steady(loading, "old programs") },
		func() error { return t.migrate(loading, "migrate up", "up") },
		func() error { return t.steady(loading, "old programs, new tables") },
		func() error { return t.leave("old-1") },
		func() error { return t.join(ctx, loading, t.next, "new-1", "new-2") },
		func() error { return t.join(ctx, loading, t.old, "old-1-again") },
		func() error { return t.steady(loading, "old and new programs") },
		func() error { return t.leave("old-2", "old-1-again") },
		func() error { return t.steady(loading, "new programs") },
		// Back: the programs first, then the tables.
		func() error { return t.join(ctx, loading, t.old, "old-3", "old-4") },
		func() error { return t.leave("new-1", "new-2") },
		func() error {
			return t.migrate(loading, "migrate down", "down", "--yes", "--target", fmt.Sprint(t.old.tables))
		},
		func() error { return t.steady(loading, "old programs, old tables again") },
		func() error { return t.migrate(loading, "migrate up again", "up") },
		func() error { return t.join(ctx, loading, t.next, "new-3", "new-4") },
		func() error { return t.leave("old-3", "old-4") },
		func() error { return t.steady(loading, "new programs again") },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// start starts a process that goes on until it is told to leave.
func (t *trial) start(ctx context.Context, p program, name string, args ...string) (*process, error) {
	started, err := start(ctx, name, t.url, p, args...)
	if err == nil {
		t.crew = append(t.crew, started)
	}
	return started, err
}

// join starts workers, with janitors inside, and returns when each has begun a job.
func (t *trial) join(ctx, loading context.Context, p program, names ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var joined []*process
	for _, name := range names {
		handler := strings.Join([]string{kind + "=" + self, asHandler, t.notes(), name}, " ")
		started, err := t.start(ctx, p, name, "worker", "--run-stream", handler)
		if err != nil {
			return err
		}
		started.worker = true
		joined = append(joined, started)
	}
	began := time.Now()
	return within(loading, "jobs of "+strings.Join(names, " and "), func() (bool, error) {
		idle, err := t.idle(span{began, time.Now()}, joined)
		return len(idle) == 0, errors.Join(err, t.alive())
	})
}

// leave makes workers drain, and returns when they have.
func (t *trial) leave(names ...string) error {
	for _, p := range t.crew {
		if slices.Contains(names, p.name) {
			if err := p.stop(); err != nil {
				return err
			}
		}
	}
	return nil
}

// steady lets everybody work for a time, in which each worker must begin jobs.
func (t *trial) steady(ctx context.Context, what string) error {
	fmt.Println(what)
	w := window{what: what, span: span{began: time.Now()}}
	if err := sleep.For(ctx, t.span); err != nil {
		return err
	}
	w.ended = time.Now()
	t.windows = append(t.windows, w)
	var workers []*process
	for _, p := range t.crew {
		if p.worker && !p.leaves {
			workers = append(workers, p)
		}
	}
	idle, err := t.idle(w.span, workers)
	if err == nil && len(idle) > 0 {
		err = fmt.Errorf("%s: no job was begun by %s", what, strings.Join(idle, ", "))
	}
	return errors.Join(err, t.alive())
}

// migrate migrates with the new program.
func (t *trial) migrate(ctx context.Context, what string, args ...string) error {
	fmt.Println(what)
	w := window{what: what, span: span{began: time.Now()}}
	if err := t.command(ctx, t.next, append([]string{"migrate"}, args...)...); err != nil {
		return err
	}
	w.ended = time.Now()
	t.windows = append(t.windows, w)
	return t.alive()
}

// finish waits until all jobs have run, and ends everybody.
func (t *trial) finish(ctx context.Context) error {
	err := within(ctx, "the last jobs", func() (bool, error) {
		var left bool
		err := t.pool.QueryRow(ctx, "select exists (select from jobq.job where kind = $1 and state <> 'completed')", kind).Scan(&left)
		return !left, err
	})
	if t.running > 0 && err == nil {
		err = t.release(ctx)
	}
	for _, p := range t.crew {
		if !p.leaves {
			err = errors.Join(err, p.stop())
		}
	}
	return err
}
