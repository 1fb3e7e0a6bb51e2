package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/identity"
	"github.com/jobq-dev/jobq/worker/internal/clock"
	"github.com/jobq-dev/jobq/worker/internal/digest"
	"github.com/jobq-dev/jobq/worker/internal/leases"
	"github.com/jobq-dev/jobq/worker/internal/resting"
	"github.com/jobq-dev/jobq/worker/internal/unreadable"
	"github.com/jobq-dev/jobq/worker/internal/waking"
)

// Worker claims jobs and runs their handlers. Make one with New, add handlers
// with Handle, and call Run once.
type Worker struct {
	client    *jobq.Client
	codec     jobq.Codec // the client's; nil for none
	config    Config
	id        string
	process   identity.Process
	runKey    []byte // of the codes in run tokens
	schema    *db.Schema
	pool      *pgxpool.Pool // the worker's own: leases are extended even when handlers use all connections of the client's pool
	queries   *db.Queries
	log       *slog.Logger
	handlers  handlers
	externals externals
	queues    map[string]*queue
	claims    []string // the kinds that have handlers
	keeper    *keeper
	// unreadable holds the kinds and encryption keys whose jobs this worker cannot decode.
	unreadable unreadable.Memory
	// resting holds the kinds whose runs fail here and may succeed elsewhere.
	resting resting.Kinds
	// claimed are the leases that the worker's claims have made. unanswered signals that the
	// answer to a claim was lost.
	claimed    *leases.Claims
	unanswered chan struct{}
	eventWaits chan struct{} // a semaphore: runs that ask whether an event has come
	spawns     chan struct{} // a semaphore: runs that add jobs as a step
	digests    *digest.Digester
	solitude   *solitude
	apartTurn  sync.Mutex  // of its queues' looks for jobs that cannot be read
	sessions   db.Sessions // as found at the start
	// connectionsMax is how many connections to the server the worker may open; null: not known.
	connectionsMax pgtype.Int4
	// agedLookEvery and beatEvery are the constants of these names; tests change them.
	agedLookEvery, beatEvery time.Duration
	beatTook                 atomic.Int64 // how long the last heartbeat took, in nanoseconds

	janitor  attendant
	beatSoon chan struct{} // makes the next heartbeat come at once: what it reads may have changed
	spreader *waking.Spreader
	counts   counts
	failures *failures
	halt     halt
	hurry    chan struct{} // closed by DrainNow: a drain must not wait
	notice   notice
	hurried  sync.Once
	started  atomic.Bool
	away     atomic.Bool // the last call to the database has failed
	claiming atomic.Bool // Run has found the database, and has not returned
	draining atomic.Bool
	present  atomic.Bool // the presence lock is held, by a session that hears notifications
	// unnotified says that notifications do not arrive: with PollOnly, behind a
	// pooler, or as the listener has found out.
	unnotified atomic.Bool
	// hold is why an operator holds the host, which may be ""; nil: nobody does.
	hold atomic.Pointer[string]
}

// handlers are the handlers by kind, and the parent of the contexts of all runs.
type handlers struct {
	byKind map[string]handled
	ctx    context.Context
}

// New returns a worker that works for the client's database and schema. It
// does not talk to the database yet. A nil config means the defaults.
func New(client *jobq.Client, config *Config) (*Worker, error) {
	if client == nil {
		return nil, errors.New("worker: the client is nil")
	}
	if config == nil {
		config = &Config{}
	}
	w := &Worker{client: client, codec: client.Codec(), config: *config, queues: make(map[string]*queue), hurry: make(chan struct{}), notice: notice{begun: make(chan struct{})}}
	w.unnotified.Store(config.PollOnly)
	w.halt.begun = make(chan struct{})
	if err := w.config.complete(); err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	schema, err := db.NewSchema(client.Schema())
	if err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	w.resting.After = w.config.RestAfterFailures
	schema.Assume(client.Sessions())
	w.schema, w.handlers.byKind, w.keeper = schema, make(map[string]handled), newKeeper(w)
	w.claimed, w.unanswered = leases.NewClaims(), make(chan struct{}, 1)
	w.eventWaits, w.spawns = make(chan struct{}, eventWaitsMax), make(chan struct{}, spawnsMax)
	w.beatSoon, w.agedLookEvery, w.beatEvery = make(chan struct{}, 1), agedLookEvery, beatEvery
	w.spreader, w.solitude = waking.NewSpreader(), newSolitude()
	if w.process, err = identity.Self(); err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	if w.id, err = w.process.NewID(); err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	if w.janitor, err = newAttendant(client, &w.config); err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	w.log, w.digests = w.config.Logger.With("worker", w.id), digest.New(w.id)
	w.failures = newFailures(w.config.OnFailure, w.log)
	for name, each := range w.config.Queues {
		w.queues[name] = newQueue(w, name, each.Slots, newShared(name, w.config.PollInterval))
		w.queues[name].claimsNoneAhead = each.NoClaimAhead
	}
	return w, nil
}

