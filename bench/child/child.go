// Package child is what a contender in Go does in a process of its own: one command with an order in JSON, answers as lines
// of JSON. The peers on Node have the same in ../peers/protocol.mjs.
package child

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/jobq-dev/jobq/internal/measure"
)

// Order is what a child process is told, and ../peers/protocol.mjs is told
// the same.
type Order struct {
	Tuned       bool    `json:"tuned"`
	ReportMs    int     `json:"report_ms,omitempty"`   // how often it says how far it is
	HandlerMs   int     `json:"handler_ms,omitempty"`  // how long a job takes
	ProgressMs  int     `json:"progress_ms,omitempty"` // how often a job of jobq's says how far it is; 0 means never
	Workers     int     `json:"workers,omitempty"`     // in one process; 0 means one
	Slots       int     `json:"slots,omitempty"`       // of each, in all its queues; 0 means what tuned says
	Queues      int     `json:"queues,omitempty"`      // 0 means the system's default queue
	Tolerant    bool    `json:"tolerant,omitempty"`    // errors of connections are no reason to end
	PollMs      int     `json:"poll_ms,omitempty"`     // how often an idle one looks by itself; 0 means as it likes
	Way         string  `json:"way,omitempty"`         // of enqueueing, for systems with several
	Connections int     `json:"connections,omitempty"`
	Batch       int     `json:"batch,omitempty"`
	Seconds     float64 `json:"seconds,omitempty"`
	Rate        int     `json:"rate,omitempty"`
	Samples     int     `json:"samples,omitempty"`
	WarmUp      int     `json:"warm_up,omitempty"`
}

// Line is what a child process says.
type Line struct {
	Up        bool    `json:"up,omitempty"` // waits to be told to begin
	Ready     bool    `json:"ready,omitempty"`
	End       bool    `json:"end,omitempty"`
	Ran       int64   `json:"ran,omitempty"`
	Low       int64   `json:"low,omitempty"`      // of these, those of low priority
	FirstMs   float64 `json:"first_ms,omitempty"` // when the first job started, since 1970
	LastMs    float64 `json:"last_ms,omitempty"`
	CPUMicros int64   `json:"cpu_us,omitempty"`
	// HandlerMicros is the time that handlers have spent in jobs that take some, all slots together.
	HandlerMicros int64     `json:"handler_us,omitempty"`
	Jobs          int64     `json:"jobs,omitempty"`
	Seconds       float64   `json:"seconds,omitempty"`
	SamplesMs     []float64 `json:"samples_ms,omitempty"`
}

// QueueNames are those of several queues.
func QueueNames(queues int) []string {
	names := make([]string, queues)
	for i := range names {
		names[i] = fmt.Sprintf("q%d", i+1)
	}
	return names
}

// system is a queue in Go.
type system interface {
	setUp(ctx context.Context, pool *pgxpool.Pool) error
	// start runs jobs, calling ran for each. It returns when workers are on
	// their way; stop when they have stored everything.
	start(ctx context.Context, pool *pgxpool.Pool, o Order, ran func(n int64)) (stop func() error, err error)
	producer(pool *pgxpool.Pool, o Order) (producer, error)
}

// producer adds jobs, one or many or in a caller's transaction.
type producer interface {
	one(ctx context.Context, n int64) error
	many(ctx context.Context, from, count int64) error
	inTransaction(ctx context.Context, tx pgx.Tx, n int64) error
}

// quiet keeps systems from writing between the figures.
func quiet() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

// systems are those in Go, by name.
func systems() map[string]system {
	return map[string]system{"jobq": jobqSystem{}, "river": riverSystem{}, "sql": sqlSystem{}}
}

// child is a child process at its work.
type child struct {
	system system
	order  Order
	pool   *pgxpool.Pool
	out    *json.Encoder
}

