package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/sql/migrations"
	"github.com/jobq-dev/jobq/worker/internal/clock"
	"github.com/jobq-dev/jobq/worker/internal/leases"
)

// beatEvery is how often a worker writes its row (the heartbeat), reads the settings of its
// queues, and checks that it still works with the tables. No lease depends on it.
const beatEvery = 10 * time.Second

// hintRest is the shortest time between two heartbeats. Notifications cause heartbeats, and
// anybody who may log in can send notifications.
const hintRest = time.Second

// beat calls register every w.beatEvery until the context ends. A notification to drain, or that
// somebody watches, only makes the next heartbeat come sooner. Anybody can send a notification,
// so the worker acts only on the answer to the heartbeat, from rows that few roles may write.
func (w *Worker) beat(ctx context.Context) {
	ticker := time.NewTicker(w.beatEvery)
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
			w.checkTables(callCtx)
			w.databaseTrouble(err)
		}
		cancel()
	}
}

// checkTables ends the worker when the tables have become too new for it. It is called when the
// answer to a heartbeat says so, and when a heartbeat has failed, since such a migration may be
// the reason. It ignores other errors.
func (w *Worker) checkTables(ctx context.Context) {
	err := db.CheckVersion(ctx, w.pool, w.schema)
	if !errors.Is(err, db.ErrNewerSchema) {
		return
	}
	if !w.draining.Load() {
		w.log.Error("the tables were changed and this worker no longer works with them, it drains", "error", err)
	}
	w.halt.begin(fmt.Errorf("worker: %w", err), false)
}

// register writes the worker's row, stores the settings of its queues, and does what beatRequest says.
func (w *Worker) register(ctx context.Context) error {
	slots, err := json.Marshal(w.slots())
	if err != nil {
		return err
	}
	kindSlots, err := json.Marshal(w.kindSlots())
	if err != nil {
		return err
	}
	programs, err := w.externals.summary(w.troubles())
	if err != nil {
		return err
	}
	outcomes, err := w.outcomes()
	if err != nil {
		return err
	}
	names, request := slices.Collect(maps.Keys(w.queues)), w.beatRequest()
	rows, err := w.queries.WorkerBeat(ctx, db.WorkerBeatParams{
		ID: w.id, Pid: int32(w.process.PID), ProcessStart: pgtype.Int8{Int64: w.process.Start, Valid: w.process.Start != 0}, // #nosec G115 -- pids fit
		ConnectionsMax: w.connectionsMax,
		Draining:       w.draining.Load(), Present: w.present.Load(), HasRoom: w.hasRoom(), Silence: db.Interval(workerSilence), Hostname: w.process.Hostname, BootID: orNull(w.process.BootID),
		PidNamespace: orNull(w.process.Namespace), Version: w.config.Version, Queues: slots, Kinds: w.claims, KindSlots: kindSlots, Keys: w.keyNames(), QueueNames: names, Programs: programs, Outcomes: outcomes,
		Looked: request.looked, Announced: request.announced, AnnouncedSeconds: int64(request.hold / time.Second),
	})
	w.beatTook.Store(int64(clock.SinceBoot() - request.sent))
	if err != nil {
		return err
	}
	if len(rows) > 0 { // a worker has at least one queue, and each row has the same values here
		w.digests.SetWatched(time.Duration(rows[0].WatchedMs) * time.Millisecond)
		if rows[0].DrainRequested {
			w.drainForOperator()
		}
		w.obeyHold(rows[0])
		if int(rows[0].CompatibleFrom) > migrations.Latest() {
			w.checkTables(ctx)
		}
	}
	w.askOthers(ctx)
	w.solitude.know(suspectDue(rows))
	for _, row := range rows {
		w.queues[row.Queue].idleWorkers.Store(row.IdleWorkers)
		w.queues[row.Queue].set(leases.Settings{
			Length:      time.Duration(row.LeaseMs) * time.Millisecond,
			ExtendEvery: time.Duration(row.ExtendEveryMs) * time.Millisecond,
			Heartbeat:   jobq.Heartbeat(row.Heartbeat),
			HasLimits:   row.HasLimits,
			HasKeys:     row.HasKeys,
		})
	}
	for _, row := range rows { // these may wait for an announcement under way
		request.answered(w.queues[row.Queue], row, slices.Contains(request.announced, row.Queue))
	}
	return nil
}

// slots are the queues' slots, by name.
func (w *Worker) slots() map[string]int {
	slots := make(map[string]int, len(w.config.Queues))
	for name, queue := range w.config.Queues {
		slots[name] = queue.Slots
	}
	return slots
}

// drainForOperator obeys an operator, as Drain does. It is called again with each
// heartbeat until the worker is gone.
func (w *Worker) drainForOperator() {
	if !w.draining.Load() {
		w.log.Info("an operator asks the worker to drain")
	}
	w.Drain()
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

// hasRoom says whether the worker is notified of new jobs, has a free slot, and may claim.
func (w *Worker) hasRoom() bool {
	if w.unnotified.Load() || w.isHeld() {
		return false
	}
	for _, q := range w.queues {
		if slices.ContainsFunc(q.all(), func(each *queue) bool { return each.load.hasRoom() }) {
			return true
		}
	}
	return false
}
