package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/jobq-dev/jobq/internal/db"
)

const (
	inserters = 2
	claimers  = 2
	// jobsPerClaim and between make a load that leaves most of two cores free: a
	// stall is to be seen as such, and not to drown in a queue for a processor.
	jobsPerClaim = 10
	between      = 5 * time.Millisecond // one call of a session and the next
	awaitEvery   = 10 * time.Millisecond
)

// names of layouts, before which the names of owners begin.
const (
	firstName  = "first"
	secondName = "second"
)

// load adds and runs jobs all the while, whichever layout there is.
type load struct {
	url     string
	layouts map[string]layout
	meter   *meter

	mu        sync.Mutex
	inserted  []int64            // guarded by mu, as all below: what was acknowledged
	completed map[int64]struct{} // likewise
	refused   int                // ends that came after the layout had gone
}

func newLoad(url string) (*load, error) {
	schema, err := db.NewSchema("")
	if err != nil {
		return nil, err
	}
	return &load{
		url: url, layouts: map[string]layout{firstName: first{}, secondName: second{schema}},
		meter: newMeter(), completed: make(map[int64]struct{}),
	}, nil
}

// connect opens a session. The errors of closing one say nothing of the database.
func (l *load) connect(ctx context.Context) (conn *pgx.Conn, leave func(), err error) {
	conn, err = pgx.Connect(ctx, l.url)
	if err != nil {
		return nil, nil, err
	}
	return conn, func() { _ = conn.Close(context.WithoutCancel(ctx)) }, nil
}

// start begins the load, by workers of the layout of that name, until stop is
// called, which returns what went wrong. No call is interrupted by that, so it
// is known of each whether it took effect. The context returned ends with the load.
func (l *load) start(ctx context.Context, layoutName string) (running context.Context, stop func() error) {
	running, cancel := context.WithCancel(ctx)
	group, running := errgroup.WithContext(running)
	group.Go(func() error { return l.watch(running) })
	for range inserters {
		group.Go(func() error { return l.insert(running) })
	}
	for i := range claimers {
		group.Go(func() error {
			c := claimer{load: l, name: fmt.Sprintf("claimer-%d", i), queue: queueLoad, layout: layoutName}
			return c.work(running)
		})
	}
	return running, func() error {
		cancel()
		return group.Wait()
	}
}

// watch samples what the sessions wait for.
func (l *load) watch(ctx context.Context) error {
	conn, leave, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return l.meter.waits.sample(ctx, conn)
}

// insert adds one job at a time.
func (l *load) insert(ctx context.Context) error {
	conn, leave, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer leave()
	for ctx.Err() == nil {
		began := time.Now()
		var id int64
		if err := conn.QueryRow(context.WithoutCancel(ctx), "select jobq.enqueue($1, $2::jsonb, queue => $3)", kind, args, queueLoad).Scan(&id); err != nil {
			return fmt.Errorf("insert: %w", err)
		}
		l.meter.called("insert", conn.PgConn().PID(), began)
		l.mu.Lock()
		l.inserted = append(l.inserted, id)
		l.mu.Unlock()
		_ = pause(ctx, between) // the loop looks at the context
	}
	return nil
}

// claimer is one worker, which is replaced by one of the other layout when its own has gone.
type claimer struct {
	*load
	name, queue string
	layout      string // name of the layout that it knows
}

func (c *claimer) owner() string { return c.layout + "-" + c.name }

// isGone says whether an error means that the layout has gone, and replaces the worker.
func (c *claimer) isGone(err error) bool {
	if !db.IsNotMigrated(err) {
		return false
	}
	if c.layout == firstName {
		c.layout = secondName
	} else {
		c.layout = firstName
	}
	return true
}

// work claims and completes until the context ends.
func (c *claimer) work(ctx context.Context) error {
	conn, leave, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer leave()
	for ctx.Err() == nil {
		if err := c.once(context.WithoutCancel(ctx), conn); err != nil {
			return err
		}
		_ = pause(ctx, between) // the loop looks at the context
	}
	return nil
}

// once claims some jobs and completes them. A claim that failed because the
// layout has gone is timed until one of the other layout succeeds.
func (c *claimer) once(ctx context.Context, conn *pgx.Conn) error {
	began := time.Now()
	jobs, err := c.layouts[c.layout].claim(ctx, conn, c.owner(), c.queue, jobsPerClaim)
	for c.isGone(err) {
		jobs, err = c.layouts[c.layout].claim(ctx, conn, c.owner(), c.queue, jobsPerClaim)
	}
	if err != nil {
		return fmt.Errorf("claim by %s: %w", c.owner(), err)
	}
	if len(jobs) == 0 {
		return nil
	}
	c.meter.called("claim", conn.PgConn().PID(), began)
	began = time.Now()
	owner := c.owner()
	ids, err := c.layouts[c.layout].complete(ctx, conn, owner, jobs)
	if c.isGone(err) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.refused += len(jobs)
		return nil
	}
	if err != nil {
		return fmt.Errorf("end by %s: %w", owner, err)
	}
	c.meter.called("end", conn.PgConn().PID(), began)
	return c.note(ids, jobs)
}

// note keeps what was completed. None of it may have been before, and none may be missing.
func (l *load) note(ids []int64, jobs []db.Slot) error {
	if len(ids) != len(jobs) {
		return fmt.Errorf("%d of %d jobs were completed: %v of %v", len(ids), len(jobs), ids, jobs)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		if _, twice := l.completed[id]; twice {
			return fmt.Errorf("job %d was completed twice", id)
		}
		l.completed[id] = struct{}{}
	}
	return nil
}

// holders are living workers: they keep what they have, and complete nothing.
type holders struct {
	layout string
	jobs   map[string][]db.Slot // by owner
}

// hold claims all jobs of a queue for workers of the layout.
func (l *load) hold(ctx context.Context, conn *pgx.Conn, layoutName, queue string) (*holders, error) {
	const jobsPerHolder = 100
	h := &holders{layout: layoutName, jobs: make(map[string][]db.Slot)}
	for {
		owner := fmt.Sprintf("%s-holder-%d", layoutName, len(h.jobs))
		jobs, err := l.layouts[layoutName].claim(ctx, conn, owner, queue, jobsPerHolder)
		if err != nil || len(jobs) == 0 {
			return h, err
		}
		h.jobs[owner] = jobs
	}
}

// owners are the holders' names.
func (h *holders) owners() (owners []string) {
	for owner := range h.jobs {
		owners = append(owners, owner)
	}
	slices.Sort(owners)
	return owners
}

// errLost is of a living worker whose lease was not extended.
var errLost = errors.New("a living worker has lost jobs")

// keep extends the holders' leases until the layout has gone. They lose none before.
func (l *load) keep(ctx context.Context, h *holders) error {
	conn, leave, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer leave()
	for ctx.Err() == nil {
		for _, owner := range h.owners() {
			kept, err := l.layouts[h.layout].extend(context.WithoutCancel(ctx), conn, owner, h.jobs[owner])
			if db.IsNotMigrated(err) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("extend leases of %s: %w", owner, err)
			}
			if kept != len(h.jobs[owner]) {
				return fmt.Errorf("%s has %d of %d: %w", owner, kept, len(h.jobs[owner]), errLost)
			}
		}
		_ = pause(ctx, lease/time.Duration(60)) // the loop looks at the context
	}
	return nil
}

// await waits until a condition holds.
func await(ctx context.Context, holds func() (bool, error)) error {
	for {
		if done, err := holds(); done || err != nil {
			return err
		}
		if err := pause(ctx, awaitEvery); err != nil {
			return err
		}
	}
}
