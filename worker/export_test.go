package worker

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
)

// NewReconciler returns what a worker does about dead workers of its host when
// it starts; the function says how many jobs it has recovered.
func NewReconciler(t *testing.T, client *jobq.Client) func() int {
	t.Helper()
	w, err := New(client, &Config{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	w.pool, w.queries = client.Pool(), w.schema.Queries(client.Pool())
	return func() int {
		dead, err := w.deadOnHost(context.Background())
		require.NoError(t, err)
		total, err := w.recover(context.Background(), dead)
		require.NoError(t, err)
		return total
	}
}

// SpreadWakeUps sets the longest time that a worker waits before it looks after
// a word of new jobs.
func SpreadWakeUps(w *Worker, longest time.Duration) {
	w.herd.spread = longest
}

// Deaf says whether a worker knows that it hears no notifications; and if so,
// makes its next announcement that it waits, if any, be made at once.
func Deaf(w *Worker) bool {
	w.wait.forget()
	return w.deaf.Load()
}

// ShortenAnnouncements sets how long an announcement holds that the worker waits
// for jobs, in whole seconds.
func ShortenAnnouncements(w *Worker, holds time.Duration) {
	w.wait.holds = holds
}

// Draining says whether a worker has begun to drain.
func Draining(w *Worker) bool { return w.draining.Load() }

// Account returns what a worker counts that sends the completions of these
// runs, each an id and a token, and hears that the ids were accepted.
func Account(t *testing.T, client *jobq.Client, runs [][2]int64, accepted []int64) Counts {
	t.Helper()
	w, err := New(client, &Config{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	results := make([]result, len(runs))
	for i, each := range runs {
		run := &Run{worker: w, row: db.JobClaimRow{ID: each[0], LeaseToken: each[1]}}
		results[i] = result{run: run, completion: &db.Completion{Slot: run.slot()}}
	}
	split(results)
	w.queues["default"].account(results, db.Exchanged{Completed: accepted})
	return w.Counts()
}

// KnowsCancelled says whether a worker holds the job and knows that somebody
// has cancelled it.
func KnowsCancelled(w *Worker, id int64) bool {
	w.keeper.mu.Lock()
	defer w.keeper.mu.Unlock()
	r, ok := w.keeper.held[id]
	return ok && r.hold.cancelled
}

// PutOffWholeLine keeps a worker's queue default from looking at its whole line,
// as one does that is very long; once it has nothing else to do.
func PutOffWholeLine(w *Worker) bool {
	q := w.queues["default"]
	q.mu.Lock()
	defer q.mu.Unlock()
	if !w.present.Load() || q.flying > 0 || q.inHand > 0 || q.pace.more || q.pace.awaited {
		return false
	}
	q.pace.back.reaches[wholeLine].at = never
	return true
}

// PoolIsOpen says whether a worker that has run has left its connections open.
func PoolIsOpen(w *Worker) bool {
	return w.pool != nil && w.pool.Ping(context.Background()) == nil
}

// IsPresent says whether a worker listens, and holds its presence lock.
func IsPresent(w *Worker) bool { return w.present.Load() }

// IsWatched says whether a worker believes that somebody watches.
func IsWatched(w *Worker) bool { return w.digests.isWatched() }

// NextHeartbeat is when the lease of a job is extended next; it changes with
// each answer.
func NextHeartbeat(w *Worker, id int64) time.Duration {
	w.keeper.mu.Lock()
	defer w.keeper.mu.Unlock()
	if r, ok := w.keeper.held[id]; ok {
		return r.lease.extendAt
	}
	return 0
}

// Deadline is when a worker gives up the lease of a job that it holds, unless it
// has extended it; 0 when it holds none.
func Deadline(w *Worker, id int64) time.Duration {
	w.keeper.mu.Lock()
	defer w.keeper.mu.Unlock()
	if r, ok := w.keeper.held[id]; ok {
		return r.lease.deadline
	}
	return 0
}

// LetExpire makes a worker give up a lease that it holds, as if it could not have
// been extended in time.
func LetExpire(w *Worker, id int64) {
	w.keeper.mu.Lock()
	if r, ok := w.keeper.held[id]; ok {
		r.lease.deadline = 0
	}
	w.keeper.mu.Unlock()
	signal(w.keeper.wake)
}

// LastWord is the last word of new jobs that a worker's queue default has heard,
// and whether the queue neither looks for jobs nor is going to.
func LastWord(w *Worker) (word string, still bool) {
	q := w.queues["default"]
	q.mu.Lock()
	defer q.mu.Unlock()
	still = q.words.later == nil && q.flying == 0 && q.inHand == 0 && len(q.results) == 0 && len(q.wake) == 0 && !q.pace.more && !q.pace.awaited
	return q.words.last, still
}

// GivesUpAfter is how long after its claim a worker gives a lease up that it
// cannot extend, of a program or not, when its clock has rung that late.
func GivesUpAfter(t *testing.T, client *jobq.Client, length time.Duration, isProgram bool, late time.Duration) time.Duration {
	t.Helper()
	w, err := New(client, nil)
	require.NoError(t, err)
	q := w.queues["default"]
	settings := queueSettings{lease: length, extendEvery: length / 3}
	q.configure(settings)
	run := &Run{worker: w, lease: &lease{queue: q}}
	if isProgram {
		ExternalRun{run}.OnLeaseLost(func() {})
	}
	run.lease.extendedLocked(0, settings)
	w.keeper.observeDelay(late)
	w.keeper.mu.Lock()
	defer w.keeper.mu.Unlock()
	return run.lease.deadline - w.keeper.delayLocked(run)
}

// Activity changes with whatever a run tells.
func Activity(r *Run) int64 { return r.activity() }
