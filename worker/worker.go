package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
	"github.com/jobq-dev/jobq/internal/identity"
	"github.com/jobq-dev/jobq/internal/listen"
)

// Defaults of Config.
const (
	DefaultSlots        = 10
	DefaultPollInterval = 5 * time.Second
	DefaultDrainTimeout = 30 * time.Second
)

// stopGrace is how long handlers have to return after their contexts were
// cancelled by a drain, or killTime longer than the longest grace of a program
// if that is more; and flushGrace how long the last results may take.
const (
	stopGrace  = 5 * time.Second
	killTime   = 2 * time.Second
	flushGrace = 5 * time.Second
)

// Config says which jobs a worker takes and how. The zero value takes jobs
// from the queue "default".
type Config struct {
	// Queues are the queues to claim from, each with its slots: how many jobs
	// run at once. Default {"default": 10}.
	Queues map[string]int
	// Lease, when not zero, is stored as the lease of these queues before the
	// worker starts, for every worker to obey: 1 second to 30 days. Zero leaves
	// what is stored, or else 60 seconds.
	Lease time.Duration
	// PollInterval is how often an idle queue is looked at when nothing wakes
	// the worker: a third as often while notifications arrive. Default 5 seconds;
	// less some jitter.
	PollInterval time.Duration
	// PollOnly does without LISTEN. Behind a pooler that does not pass it on, the
	// worker does so by itself; see jobq.Config.Sessions.
	PollOnly bool
	// DrainTimeout is how long Run waits for running handlers when its context
	// ends. After that their contexts are cancelled and their jobs released.
	// Default 30 seconds; negative means not at all.
	DrainTimeout time.Duration
	// Reconcile says which jobs of dead workers are recovered before this one
	// claims its first. Default ReconcileHost.
	Reconcile Reconcile
	// Middleware wraps every run, the first one outermost.
	Middleware []Middleware
	// Batch says when the worker ends by itself. Default: never.
	Batch Batch
	// Logger is where the worker writes. Default slog.Default().
	Logger *slog.Logger
	// Version is shown to operators. Default "unknown".
	Version string
}

// Worker claims jobs and runs their handlers. Make one with New, add handlers
// with Handle, and call Run once.
type Worker struct {
	client    *jobq.Client
	config    Config
	id        string
	process   identity.Process
	schema    *db.Schema
	pool      *pgxpool.Pool // its own: a handler that uses up the caller's must not keep leases from being extended
	queries   *db.Queries
	log       *slog.Logger
	handlers  handlers
	externals externals
	queues    map[string]*queue
	claims    []string // the kinds that have handlers
	// kindSlots are the kinds that have slots of their own, and how many.
	kindSlots map[string]int
	keeper    *keeper
	digests   *digester
	sessions  db.Sessions   // as found at the start
	beatSoon  chan struct{} // a hint that the worker's row, or who watches, has changed
	wait      waiting
	herd      herd
	counts    counts
	halt      halt
	hurry     chan struct{} // closed when a drain is not to wait
	hurried   sync.Once
	started   atomic.Bool
	away      atomic.Bool // the database did not answer last time
	draining  atomic.Bool
	present   atomic.Bool // the presence lock is held
	deaf      atomic.Bool // notifications do not arrive: with PollOnly, or as the listener has found out
}

// handlers are what runs jobs, and the context that every run's descends from.
type handlers struct {
	byKind map[string]rawHandler
	ctx    context.Context
}

// New returns a worker that works for the client's database and schema. It
// does not talk to the database yet. A nil config means the defaults.
func New(client *jobq.Client, config *Config) (*Worker, error) {
	if config == nil {
		config = &Config{}
	}
	w := &Worker{client: client, config: *config, queues: make(map[string]*queue), hurry: make(chan struct{})}
	w.deaf.Store(config.PollOnly)
	w.kindSlots, w.halt.asked = make(map[string]int), make(chan struct{})
	if err := w.config.complete(); err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	schema, err := db.NewSchema(client.Schema())
	if err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	schema.Assume(client.Sessions())
	w.schema, w.handlers.byKind, w.keeper = schema, make(map[string]rawHandler), newKeeper(w)
	w.digests, w.wait.worker, w.beatSoon = newDigester(w), w, make(chan struct{}, 1)
	w.herd.worker, w.herd.taken, w.herd.spread = w, make(chan string, 1), wakeSpreadMax
	if w.process, err = identity.Self(); err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	if w.id, err = w.process.NewID(); err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	w.log = w.config.Logger.With("worker", w.id)
	for name, slots := range w.config.Queues {
		w.queues[name] = newQueue(w, name, slots)
	}
	return w, nil
}

