package worker

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/worker/internal/clock"
)

// NewReconciler returns what a worker does about dead workers of its host when
// it starts; the function says how many jobs it has recovered.
func NewReconciler(t *testing.T, client *jobq.Client) func() int {
	t.Helper()
	w, err := New(client, &Config{NoJanitor: true, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	w.pool, w.queries = client.Pool(), w.schema.Queries(client.Pool())
	return func() int {
		dead, err := w.deadOnHost(context.Background())
		require.NoError(t, err)
		total, _, err := w.recover(context.Background(), dead)
		require.NoError(t, err)
		return total
	}
}

// SpreadWakeUps sets the longest time that a worker waits before it looks after
// a notification of new jobs.
func SpreadWakeUps(w *Worker, longest time.Duration) {
	w.spreader.DelayMax = longest
}

// LookForAgedEvery sets how often a worker looks which priorities have waited for too long.
func LookForAgedEvery(w *Worker, every time.Duration) { w.agedLookEvery = every }

// IsUnnotified says whether a worker knows that no notifications arrive; and if so,
// makes its next announcement that it waits, if any, be made at once.
func IsUnnotified(w *Worker) bool {
	for _, q := range w.queues {
		q.announcer.Forget()
	}
	return w.unnotified.Load()
}

// ShortenAnnouncements sets how long an announcement holds at most that the worker waits
// for jobs, in whole seconds.
func ShortenAnnouncements(w *Worker, holdsMax time.Duration) {
	for _, q := range w.queues {
		q.announcer.HoldsMax = holdsMax
	}
}

// IsPaced says whether a worker's queue default claims without news.
func IsPaced(w *Worker) bool { return w.queues["default"].load.isPaced() }

// Draining says whether a worker has begun to drain.
func Draining(w *Worker) bool { return w.draining.Load() }

// Account returns what a worker counts that sends the completions of these
// runs, each an id and a token, and hears that the ids were accepted.
func Account(t *testing.T, client *jobq.Client, runs [][2]int64, accepted []int64) Counts {
	t.Helper()
	w, err := New(client, &Config{NoJanitor: true, Logger: slog.New(slog.DiscardHandler)})
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
	status, ok := w.keeper.held.Status(id)
	return ok && status.Cancelled
}

// PutOffWholeLine keeps a worker's queue default from looking at its whole line,
// as one does that is very long; once it has nothing else to do.
func PutOffWholeLine(w *Worker) bool {
	q := w.queues["default"]
	if !w.present.Load() || !q.load.isAtRest() {
		return false
	}
	q.load.returned() // a look at the whole line need not wait until it is time
	request := db.JobClaimParams{JobCount: 1}
	claim := q.load.begin(clock.SinceBoot(), &request, false)
	q.load.answered(clock.SinceBoot(), claim, nil, time.Hour) // as if it had taken that long
	if !claim.IsWhole() {
		signal(q.wake) // such looks are slow just now; this claim is as good as lost
	}
	return claim.IsWhole()
}

// IsAtRest says whether a worker's queue default neither does anything nor is going to without news.
func IsAtRest(w *Worker) bool { return w.queues["default"].load.isAtRest() }

// isAtRest says whether nothing is under way, and nothing is going to be without
// news.
func (l *load) isAtRest() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.roundTrips == 0 && l.inHand == 0 && len(l.results) == 0 && l.planner.IsAtRest()
}

// PoolIsOpen says whether a worker that has run has left its connections open.
func PoolIsOpen(w *Worker) bool {
	return w.pool != nil && w.pool.Ping(context.Background()) == nil
}

// IsBlocked says whether the limits of a worker's queue default keep it from claiming.
func IsBlocked(w *Worker) bool { return w.queues["default"].load.isBlocked(clock.SinceBoot()) }

// IsPresent says whether a worker listens, and holds its presence lock.
func IsPresent(w *Worker) bool { return w.present.Load() }

// IsWatched says whether a worker believes that somebody watches.
func IsWatched(w *Worker) bool { return w.digests.IsWatched() }

// NextHeartbeat is when the lease of a job is extended next; it changes with
// each answer.
func NextHeartbeat(w *Worker, id int64) time.Duration {
	status, _ := w.keeper.held.Status(id)
	return status.ExtendAt
}

// Deadline is when a worker gives up the lease of a job that it holds, unless it
// has extended it; 0 when it holds none.
func Deadline(w *Worker, id int64) time.Duration {
	status, _ := w.keeper.held.Status(id)
	return status.Deadline
}

// ExtendNow makes a worker extend its leases at once.
func ExtendNow(w *Worker) { w.keeper.wakeAll() }

// LookForUnanswered makes a worker look for jobs of claims whose answers were lost, and
// says whether it is going to look again.
func LookForUnanswered(w *Worker) bool { return w.giveBackUnanswered(context.Background()) }

// LetExpire makes a worker give up the leases that it holds, as if it could not
// have extended them in time.
func LetExpire(w *Worker) { w.keeper.held.Expire(clock.Never / 2) }

// LastNotification is the last of new jobs that a worker's queue default has
// received, and whether the queue neither looks for jobs nor is going to.
func LastNotification(w *Worker) (notification string, still bool) {
	q := w.queues["default"]
	notification = q.notifications.Last()
	return notification, !q.notifications.IsDelayed() && len(q.wake) == 0 && q.load.isAtRest()
}

// Activity changes with whatever a run tells.
func Activity(r *Run) int64 { return r.activity() }

// AgedOf returns which priorities have waited for too long for a worker that is not run: of its
// queue default, by the first of the kinds that are claimed together.
func AgedOf(w *Worker) func() map[string][]int16 {
	w.pool = w.client.Pool()
	q := w.queues["default"]
	q.divide(w.kinds(), w.kindSlots())
	return func() map[string][]int16 {
		aged := make(map[string][]int16)
		for _, each := range q.all() {
			for _, one := range each.aged(context.Background()) {
				aged[each.kinds[0]] = append(aged[each.kinds[0]], one.Priority)
			}
		}
		return aged
	}
}

// BeatEvery sets how often a worker writes its row without being asked to.
func BeatEvery(w *Worker, every time.Duration) { w.beatEvery = every }

// PaceSuspects sets for how long a worker claims nothing at the first try to be alone, and for how long
// a suspect keeps others from beginning.
func PaceSuspects(w *Worker, holdMin, aloneMax time.Duration) {
	w.solitude.holdMin, w.solitude.aloneMax = holdMin, aloneMax
}

// Schedule is for how long a worker holds, and then rests, in tries to be alone that are in vain; the last rest
// is after a suspect that ran for so long.
func Schedule(tries int, ran time.Duration) (holds, rests []time.Duration, last time.Duration) {
	p := pace{holdMin: holdMin, aloneMax: aloneMax, hold: holdMin}
	for range tries {
		holds, rests = append(holds, p.hold), append(rests, p.waitedInVain())
	}
	last = p.ranAlone(ran)
	return append(holds, p.hold), rests, last
}

// LookForJanitorEvery sets how often a worker without a janitor looks for one elsewhere.
func LookForJanitorEvery(w *Worker, every time.Duration) { w.janitor.lookEvery = every }

// TakeEventWaits takes all places of runs that ask for events, until what it returns is called.
func TakeEventWaits(w *Worker) (makeRoom func()) { return takeAll(w.eventWaits) }

// TakeSpawns takes all places of runs that add jobs, until what it returns is called.
func TakeSpawns(w *Worker) (makeRoom func()) { return takeAll(w.spawns) }

func takeAll(places chan struct{}) (makeRoom func()) {
	for range cap(places) {
		places <- struct{}{}
	}
	return func() {
		for range cap(places) {
			<-places
		}
	}
}

// LoseAnswer makes the worker take it that the answer to a claim was lost, and returns what makes it search for the lease.
func LoseAnswer(w *Worker) (search func()) {
	w.claimed.Unanswered(w.claimed.Begin(), clock.Never)
	return func() { signal(w.unanswered) }
}

// LimitFailures sets how long a call of Config.OnFailure may take, and how many failures may wait for one.
func LimitFailures(w *Worker, timeout time.Duration, waitingMax int) {
	w.failures.timeout, w.failures.waiting = timeout, make(chan Failure, waitingMax)
}

// AwaitFailureCalls waits until all calls of Config.OnFailure have returned.
func AwaitFailureCalls(w *Worker) { w.failures.callers.Wait() }

// OnHost makes the worker, which does not run yet, one of another host.
func OnHost(w *Worker, host string) { w.process.Hostname = host }

// IsHeld says whether the worker knows that its host is held.
func IsHeld(w *Worker) bool { return w.isHeld() }