// Run does what the arguments say: a system, a command, and an order.
func Run(ctx context.Context, args []string) error {
	if len(args) != 3 {
		return errors.New("usage: child SYSTEM COMMAND ORDER")
	}
	c := &child{system: systems()[args[0]], out: json.NewEncoder(os.Stdout)}
	commands := map[string]func(context.Context) error{
		"setup": c.setUp, "work": c.work, "enqueue": c.enqueue, "latency": c.latency, "mixed": c.mixed,
		"scheduled": c.scheduled,
	}
	if c.system == nil || commands[args[1]] == nil {
		return fmt.Errorf("no such child: %s %s", args[0], args[1])
	}
	if err := json.Unmarshal([]byte(args[2]), &c.order); err != nil {
		return err
	}
	config, err := pgxpool.ParseConfig(os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	config.MaxConns = int32(c.order.Connections + 10) // #nosec G115 -- small
	if c.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	defer c.pool.Close()
	return commands[args[1]](ctx)
}

func (c *child) setUp(ctx context.Context) error {
	if err := c.system.setUp(ctx, c.pool); err != nil {
		return err
	}
	return c.out.Encode(Line{End: true})
}

// tally counts jobs that ran, and remembers when the first and the last did.
type tally struct{ ran, low, first, last, handlers atomic.Int64 }

func (t *tally) add(n int64) {
	if n < 0 { // so low priority is told
		t.low.Add(1)
	}
	now := time.Now().UnixMicro()
	t.last.Store(now)
	if t.ran.Add(1) == 1 {
		t.first.Store(now)
	}
}

func (t *tally) line() Line {
	return Line{
		Ran: t.ran.Load(), Low: t.low.Load(), FirstMs: float64(t.first.Load()) / 1e3, LastMs: float64(t.last.Load()) / 1e3,
		CPUMicros: measure.ClientCPU().Microseconds(), HandlerMicros: t.handlers.Load(),
	}
}

// work runs jobs from a line on standard input until its end, and says now and
// then how many. It is up before it is told to begin, so that no process works
// while another one starts.
func (c *child) work(ctx context.Context) error {
	if err := c.pool.Ping(ctx); err != nil {
		return err
	}
	if err := c.out.Encode(Line{Up: true}); err != nil {
		return err
	}
	orders := bufio.NewReader(os.Stdin)
	if _, err := orders.ReadString('\n'); err != nil {
		return fmt.Errorf("never told to begin: %w", err)
	}
	var t tally
	stop, err := c.system.start(ctx, c.pool, c.order, func(n int64) {
		t.add(n)
		if c.order.HandlerMs > 0 {
			began := time.Now()
			Pause(ctx, time.Duration(c.order.HandlerMs)*time.Millisecond)
			t.handlers.Add(time.Since(began).Microseconds())
		}
	})
	if err != nil {
		return err
	}
	ready := t.line()
	ready.Ready = true
	if err := c.out.Encode(ready); err != nil {
		return err
	}
	told := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, orders) // its end is the message
		close(told)
	}()
	ticker := time.NewTicker(time.Duration(c.order.ReportMs) * time.Millisecond)
	defer ticker.Stop()
	for running := true; running; {
		select {
		case <-ticker.C:
			if err := c.out.Encode(t.line()); err != nil {
				return err
			}
		case <-told:
			running = false
		}
	}
	cpu := measure.ClientCPU().Microseconds()
	if err := stop(); err != nil {
		return err
	}
	end := t.line()
	end.End, end.CPUMicros = true, cpu
	return c.out.Encode(end)
}

