package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/monitor"
)

// This file is where package worker meets handlers that run jobs outside of this
// process: those of package programs, for which it is made. Handlers in Go need
// nothing of it. External is what the worker asks of such handlers, ExternalHost
// what they ask of the worker, and ExternalRun what they ask of a run.

// External stands for handlers that run jobs outside of this process. Its methods
// are called from several goroutines.
type External interface {
	// Claimable returns those of the kinds whose jobs may be claimed now. It is
	// called before each claim, and must return at once. It returns kinds that are
	// not its own as well. It must not change the slice, but may return it.
	Claimable(kinds []string) []string
	// Grace is the longest time that a program has to end when it is asked to. A
	// drain waits that long.
	Grace() time.Duration
	// Unreached says of each kind whose handler cannot be reached now why that is.
	Unreached() map[string]string
	// Summary is shown to operators, by kind.
	Summary() map[string]monitor.Programs
	// Close ends what is kept between jobs. Run calls it after its last handler has
	// returned.
	Close()
}

// Attach makes the worker call the External. It must be called before Run.
func Attach(w *Worker, external External) *ExternalHost {
	w.externals.all = append(w.externals.all, external)
	return &ExternalHost{w}
}

// ExternalHost is the worker, as far as an External knows it.
type ExternalHost struct{ worker *Worker }

// Logger is the worker's.
func (h *ExternalHost) Logger() *slog.Logger { return h.worker.log }

// IsDraining says whether the worker has begun to drain.
func (h *ExternalHost) IsDraining() bool { return h.worker.draining.Load() }

// Drained is closed when the worker drains and handlers that run are not to go on for longer than until DrainEnd. It stays
// open while a drain waits for them without a limit, and where Config.DrainTimeout leaves them no time.
func (h *ExternalHost) Drained() <-chan struct{} { return h.worker.notice.begun }

// DrainEnd is when handlers that still run are told to end. It may be called when Drained is closed.
func (h *ExternalHost) DrainEnd() time.Time { return h.worker.notice.endAt }

// Wake makes the worker look for jobs of the kind, wherever they are in the queue.
// It does nothing before Run.
func (h *ExternalHost) Wake(kind string) {
	if h.worker.externals.begun.Load() {
		h.worker.wakeQueuesOf(kind)
	}
}

// externals are all that were attached.
type externals struct {
	all   []External
	begun atomic.Bool // the queues are those that Run works with
}

// claimable returns those of the kinds that may be claimed now.
func (e *externals) claimable(kinds []string) []string {
	for _, each := range e.all {
		kinds = each.Claimable(kinds)
	}
	return kinds
}

func (e *externals) grace() (longest time.Duration) {
	for _, each := range e.all {
		longest = max(longest, each.Grace())
	}
	return longest
}

// unreached are the kinds whose handlers cannot be reached, and why; nil when there are none.
func (e *externals) unreached() map[string]string {
	var all map[string]string
	for _, each := range e.all {
		for kind, reason := range each.Unreached() {
			if all == nil {
				all = make(map[string]string)
			}
			all[kind] = reason
		}
	}
	return all
}

// summary is that of all kinds, for the worker's row. troubles are those of kinds that could be reached.
func (e *externals) summary(troubles map[string]string) (json.RawMessage, error) {
	summary := make(map[string]monitor.Programs)
	for _, each := range e.all {
		for kind, sum := range each.Summary() {
			summary[kind] = sum
		}
	}
	for kind, trouble := range troubles {
		sum := summary[kind]
		sum.Trouble = cmp.Or(sum.Trouble, trouble)
		summary[kind] = sum
	}
	return json.Marshal(summary)
}

func (e *externals) close() {
	for _, each := range e.all {
		each.Close()
	}
}

// ExternalRun is a run, with what its handler needs besides when the work is done
// outside of this process.
type ExternalRun struct{ *Run }

// Timeout is the job's own timeout; 0 for none.
func (r ExternalRun) Timeout() time.Duration {
	return time.Duration(r.row.TimeoutMs) * time.Millisecond
}

// KillMargin is how long before the lease ends the worker gives it up: a sixth of
// the lease, at most 5 seconds.
func (r ExternalRun) KillMargin() time.Duration { return r.queue.settings.Load().KillMargin() }

// GivesUpAt is when the worker gives up the lease unless it can extend it before,
// as the time since boot (CLOCK_BOOTTIME).
func (r ExternalRun) GivesUpAt() time.Duration { return r.worker.keeper.held.Deadline(&r.hold) }

// OnLeaseLost has the function called when the lease is lost, at once and also
// when the run's context has ended before. It must not block, and not call
// GivesUpAt, OnLeaseLost or LoseLease. With one, the worker gives up the lease
// earlier when the machine is so busy that signals would be late. Nil takes it back.
func (r ExternalRun) OnLeaseLost(lost func()) { r.worker.keeper.held.OnLost(&r.hold, lost) }

