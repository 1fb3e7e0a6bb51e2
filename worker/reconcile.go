package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/identity"
	"github.com/jobq-dev/jobq/internal/sleep"
	"github.com/jobq-dev/jobq/worker/internal/clock"
)

// Reconcile says whose jobs a worker recovers when it starts, before its first claim. So after
// a restart, jobs need not wait until the leases of the earlier process expire.
type Reconcile string

// The ways to reconcile.
const (
	// ReconcileHost recovers the jobs of workers with the same hostname whose
	// processes are proven dead. Proof is that the process no longer exists in this
	// boot and pid namespace; or that it ran in another boot of the machine, had its
	// presence lock at its last heartbeat, and has sent none for 30 seconds. In both
	// cases its presence lock must be free. Without proof it leaves the jobs to the
	// janitor.
	ReconcileHost Reconcile = "host"
	// ReconcileAll recovers every running job. It is for a single worker without
	// a janitor. Run returns an error if another worker is present.
	ReconcileAll Reconcile = "all"
	// ReconcileOff recovers no jobs: the janitor does when their leases expire.
	ReconcileOff Reconcile = "off"
)

const (
	// orphanBatch is the most jobs that one statement recovers.
	orphanBatch = 100
	// presencePatience is how long to wait until the server has released the presence
	// lock of a process that is proven dead; presencePoll is the pause between two looks.
	presencePatience = 2 * time.Second
	presencePoll     = 20 * time.Millisecond
	presenceTries    = 10 // of a worker to take its own
	// workerSilence is how long a worker that holds no presence lock counts as
	// present after its last heartbeat.
	workerSilence = 3 * beatEvery
)

// errPresent keeps ReconcileAll from taking a live worker's jobs.
var errPresent = errors.New("another worker is present; stop it, or use reconcile mode \"host\"")

// takePresence takes this worker's presence lock. The session holds it until it ends. Another worker that starts may hold
// it for an instant, to see whether it is free. Any login can keep it, too. Then this worker counts as present by its
// heartbeats alone.
func (w *Worker) takePresence(ctx context.Context, conn *pgx.Conn) error {
	class, object := w.schema.PresenceKey(w.id)
	queries := w.schema.Queries(conn)
	for range presenceTries {
		taken, err := queries.PresenceTake(ctx, class, object)
		if err != nil {
			return fmt.Errorf("presence lock: %w", err)
		}
		if taken {
			w.present.Store(true)
			return nil
		}
		if err := sleep.For(ctx, presencePoll); err != nil {
			return err
		}
	}
	w.log.Warn("another session has this worker's presence lock: the worker goes on without it", w.presenceHolder(ctx, w.id)...)
	return nil
}

// presenceHolder describes the session that has a worker's presence lock, for the log.
func (w *Worker) presenceHolder(ctx context.Context, workerID string) []any {
	class, object := w.schema.PresenceKey(workerID)
	holder, err := w.queries.LockHolder(ctx, int64(class), int64(object))
	if err != nil {
		return []any{"holder", "unknown"} // gone meanwhile
	}
	return []any{"holder_pid", holder.Pid.Int32, "holder_application", holder.Application, "holder_address", holder.Address}
}

// reconcile recovers the jobs of dead workers, as Config.Reconcile says.
func (w *Worker) reconcile(ctx context.Context) error {
	var dead []string
	var err error
	switch w.config.Reconcile {
	case ReconcileHost:
		dead, err = w.deadOnHost(ctx)
	case ReconcileAll:
		dead, err = w.allButMe(ctx)
	case ReconcileOff:
	}
	if err != nil || len(dead) == 0 {
		return err
	}
	total, unbegun, err := w.recover(ctx, dead)
	if total+unbegun > 0 {
		w.solitude.know(clock.SinceBoot()) // some may be suspects now
		w.log.Warn(fmt.Sprintf("recovered %d orphaned jobs", total), "not_begun", unbegun, "workers", dead)
	}
	return err
}

// quarantine counts the crashes by kind, and pauses a kind whose workers crash in a row. Recovery
// goes on if that fails: the kind is then paused after a later crash.
func (w *Worker) quarantine(ctx context.Context, reaped []db.LeaseReapRow) {
	for i := range reaped {
		if reaped[i].Alone > 0 {
			w.log.Warn("a job was alone in its worker when that was lost", reaped[i].LogAttrs()...)
		}
	}
	quarantined, err := w.queries.Quarantine(ctx, reaped, w.id)
	if err != nil {
		w.log.Warn("crashes not counted", "error", err)
	}
	for _, kind := range quarantined {
		w.log.Warn("kind quarantined: its workers crash", "kind", kind.Kind, "crashes", kind.Crashes)
	}
}

