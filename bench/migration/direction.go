package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/jobq-dev/jobq/internal/db"
)

// direction is a migration under load: there, or back.
type direction struct {
	name, from, to string // to and from are names of layouts
	move           func(m migration, ctx context.Context) (timing, error)
}

// thereAndBack fills a database that has the second layout and no jobs, as one
// of the first, and measures and checks both directions.
func thereAndBack(ctx context.Context, out io.Writer, url string, size sizes, calm int) error {
	l, err := newLoad(url)
	if err != nil {
		return err
	}
	conn, leave, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err := makeFirst(ctx, migration{conn: conn, log: io.Discard}, size); err != nil {
		return err
	}
	if err := rowsOfFirst(ctx, conn, "original"); err != nil {
		return err
	}
	there := direction{name: "there", from: firstName, to: secondName, move: migration.up}
	if err := l.measure(ctx, out, conn, there, calm); err != nil {
		return fmt.Errorf("%s: %w", there.name, err)
	}
	const more = "insert into jobq.pending (queue, kind) select $1, $2 from generate_series(1, $3::integer)"
	if _, err := conn.Exec(ctx, more, queueHeld, kind, size.running); err != nil {
		return err
	}
	back := direction{name: "back", from: secondName, to: firstName, move: migration.down}
	if err := l.measure(ctx, out, conn, back, calm); err != nil {
		return fmt.Errorf("%s: %w", back.name, err)
	}
	if err := checkRowsOfFirst(ctx, conn); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nchecked: %d inserts and %d completions, nothing lost, nothing twice; %d late ends refused, their jobs ran again or wait\n",
		len(l.inserted), len(l.completed), l.refused)
	return nil
}

// measure takes one direction under load, and checks what has come of it.
func (l *load) measure(ctx context.Context, out io.Writer, conn *pgx.Conn, d direction, calm int) error {
	held, err := l.hold(ctx, conn, d.from, queueHeld)
	if err != nil {
		return err
	}
	if err := snapshot(ctx, conn, "before"); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "checkpoint"); err != nil { // of what was made for this
		return err
	}
	fmt.Fprintf(out, "\n%s\n", strings.ToUpper(d.name))
	l.meter.begin("before " + d.name)
	running, stop := l.start(ctx, d.from)
	began, err := l.underLoad(running, out, conn, d, held, calm)
	if err = errors.Join(err, stop()); err != nil {
		return err
	}
	l.meter.report(out, "before "+d.name, d.name, began)
	return errors.Join(checkSame(ctx, conn), l.checkAcknowledged(ctx, conn))
}

// underLoad is what happens while others insert and claim. It returns when the
// migration began.
func (l *load) underLoad(ctx context.Context, out io.Writer, conn *pgx.Conn, d direction, held *holders, calm int) (began time.Time, err error) {
	living, stop := context.WithCancel(ctx)
	defer stop()
	var keepers errgroup.Group
	keepers.Go(func() error { return l.keep(living, held) })
	if err := await(ctx, func() (bool, error) {
		return min(l.meter.count("before "+d.name, "insert"), l.meter.count("before "+d.name, "claim")) >= calm, nil
	}); err != nil {
		return began, err
	}
	l.meter.begin(d.name)
	began = time.Now()
	took, err := d.move(migration{conn: conn, log: out}, ctx)
	if err != nil {
		return began, err
	}
	l.meter.begin("after " + d.name)
	fmt.Fprintf(out, "in all %s: prepared in %s, locked for %s, history in %s and %d steps\n", rounded(time.Since(began)), rounded(took.prepare),
		rounded(took.locked), rounded(took.history), took.steps)
	if err := keepers.Wait(); err != nil { // they saw that their layout has gone
		return began, err
	}
	return began, l.replaceHolders(ctx, conn, d, held)
}

// replaceHolders does what is left for the jobs of workers whose layout has gone:
// what such a worker still sends is refused; a worker of the new layout that knows
// them to be dead takes their jobs, and these run again.
func (l *load) replaceHolders(ctx context.Context, conn *pgx.Conn, d direction, held *holders) error {
	if err := held.check(ctx, conn); err != nil {
		return err
	}
	owners := held.owners()
	count := 0
	for _, owner := range owners {
		ids, err := l.layouts[d.from].complete(ctx, conn, owner, held.jobs[owner])
		if !db.IsNotMigrated(err) || !strings.Contains(err.Error(), "does not exist") || len(ids) > 0 {
			return fmt.Errorf("a late end by %s was not refused clearly: %v, %v", owner, ids, err) //nolint:errorlint // may be none
		}
		count += len(held.jobs[owner])
	}
	for i := range claimers {
		owners = append(owners, (&claimer{name: fmt.Sprintf("claimer-%d", i), layout: d.from}).owner())
	}
	if err := held.check(ctx, conn); err != nil {
		return fmt.Errorf("after late ends: %w", err)
	}
	reaped, err := l.layouts[d.to].reap(ctx, conn, owners)
	if err != nil {
		return err
	}
	if reaped < count {
		return fmt.Errorf("%d jobs of %d were taken from dead workers", reaped, count)
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	group, working := errgroup.WithContext(working)
	group.Go(func() error {
		c := claimer{load: l, name: "successor", queue: queueHeld, layout: d.to}
		return c.work(working)
	})
	err = await(working, func() (bool, error) { return l.ranAgain(held), nil })
	stop()
	if err = errors.Join(err, group.Wait()); err != nil {
		return err
	}
	return none(ctx, conn, "ran again, without an attempt that was lost", `
		select b.id from checks.before b
			where b.queue = $1 and b.state = 'running' and not exists (
				select from jobq.attempt a where a.job_id = b.id and a.outcome = 'lost' and a.worker_id = any($2))`, queueHeld, owners)
}

// ranAgain says whether all jobs of the holders have been completed, by others.
func (l *load) ranAgain(h *holders) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, jobs := range h.jobs {
		for _, job := range jobs {
			if _, ran := l.completed[job.ID]; !ran {
				return false
			}
		}
	}
	return true
}

func rounded(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