// complete fills in defaults and refuses what cannot work.
func (c *Config) complete() error {
	if len(c.Queues) == 0 {
		c.Queues = map[string]int{"default": DefaultSlots}
	}
	for name, slots := range c.Queues {
		if name == "" || len([]rune(name)) > 128 {
			return fmt.Errorf("queue name %q: must be 1 to 128 characters", name)
		}
		if slots < 1 || slots > 10_000 {
			return fmt.Errorf("queue %q: slots must be 1 to 10000, not %d", name, slots)
		}
	}
	if c.PollInterval == 0 {
		c.PollInterval = DefaultPollInterval
	}
	if c.PollInterval < time.Millisecond {
		return fmt.Errorf("poll interval must be at least 1ms, not %s", c.PollInterval)
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = DefaultDrainTimeout
	}
	switch c.Reconcile {
	case "":
		c.Reconcile = ReconcileHost
	case ReconcileHost, ReconcileAll, ReconcileOff:
	default:
		return fmt.Errorf("reconcile %q: must be %q, %q or %q", c.Reconcile, ReconcileHost, ReconcileAll, ReconcileOff)
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Version == "" {
		c.Version = "unknown"
	}
	return nil
}

// ID is the worker's name: hostname-pid-random. It owns the worker's leases.
func (w *Worker) ID() string { return w.id }

// Run works until the context ends, and then drains: it claims nothing more,
// releases what has not started, waits up to DrainTimeout for handlers, then
// cancels them and releases their jobs, which costs none of them an attempt.
// It survives a database that goes away, and waits for one that is not there
// yet. An error is about tables that are missing or newer than this build,
// about handlers that did not stop, about results that could not be stored, or
// about too many failures. See Batch for when it ends by itself, and Finish,
// which is also what operator.DrainWorker makes it do from afar.
func (w *Worker) Run(ctx context.Context) error {
	if w.started.Swap(true) {
		return errors.New("worker: Run was called twice")
	}
	if w.claims = w.kinds(); len(w.claims) == 0 {
		return errors.New("worker: no handlers; call Handle before Run")
	}
	w.divideQueues()
	w.externals.begun.Store(true)
	if connected, err := w.connect(ctx); !connected {
		return err
	}
	defer w.pool.Close()
	defer w.externals.close()
	listener, err := w.listener()
	if err != nil {
		return err
	}
	asked := ctx
	ctx, release := w.untilHalted(asked)
	defer release()
	var stopHandlers context.CancelFunc
	w.handlers.ctx, stopHandlers = context.WithCancel(context.WithoutCancel(ctx))
	defer stopHandlers()
	flush, stopFlush := context.WithCancel(context.WithoutCancel(ctx))
	defer stopFlush()

	var background, working, slots sync.WaitGroup
	background.Go(func() { w.keeper.run(flush) })
	background.Go(func() { w.beat(flush) })
	background.Go(func() { w.flushOutput(flush) })
	background.Go(func() { w.digests.run(flush) })
	background.Go(func() { w.herd.run(flush) })
	if listener != nil {
		// Through the drain too: it holds the presence lock, and hears of cancelled
		// jobs. It ends with flush and has no other error.
		background.Go(func() { _ = listener.Run(flush) })
	}
	for _, q := range w.queues {
		for _, each := range q.all() {
			working.Go(func() { each.run(ctx, flush, &slots) })
		}
	}
	w.log.Info("worker started", "queues", w.config.Queues, "kinds", w.claims, "sessions", w.sessions)
	err = w.drain(asked, ctx, &working, stopFlush)
	stopFlush()
	background.Wait()
	if !errors.Is(err, errStuck) {
		slots.Wait()
	}
	w.deregister()
	w.log.Info("worker stopped", "counts", w.Counts())
	reason, _ := w.halt.verdict()
	return errors.Join(err, reason)
}

// connect makes the worker's own pool, and waits for the database and its
// settings. A database that is away is waited for; one with the wrong tables is
// an error. Without either it is not connected when the worker was asked to stop
// before there was anything to do.
func (w *Worker) connect(ctx context.Context) (connected bool, err error) {
	config := w.client.Pool().Config()
	config.MinConns, config.MinIdleConns = 0, 0
	config.MaxConns = int32(2*len(w.queues)*(1+len(w.kindSlots))) + 8 // #nosec G115 -- two a queue; leases, progress, output, heartbeat, digests, words taken, and two for what handlers store
	config.ConnConfig.RuntimeParams["application_name"] = "jobq-worker"
	db.RequirePrimary(config.ConnConfig)
	w.schema.Protect(config)
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), config)
	if err != nil {
		return false, fmt.Errorf("worker: %w", err)
	}
	w.pool, w.queries = pool, w.schema.Queries(pool)
	err = db.Retry(ctx, func(ctx context.Context) error {
		err := w.prepare(ctx)
		if db.IsTransient(err) {
			w.databaseTrouble(err)
		}
		return err
	})
	if err != nil {
		pool.Close()
		if ctx.Err() != nil {
			return false, nil
		}
		return false, fmt.Errorf("worker: %w", err)
	}
	w.databaseAnswered()
	return true, nil
}