// recover releases all jobs of these workers, a batch in each transaction, and then deletes the
// workers' own rows. Jobs that had not begun are not in total.
func (w *Worker) recover(ctx context.Context, owners []string) (total, unbegun int, err error) {
	for more := true; more; {
		err := bounded(ctx, func(ctx context.Context) error {
			reaped, err := w.schema.Reap(ctx, w.pool, owners, orphanBatch, w.id)
			more = len(reaped) == orphanBatch
			for _, job := range reaped {
				if job.Begun {
					total++
				} else {
					unbegun++
				}
			}
			if err == nil {
				w.quarantine(ctx, reaped)
			}
			return err
		})
		if db.IsRowFault(err) {
			w.log.Warn("orphaned jobs are left to the janitor: a row of theirs makes that fail", "workers", owners, "error", err)
			return total, unbegun, nil
		}
		if err != nil {
			return total, unbegun, err
		}
	}
	for _, owner := range owners {
		if err := bounded(ctx, func(ctx context.Context) error { return w.queries.WorkerGone(ctx, owner) }); err != nil {
			return total, unbegun, err
		}
	}
	return total, unbegun, nil
}

// deadOnHost returns the workers of this host that are proven dead.
func (w *Worker) deadOnHost(ctx context.Context) ([]string, error) {
	earlier, err := w.earlier(ctx, &w.process.Hostname)
	if err != nil {
		return nil, err
	}
	var dead []string
	for _, other := range earlier {
		patience := time.Duration(0)
		switch w.process.Proof(processOf(other)) {
		case identity.Gone:
			patience = presencePatience // the server may not have noticed yet that the process has gone
		case identity.Rebooted:
			// The worker may run on another machine with this hostname. Then it holds its
			// presence lock, except for a moment after the server has restarted or a standby
			// has become the primary; during that moment, only its heartbeat shows it.
			if !other.Present || other.Fresh {
				continue
			}
		case identity.Unknown:
			continue
		}
		free, err := w.isAbsent(ctx, other.ID, patience)
		if err != nil {
			return nil, err
		}
		if free {
			dead = append(dead, other.ID)
		}
	}
	return dead, nil
}

// allButMe returns every other owner of leases, or an error if another worker may still run.
func (w *Worker) allButMe(ctx context.Context) ([]string, error) {
	earlier, err := w.earlier(ctx, nil)
	if err != nil {
		return nil, err
	}
	for _, other := range earlier {
		proof := w.process.Proof(processOf(other))
		if proof == identity.Gone {
			continue
		}
		free, err := w.isAbsent(ctx, other.ID, 0)
		if err != nil {
			return nil, err
		}
		if !free || (other.Fresh && !other.Present) {
			holder := "it has sent a heartbeat"
			if !free { // any login can hold the lock
				holder = strings.Trim(fmt.Sprint(w.presenceHolder(ctx, other.ID)), "[]")
			}
			return nil, fmt.Errorf("reconcile all: worker %s: %w (%s)", other.ID, errPresent, holder)
		}
	}
	var owners []string
	err = bounded(ctx, func(ctx context.Context) (err error) {
		owners, err = w.queries.LeaseOwners(ctx, w.id)
		return err
	})
	return owners, err
}

// earlier returns the other workers of the host, or of all hosts if hostname is nil.
func (w *Worker) earlier(ctx context.Context, hostname *string) (rows []db.WorkerEarlierRow, err error) {
	err = bounded(ctx, func(ctx context.Context) (err error) {
		rows, err = w.queries.WorkerEarlier(ctx, db.Interval(workerSilence), w.id, hostname)
		return err
	})
	return rows, err
}

// isAbsent says whether a worker's presence lock is free, or becomes free within patience.
func (w *Worker) isAbsent(ctx context.Context, workerID string, patience time.Duration) (bool, error) {
	class, object := w.schema.PresenceKey(workerID)
	ctx, cancel := context.WithTimeout(ctx, patience+exchangeTimeoutMax)
	defer cancel()
	for end := time.Now().Add(patience); ; {
		free, err := w.queries.PresenceFree(ctx, class, object)
		if err != nil || free || !time.Now().Before(end) {
			return free, err
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(presencePoll):
		}
	}
}

// processOf is the identity of a worker's process, as the worker has stored it.
func processOf(row db.WorkerEarlierRow) identity.Process {
	p := identity.Process{Hostname: row.Hostname, PID: int(row.Pid), Start: row.ProcessStart.Int64}
	if row.BootID != nil {
		p.BootID = *row.BootID
	}
	if row.PidNamespace != nil {
		p.Namespace = *row.PidNamespace
	}
	return p
}