// Pause waits so long, or until the context ends.
func Pause(ctx context.Context, duration time.Duration) {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// enqueue adds jobs until the time is over.
func (c *child) enqueue(ctx context.Context) error {
	p, err := c.system.producer(c.pool, c.order)
	if err != nil {
		return err
	}
	var jobs atomic.Int64
	cpu, began := measure.ClientCPU(), time.Now()
	end := began.Add(time.Duration(c.order.Seconds * float64(time.Second)))
	group, ctx := errgroup.WithContext(ctx)
	for range c.order.Connections {
		group.Go(func() error {
			for time.Now().Before(end) {
				from, count := jobs.Add(int64(c.order.Batch))-int64(c.order.Batch), int64(c.order.Batch)
				var err error
				if count == 1 {
					err = p.one(ctx, from)
				} else {
					err = p.many(ctx, from, count)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return c.out.Encode(Line{
		End: true, Jobs: jobs.Load(), Seconds: time.Since(began).Seconds(), CPUMicros: (measure.ClientCPU() - cpu).Microseconds(),
	})
}

// LatencyApart is enough for a system to have stored the job before, and to be idle.
const LatencyApart = 20 * time.Millisecond

// latency times single jobs from the moment of their commit until they start.
func (c *child) latency(ctx context.Context) error {
	arrived := make(chan time.Time, 1)
	stop, err := c.system.start(ctx, c.pool, c.order, func(int64) { arrived <- time.Now() })
	if err != nil {
		return err
	}
	p, err := c.system.producer(c.pool, c.order)
	if err != nil {
		return err
	}
	end := Line{End: true}
	for i := range c.order.WarmUp + c.order.Samples {
		Pause(ctx, LatencyApart)
		tx, err := c.pool.Begin(ctx)
		if err != nil {
			return err
		}
		if err := p.inTransaction(ctx, tx, int64(i)); err != nil {
			return err
		}
		committing := time.Now()
		if err := tx.Commit(ctx); err != nil {
			return err
		}
		if at := <-arrived; i >= c.order.WarmUp {
			end.SamplesMs = append(end.SamplesMs, float64(at.Sub(committing))/1e6)
		}
	}
	if err := stop(); err != nil {
		return err
	}
	return c.out.Encode(end)
}

// mixed enqueues at a fixed rate, and times each job from when it was due. Before that, each connection adds one job, which does
// not count: a new session takes milliseconds for its first one, and the figures are to be of a load that goes on.
func (c *child) mixed(ctx context.Context) error {
	jobs := int(float64(c.order.Rate) * c.order.Seconds)
	var mu sync.Mutex
	end := Line{End: true, Jobs: int64(jobs)}
	finished := make(chan struct{})
	var base time.Time // written before the first job is added that counts
	var warm sync.WaitGroup
	warm.Add(c.order.Connections)
	stop, err := c.system.start(ctx, c.pool, c.order, func(micros int64) {
		if micros < 0 {
			warm.Done()
			return
		}
		sample := time.Since(base.Add(time.Duration(micros) * time.Microsecond))
		mu.Lock()
		defer mu.Unlock()
		if end.SamplesMs = append(end.SamplesMs, float64(sample)/1e6); len(end.SamplesMs) == jobs {
			close(finished)
		}
	})
	if err != nil {
		return err
	}
	p, err := c.system.producer(c.pool, c.order)
	if err != nil {
		return err
	}
	warming, warmCtx := errgroup.WithContext(ctx)
	for range c.order.Connections {
		warming.Go(func() error { return p.one(warmCtx, -1) })
	}
	if err := warming.Wait(); err != nil {
		return err
	}
	warm.Wait()
	base = time.Now()
	var next atomic.Int64
	group, groupCtx := errgroup.WithContext(ctx)
	for range c.order.Connections {
		group.Go(func() error {
			for i := next.Add(1) - 1; i < int64(jobs); i = next.Add(1) - 1 {
				due := time.Duration(float64(i) / float64(c.order.Rate) * float64(time.Second))
				Pause(groupCtx, time.Until(base.Add(due)))
				if err := p.one(groupCtx, due.Microseconds()); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	<-finished
	end.Seconds = time.Since(base).Seconds()
	if err := stop(); err != nil {
		return err
	}
	return c.out.Encode(end)
}