// findSessions looks for a pooler that shares sessions. Where there is one, or
// may be one, statements are not prepared; where there is one, nothing listens.
func (w *Worker) findSessions(ctx context.Context) error {
	if w.sessions != "" { // and something after it has failed
		return nil
	}
	sessions, err := w.schema.FindSessions(ctx, w.pool)
	w.sessions = sessions
	switch {
	case sessions == db.SessionsOwn:
		return nil
	case sessions == "":
		return err
	case err != nil:
		w.log.Warn("sessions may be shared by a pooler: statements are not prepared", "reason", err)
	default:
		w.deaf.Store(true)
		w.log.Warn("sessions are shared by a pooler, as PgBouncer does in transaction mode: statements are not prepared, nothing listens and jobs are found by polling; give jobq a direct connection for wake-ups",
			"poll", w.config.PollInterval)
	}
	w.pool.Reset()
	return nil
}

// prepare does what comes before the first claim. Each call to the database has
// a deadline, after which it is trouble that is told of, and tried again: a worker
// that starts must not wait for ever, silently.
func (w *Worker) prepare(ctx context.Context) error {
	check := func(ctx context.Context) error { return db.CheckVersion(ctx, w.pool, w.schema) }
	for _, call := range []func(context.Context) error{check, w.findSessions, w.storeLease, w.register} {
		if err := bounded(ctx, call); err != nil {
			return err
		}
	}
	return w.reconcile(ctx)
}

// bounded calls the function with the deadline that a call to the database has.
func bounded(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, exchangeTimeoutMax)
	defer cancel()
	return call(ctx)
}

// storeLease writes the lease that the configuration asks for.
func (w *Worker) storeLease(ctx context.Context) error {
	if w.config.Lease == 0 {
		return nil
	}
	for name := range w.queues {
		if err := w.queries.QueueSet(ctx, db.QueueSetParams{Name: name, Lease: db.Interval(w.config.Lease)}); err != nil {
			return dberror.Wrap(w.schema, fmt.Sprintf("set queue %q", name), err)
		}
	}
	return nil
}

