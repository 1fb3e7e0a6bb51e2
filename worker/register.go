package worker

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/printable"
)

// beatEvery is how often a worker says that it lives, and reads what its
// queues' settings have become. No lease depends on it.
const beatEvery = 10 * time.Second

// hintRest is how often hints can make a worker beat at most: anybody who may log
// in can send them.
const hintRest = time.Second

// beat registers the worker anew, and refreshes settings, until the context ends.
// A notification that it is to drain, or that somebody watches, only makes it beat
// sooner: the answer, from rows that not everybody may write, tells what is true.
func (w *Worker) beat(ctx context.Context) {
	ticker := time.NewTicker(beatEvery)
	defer ticker.Stop()
	for {
		if within(ctx.Done(), hintRest, nil) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-w.beatSoon:
		case <-ticker.C:
		}
		callCtx, cancel := context.WithTimeout(ctx, beatEvery)
		if err := w.register(callCtx); err != nil && ctx.Err() == nil {
			w.databaseTrouble(err)
		}
		cancel()
	}
}

// register writes the worker's row and takes over the settings of its queues.
func (w *Worker) register(ctx context.Context) error {
	slots, err := json.Marshal(w.config.Queues)
	if err != nil {
		return err
	}
	programs, err := w.externals.summary()
	if err != nil {
		return err
	}
	names := slices.Collect(maps.Keys(w.queues))
	rows, err := w.queries.WorkerBeat(ctx, db.WorkerBeatParams{
		ID: w.id, Pid: int32(w.process.PID), ProcessStart: pgtype.Int8{Int64: w.process.Start, Valid: w.process.Start != 0}, // #nosec G115 -- pids fit
		Draining: w.draining.Load(), Present: w.present.Load(), HasRoom: w.hasRoom(), Silence: db.Interval(workerSilence), Hostname: w.process.Hostname, BootID: orNull(w.process.BootID),
		PidNamespace: orNull(w.process.Namespace), Version: w.config.Version, Queues: slots, Kinds: w.claims, QueueNames: names, Programs: programs,
	})
	if err != nil {
		return err
	}
	if len(rows) > 0 { // a worker has a queue at least, and each row says this
		w.digests.watched(time.Duration(rows[0].WatchedMs) * time.Millisecond)
		if rows[0].DrainRequested {
			w.drainAsAsked()
		}
	}
	for _, row := range rows {
		w.queues[row.Queue].fleet.Store(row.Fleet)
		w.queues[row.Queue].configure(queueSettings{
			lease:       time.Duration(row.LeaseMs) * time.Millisecond,
			extendEvery: time.Duration(row.ExtendEveryMs) * time.Millisecond,
			heartbeat:   jobq.Heartbeat(row.Heartbeat),
		})
	}
	return nil
}

// drainAsAsked obeys an operator, as Finish does. It is called again with each
// heartbeat until the worker is gone.
func (w *Worker) drainAsAsked() {
	if !w.draining.Load() {
		w.log.Info("an operator asks the worker to drain")
	}
	w.Finish()
}

// deregister removes the worker's row. When that fails, the janitor does it
// after a while.
func (w *Worker) deregister() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := w.queries.WorkerGone(ctx, w.id); err != nil {
		w.log.Debug("worker not deregistered", "error", err)
	}
}

func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// databaseTrouble reports that a call has failed: once as a warning for each
// time that the database goes away, and in detail at debug level.
func (w *Worker) databaseTrouble(err error) {
	if w.schema.NoteShared(err) || db.IsStale(err) {
		w.pool.Reset() // its connections prepare statements where they must not; or, whoever is the primary now: new connections find it
	}
	if !w.away.Swap(true) {
		w.log.Warn("database call failed, trying on", "error", err)
		return
	}
	w.log.Debug("database call failed", "error", err)
}

func (w *Worker) databaseAnswered() {
	if w.away.Load() && w.away.Swap(false) {
		w.log.Info("database answers again")
	}
}

// counts are totals since the start.
type counts struct {
	claimed, completed, failed, released, snoozed, cancelled, lost atomic.Int64
}

func (c *counts) ended(outcome string) {
	switch jobq.Outcome(outcome) {
	case jobq.OutcomeReleased:
		c.released.Add(1)
	case jobq.OutcomeSnoozed:
		c.snoozed.Add(1)
	case jobq.OutcomeCancelled:
		c.cancelled.Add(1)
	default:
		c.failed.Add(1)
	}
}

// Counts are what a worker has done since it started, in runs.
type Counts struct {
	Claimed   int64 `json:"claimed"`
	Completed int64 `json:"completed"`
	Failed    int64 `json:"failed"` // runs that count as an attempt
	Released  int64 `json:"released"`
	Snoozed   int64 `json:"snoozed"`
	Cancelled int64 `json:"cancelled"`
	Lost      int64 `json:"lost"` // their lease was lost: nothing of them is stored
}

// Counts returns the totals so far.
func (w *Worker) Counts() Counts {
	return Counts{
		Claimed: w.counts.claimed.Load(), Completed: w.counts.completed.Load(), Failed: w.counts.failed.Load(),
		Released: w.counts.released.Load(), Snoozed: w.counts.snoozed.Load(), Cancelled: w.counts.cancelled.Load(),
		Lost: w.counts.lost.Load(),
	}
}

// LogValue shows the totals in one group.
func (c Counts) LogValue() slog.Value {
	return slog.GroupValue(slog.Int64("claimed", c.Claimed), slog.Int64("completed", c.Completed),
		slog.Int64("failed", c.Failed), slog.Int64("released", c.Released), slog.Int64("snoozed", c.Snoozed),
		slog.Int64("cancelled", c.Cancelled), slog.Int64("lost", c.Lost))
}

// logAttrs are the attributes that every line about a run has.
func (r *Run) logAttrs() []any {
	return []any{
		"job_id", r.row.ID, "queue", r.row.Queue, "kind", r.row.Kind, "attempt", r.Attempt(), "token", r.row.LeaseToken,
	}
}

// logEnding writes a line about a run that did not simply succeed. The error
// has its control characters removed: it may come from anywhere.
func (w *Worker) logEnding(r result, state string) {
	attrs := append(r.run.logAttrs(), "outcome", r.ending.Outcome, "state", state)
	level := slog.LevelDebug
	if outcome := jobq.Outcome(r.ending.Outcome); outcome == jobq.OutcomeFailed || outcome == jobq.OutcomeTimedOut {
		level = slog.LevelWarn
		attrs = append(attrs, "error", printable.FirstLine(r.ending.Error))
	}
	w.log.Log(context.Background(), level, "run ended", attrs...)
}