// OnFreeze says that the run can freeze: that it can be kept from having effects, and go on later.
// The function freezes it, or lets it go on. It must not block, and not call the methods that
// OnLeaseLost names. Nil takes it back.
//
// If all runs of a lease can freeze that have begun, and the worker's heartbeats extend it, the lease is
// not given up when it could not be extended in time: they freeze, and the worker goes on trying. When
// the database answers, they go on if nobody has taken the lease. If somebody has, it is lost.
func (r ExternalRun) OnFreeze(freeze func(frozen bool)) {
	if freeze == nil {
		r.worker.keeper.held.OnFreeze(&r.hold, nil)
		return
	}
	r.worker.keeper.held.OnFreeze(&r.hold, func(frozen bool) {
		freeze(frozen)
		if frozen {
			r.worker.log.Warn("lease not extended in time, run frozen", r.logAttrs()...)
		} else {
			r.worker.log.Info("lease extended, frozen run goes on", r.logAttrs()...)
		}
	})
}

// LoseLease gives the lease up, for a run that was killed because nobody has
// extended it in time. It returns ErrLeaseLost.
func (r ExternalRun) LoseLease() error {
	r.worker.keeper.held.GiveUp(&r.hold)
	return ErrLeaseLost
}

// EndsItself says that the job is ended outside of this process, in a transaction that
// calls jobq.complete or its like with the RunToken. From then on the handler's success
// counts only if such an end is stored: without one, a nil error is a failed attempt. The
// handler's goroutine must call it before anything else.
func (r ExternalRun) EndsItself() {
	r.endsItself = true
	r.needsEnd.Store(true)
	r.worker.keeper.held.Completing(&r.hold)
}

// MayEnd is EndsItself for a run that may be ended outside of this process, and need not
// be: by a step that suspends the job. A success counts as any other if nothing is stored.
func (r ExternalRun) MayEnd() { (*stepRun)(r.Run).mayEnd() }

// RunToken names the run in calls of jobq.complete and its like. It has four parts: the
// token of the lease; when the lease was claimed, since a token can occur again after a
// failover; the slot, which tells the jobs of one lease apart; and a code, without
// which a program could name the runs of others.
func (r ExternalRun) RunToken() string {
	return db.RunToken(r.worker.runKey, r.row.LeaseToken, r.row.StartedAt.Time, r.row.Slot)
}

// NoteActivity shows that the run goes on, as far as HandleOptions.StallTimeout is
// concerned.
func (r ExternalRun) NoteActivity() { r.signs.Add(1) }

// Report is Progress in which a percentage of nil keeps the one before.
func (r ExternalRun) Report(percent *float32, stage, message string) {
	r.reportProgress(percent, stage, message)
}

// OutputBytesMax bounds the output kept of a run; the table has the same limit.
const OutputBytesMax = 64 << 10

// Output is what a program writes, while it writes it.
type Output interface {
	// Written is how many bytes were written so far.
	Written() int64
	// Since returns what was written after that many bytes, or as much of its end
	// as is kept, and how many had been written before it.
	Since(from int64) (content []byte, begin int64)
}

// ShowOutput stores the output while it is written, for those who follow the run,
// until the function returned is called.
func (r ExternalRun) ShowOutput(output Output) (end func(ctx context.Context)) {
	live := &liveOutput{run: r.Run, source: output}
	r.live.Store(live)
	return func(ctx context.Context) {
		r.live.Store(nil)
		live.flushRest(ctx)
	}
}

// KeepOutput keeps the end of the output with the attempt, of OutputBytesMax bytes
// at most.
func (r ExternalRun) KeepOutput(output []byte) {
	text := shown(output)
	r.reports.keep(func(k *kept) { k.output = text })
}

// KeepUsage keeps with the attempt what was used.
func (r ExternalRun) KeepUsage(usage monitor.Usage) {
	encoded, err := json.Marshal(usage)
	if err != nil {
		return // numbers and a name always encode
	}
	r.reports.keep(func(k *kept) { k.usage = encoded })
}

// Enqueue adds a job if the lease is still the run's; else it returns ErrLeaseLost.
func (r ExternalRun) Enqueue(ctx context.Context, args jobq.Args, options *jobq.EnqueueOptions) error {
	err := pgx.BeginFunc(ctx, r.worker.pool, func(tx pgx.Tx) error {
		held, err := r.worker.schema.Queries(tx).RunHold(ctx, db.RunHoldParams{ID: r.row.ID, Token: r.row.LeaseToken, Owner: r.worker.id, ClaimedAt: r.row.StartedAt})
		if err != nil {
			return err
		}
		if held == 0 {
			return ErrLeaseLost
		}
		_, err = r.worker.client.EnqueueTx(ctx, tx, args, options)
		return err
	})
	if errors.Is(err, ErrLeaseLost) {
		r.worker.keeper.held.Lose(&r.hold)
	}
	return err
}