// listener returns the connection that wakes the worker, or nil when none can.
func (w *Worker) listener() (*listen.Listener, error) {
	if w.deaf.Load() { // as configured, or behind a pooler
		return nil, nil
	}
	work, cancel := db.Channel(w.schema.Name(), db.TopicWork), db.Channel(w.schema.Name(), db.TopicCancel)
	head, taken := db.Channel(w.schema.Name(), db.TopicHead), db.Channel(w.schema.Name(), db.TopicTaken)
	watch, drain := db.Channel(w.schema.Name(), db.TopicWatch), db.Channel(w.schema.Name(), db.TopicDrain)
	listener, err := listen.New(listen.Config{
		Pool: w.client.Pool().Config(), Sessions: w.client.Sessions(), Channels: []string{work, head, taken, cancel, watch, drain}, Logger: w.log, SelfTest: true,
		OnNotify: func(channel, payload string) {
			switch channel {
			case work, head:
				w.newWork(payload, channel == head)
			case taken:
				w.newsTaken(payload)
			case watch:
				signal(w.beatSoon)
			case drain:
				if payload == w.id {
					signal(w.beatSoon)
				}
			case cancel:
				if id, err := strconv.ParseInt(payload, 10, 64); err == nil {
					w.keeper.wakeFor(id)
				}
			}
		},
		OnHealthy: func(ctx context.Context, conn *pgx.Conn) error {
			if w.deaf.Swap(false) {
				w.wakeQueues() // those that are idle have not announced that they wait
			}
			return w.takePresence(ctx, conn)
		},
		OnEnd:  func(error) { w.present.Store(false) },
		OnDeaf: func() { w.deaf.Store(true) },
		OnConnect: func() { // whatever was said meanwhile was not heard
			w.wait.forget()
			w.wakeQueues()
			w.keeper.wakeAll()
		},
	})
	if err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	return listener, nil
}

// wakeQueues makes all queues look whether there is work, wherever in the line.
func (w *Worker) wakeQueues() {
	for _, q := range w.queues {
		for _, each := range q.all() {
			each.lookAgain()
			signal(each.wake)
		}
	}
}

// wakeQueuesOf is wakeQueues for those that run jobs of the kind.
func (w *Worker) wakeQueuesOf(kind string) {
	for _, q := range w.queues {
		for _, each := range q.all() {
			if slices.Contains(each.kinds, kind) {
				each.lookAgain()
				signal(each.wake)
			}
		}
	}
}

// drain waits for the end of the context and then for the queues, and makes
// them end. When the worker itself has decided to end, the context that Run was
// given can still end, and with it the patience for what runs.
func (w *Worker) drain(asked, ctx context.Context, working *sync.WaitGroup, stopFlush func()) error {
	done := make(chan struct{})
	go func() {
		working.Wait()
		close(done)
	}()
	<-ctx.Done()
	w.draining.Store(true)
	if _, patient := w.halt.verdict(); patient && asked.Err() == nil {
		w.log.Info("worker takes no new work")
		select {
		case <-done:
			return nil
		case <-asked.Done():
		case <-w.hurry:
		}
	}
	w.log.Info("worker drains", "timeout", w.config.DrainTimeout)
	if within(done, w.config.DrainTimeout, w.hurry) {
		return nil
	}
	w.keeper.stop(ErrDrained)
	if within(done, max(stopGrace, w.externals.grace()+killTime), nil) {
		return nil
	}
	var problems []error
	if stuck := w.abandon(); stuck > 0 {
		problems = append(problems, fmt.Errorf("worker: %w: %d", errStuck, stuck))
	}
	if !within(done, flushGrace, nil) {
		stopFlush()
		problems = append(problems, fmt.Errorf("worker: %w", errUnstored))
	}
	return errors.Join(problems...)
}

// abandon gives up on the handlers that have not stopped, and returns how many
// they are. The jobs that are still ours go back.
func (w *Worker) abandon() (stuck int) {
	held, lost := w.keeper.abandon()
	for _, run := range held {
		w.log.Error("handler did not stop", run.logAttrs()...)
		run.lease.queue.end(run.released(true))
	}
	for _, run := range lost {
		w.log.Error("handler did not stop, its job is no longer held", run.logAttrs()...)
		run.lease.queue.discard()
	}
	return len(held) + len(lost)
}

// StopNow makes a drain wait no longer for running handlers: their contexts
// are cancelled, as after DrainTimeout. The drain itself begins with the end
// of Run's context.
func (w *Worker) StopNow() { w.hurried.Do(func() { close(w.hurry) }) }

// within says whether the channel is closed before the time is over, or there
// is a reason not to wait that long.
func within(done <-chan struct{}, limit time.Duration, hurry <-chan struct{}) bool {
	timer := time.NewTimer(max(limit, 0))
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-hurry:
	case <-timer.C:
	}
	return false
}