// ID is the worker's name: hostname-pid-random. It owns the worker's leases.
func (w *Worker) ID() string { return w.id }

// Run works until the context ends, with a janitor beside the worker unless
// Config.NoJanitor is set, and then drains: it claims nothing more,
// releases what has not started, waits up to DrainTimeout for handlers, then
// cancels them and releases their jobs, which costs none of them an attempt.
// It waits for a database that is not there yet, or that goes away later.
//
// Run returns an error when tables are missing or too new for this build, at the
// start or later; when handlers did not stop; when results could not be stored;
// and when there were too many failures. See Batch for when it ends by itself, and
// Drain and DrainNow, which end it from outside.
func (w *Worker) Run(ctx context.Context) error {
	if w.started.Swap(true) {
		return errors.New("worker: Run was called twice")
	}
	if w.claims = w.kinds(); len(w.claims) == 0 {
		return errors.New("worker: no handlers; call Handle before Run")
	}
	for _, q := range w.queues {
		q.divide(w.claims, w.kindSlots())
	}
	w.externals.begun.Store(true)
	if connected, err := w.connectUnlessHalted(ctx); !connected {
		return err
	}
	defer w.pool.Close()
	defer w.externals.close()
	defer w.claiming.Store(false)
	listener, err := w.listener()
	if err != nil {
		return err
	}
	outer := ctx
	ctx, release := w.untilHalted(outer)
	defer release()
	var stopHandlers context.CancelFunc
	w.handlers.ctx, stopHandlers = context.WithCancel(context.WithoutCancel(ctx))
	defer stopHandlers()
	flush, stopFlush := context.WithCancel(context.WithoutCancel(ctx))
	defer stopFlush()
	reporting, stopReporting := context.WithCancel(context.WithoutCancel(ctx))
	defer stopReporting()
	w.failures.start(reporting)
	attended, stopJanitor := context.WithCancel(outer)
	defer stopJanitor()

	var background, working, slots sync.WaitGroup
	background.Go(func() { w.keeper.run(flush) })
	background.Go(func() { w.beat(flush) })
	background.Go(func() { w.attend(attended) })
	background.Go(func() { w.lookForAged(ctx) })
	held := w.solitude.due() <= clock.SinceBoot()
	w.solitude.hold(held)
	background.Go(func() { w.runSuspects(ctx, held) })
	background.Go(func() { w.lookForUnanswered(flush) })
	background.Go(func() { w.flushOutput(flush) })
	background.Go(func() { w.digests.Run(flush, w.queries, w.log) })
	background.Go(func() { w.spreader.Run(flush, w.queries, w.databaseTrouble) })
	if listener != nil {
		// The listener runs during the drain, too: it holds the presence lock, and receives
		// notifications of cancelled jobs. Its only error is that flush has ended.
		background.Go(func() { _ = listener.Run(flush) })
	}
	for _, q := range w.queues {
		for _, each := range q.all() {
			working.Go(func() { each.run(ctx, flush, &slots) })
		}
	}
	w.claiming.Store(true)
	w.log.Info("worker started", "queues", w.slots(), "kinds", w.claims, "sessions", w.sessions)
	err = w.awaitEnd(outer, ctx, &working, stopFlush)
	stopFlush()
	stopJanitor()
	background.Wait()
	if !errors.Is(err, errStuck) {
		slots.Wait()
	}
	w.failures.end(stopReporting)
	w.deregister()
	w.log.Info("worker stopped", "counts", w.Counts())
	reason, _ := w.halt.verdict()
	return errors.Join(err, reason)
}
