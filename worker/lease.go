package worker

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
)

// killMarginMax is how long before a lease ends, by the worker's reckoning,
// the worker stops believing in it; a sixth of the lease when that is less.
// It covers the time that stopping a job takes.
const killMarginMax = 5 * time.Second

func killMargin(lease time.Duration) time.Duration { return min(killMarginMax, lease/6) }

// lease is the worker's knowledge of one lease that it holds. Times are of
// sinceBoot.
type lease struct {
	id    int64
	token int64
	queue *queue

	// guarded by keeper.mu
	deadline time.Duration // when the worker stops the job unless it has extended
	extendAt time.Duration
	lost     bool // nothing may be stored under it any more
	given    bool // given up while its handler would not stop
	asked    bool // somebody has cancelled the job
	// completing: CompleteTx has taken the row away in a transaction whose fate is
	// not known; completed: that has committed, and there is no lease any more.
	completing, completed bool
	cancel                context.CancelCauseFunc // of the running handler; nil when none runs
	run                   *Run
}

// keeper holds every lease of the worker, extends all that are due in one
// statement, or asks after them where the ticker does not extend, and gives up those that it could not extend in time. Its clock
// always ends a lease before the database's does: a deadline is the instant
// before the claim or the extension was sent, plus the lease, less the kill
// margin.
type keeper struct {
	worker *Worker
	wake   chan struct{} // a cancel notification: extend now, the answer tells

	mu sync.Mutex
	// guarded by mu
	held    map[int64]*lease
	astray  map[*lease]struct{} // lost, and their handlers have not returned
	stopped error               // why no handler is to begin any more
	late    time.Duration       // how late its clock rings, of late: the machine is overloaded
}

func newKeeper(w *Worker) *keeper {
	return &keeper{worker: w, wake: make(chan struct{}, 1), held: make(map[int64]*lease), astray: make(map[*lease]struct{})}
}

// add takes charge of leases claimed by a request that was sent at the instant.
// A job that was held already has been lost meanwhile, or else it could not have
// been claimed. Its earlier run must not go on, and not store anything: after an
// asynchronous standby has taken over, even the tokens may be equal.
func (k *keeper) add(runs []*Run, sent time.Duration, settings queueSettings) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, run := range runs {
		run.lease.extendedLocked(sent, settings)
		run.lease.extendAt = sent + settings.extendEvery
		if earlier := k.held[run.row.ID]; earlier != nil {
			k.loseLocked(earlier)
		}
		k.held[run.row.ID] = &run.lease
	}
}

// extendedLocked takes into account that a request sent at the instant gave the
// lease its full time. It never shortens one, and nor does the database.
func (l *lease) extendedLocked(sent time.Duration, settings queueSettings) {
	l.deadline = max(l.deadline, sent+settings.lease-killMargin(settings.lease))
}

// extended is extendedLocked for a lease that may be given up already.
func (k *keeper) extended(l *lease, sent time.Duration, settings queueSettings) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l.extendedLocked(sent, settings)
}

// start says that the handler begins, and which function stops it. An error says
// why the handler must not begin: the lease is lost already, or else forgotten
// here, and the run is to be ended for that reason.
func (k *keeper) start(l *lease, cancel context.CancelCauseFunc) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case l.lost || sinceBoot() >= l.deadline:
		k.loseLocked(l)
		return ErrLeaseLost
	case l.asked:
		k.forgetLocked(l)
		return ErrCancelled
	case k.stopped != nil: // a job of a claim that was under way
		k.forgetLocked(l)
		return k.stopped
	}
	l.cancel = cancel
	return nil
}

// drop forgets a lease whose run has ended, and returns it as it was. When it is
// lost, the result may not be stored.
func (k *keeper) drop(l *lease) (dropped lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.forgetLocked(l)
	l.cancel = nil
	delete(k.astray, l)
	return *l
}

func (k *keeper) forgetLocked(l *lease) {
	if k.held[l.id] == l { // the job may have come back under another token
		delete(k.held, l.id)
	}
}

// lose gives a lease up whose row is gone, and stops its handler. Where the
// handler's own transaction may have taken the row away, the next extension tells.
func (k *keeper) lose(l *lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.completing {
		l.extendAt = 0
		return
	}
	k.loseLocked(l)
}

func (k *keeper) loseLocked(l *lease) {
	if l.lost {
		return
	}
	l.lost = true
	if l.cancel != nil {
		l.cancel(ErrLeaseLost)
		k.astray[l] = struct{}{}
	}
	if onLost := l.run.onLost.Load(); onLost != nil {
		(*onLost)()
	}
	k.forgetLocked(l)
	k.worker.counts.lost.Add(1)
	k.worker.log.Warn("lease lost", "job_id", l.id, "token", l.token, "queue", l.queue.name)
}

func (l *lease) isLost() bool {
	k := l.queue.worker.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	return l.lost
}

// wakeFor makes the next extension happen at once when the job is held here.
func (k *keeper) wakeFor(id int64) {
	k.mu.Lock()
	l, ok := k.held[id]
	if ok {
		l.extendAt = 0
	}
	k.mu.Unlock()
	if ok {
		signal(k.wake)
	}
}

// wakeAll makes the next extension of every lease happen at once: somebody may
// have cancelled a job while nobody listened.
func (k *keeper) wakeAll() {
	k.mu.Lock()
	for _, l := range k.held {
		l.extendAt = 0
	}
	k.mu.Unlock()
	signal(k.wake)
}

// run checks deadlines, extends leases and stores progress until the context
// ends. What talks to the database runs beside the checks, one call of each
// sort at a time: a database that does not answer must not keep the deadlines
// from being seen.
func (k *keeper) run(ctx context.Context) {
	var calls sync.WaitGroup
	defer calls.Wait()
	extending, flushing := make(chan struct{}, 1), make(chan struct{}, 1)
	beside := func(busy chan struct{}, call func()) {
		select {
		case busy <- struct{}{}:
			calls.Go(func() {
				call()
				<-busy
			})
		default: // the one before has not ended
		}
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	planned := sinceBoot()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			k.observeDelay(sinceBoot() - planned)
		case <-k.wake:
		}
		k.expire()
		if k.hasDue() {
			beside(extending, func() { k.extend(ctx, k.due()) })
		}
		if k.hasProgress() {
			beside(flushing, func() { k.flushProgress(ctx) })
		}
		tick := k.tick()
		planned = sinceBoot() + tick
		timer.Reset(tick)
	}
}

// observeDelay remembers how late the keeper's clock rings when the machine is
// overloaded, and forgets it within some ticks. By so much the leases of programs
// are given up earlier: the signals that stop them will be as late. Steps of 50 ms,
// so that the programs' deadlines do not change all the time.
func (k *keeper) observeDelay(delay time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.late = max(delay, k.late*7/8).Truncate(50 * time.Millisecond)
}

// delayLocked is the part of that which counts for a lease: nothing without a
// program, and its kill margin at most.
func (k *keeper) delayLocked(l *lease) time.Duration {
	if k.late == 0 || l.run.onLost.Load() == nil {
		return 0
	}
	return min(k.late, killMargin(l.queue.settings().lease))
}

// tick is how long until the keeper looks again: a fraction of the shortest kill
// margin in use, or until the next deadline.
func (k *keeper) tick() time.Duration {
	tick := time.Second
	for _, q := range k.worker.queues {
		tick = min(tick, killMargin(q.settings().lease)/4)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := sinceBoot()
	for _, l := range k.held {
		if !l.completed {
			tick = min(tick, l.deadline-k.delayLocked(l)-now)
		}
	}
	return max(tick, 20*time.Millisecond)
}

// expire gives up leases whose deadline has passed.
func (k *keeper) expire() {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := sinceBoot()
	for _, l := range k.held {
		if now+k.delayLocked(l) >= l.deadline && !l.completed {
			k.loseLocked(l)
		}
	}
}

// hasDue says whether it is time to extend a lease.
func (k *keeper) hasDue() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := sinceBoot()
	for _, l := range k.held {
		if now >= l.extendAt && !l.completed {
			return true
		}
	}
	return false
}

// due returns the leases that it is time to extend, by id.
func (k *keeper) due() []*lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := sinceBoot()
	var due []*lease
	for _, l := range k.held {
		if now >= l.extendAt && !l.completed {
			due = append(due, l)
		}
	}
	slices.SortFunc(due, func(a, b *lease) int { return cmp.Compare(a.id, b.id) })
	return due
}

// running returns the runs whose handlers have begun and have not completed the
// job, by id: the order in which rows are locked.
func (k *keeper) running() []*Run {
	k.mu.Lock()
	defer k.mu.Unlock()
	runs := make([]*Run, 0, len(k.held))
	for _, l := range k.held {
		if l.cancel != nil && !l.completed {
			runs = append(runs, l.run)
		}
	}
	slices.SortFunc(runs, func(a, b *Run) int { return cmp.Compare(a.row.ID, b.row.ID) })
	return runs
}

// extend sends one extension and acts on its answers. When it fails, the
// leases stay due and are tried again soon, until their deadlines pass.
func (k *keeper) extend(ctx context.Context, due []*lease) {
	params := db.Extensions{Owner: k.worker.id}
	asked := make(map[int64]extension, len(due))
	patience := killMarginMax
	for _, l := range due {
		settings := l.queue.settings()
		params.Ids, params.Tokens = append(params.Ids, l.id), append(params.Tokens, l.token)
		params.Leases = append(params.Leases, db.Interval(settings.tickerExtends()))
		patience = min(patience, killMargin(settings.lease))
		asked[l.id] = extension{l, settings}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	sent := sinceBoot()
	answers, err := k.worker.schema.ExtendLeases(ctx, k.worker.pool, params)
	if err != nil {
		k.worker.databaseTrouble(err)
		return
	}
	var gone []*lease
	k.mu.Lock()
	for id, answer := range answers {
		if l := asked[id]; answer == db.LeaseLost && l.completing && k.held[id] == l.lease {
			gone = append(gone, l.lease)
			continue
		}
		k.answerLocked(asked[id], answer, sent)
	}
	k.mu.Unlock()
	k.settle(ctx, gone)
}

// extension is a lease and the settings that it was extended with.
type extension struct {
	*lease
	settings queueSettings
}

func (k *keeper) answerLocked(l extension, answer string, sent time.Duration) {
	if k.held[l.id] != l.lease {
		return // finished while the statement ran
	}
	switch answer {
	case db.LeaseCancel:
		l.asked = true
		if l.cancel != nil {
			l.cancel(ErrCancelled)
		}
		fallthrough
	case db.LeaseOK:
		if l.settings.tickerExtends() > 0 {
			l.extendedLocked(sent, l.settings)
		}
		l.extendAt = sent + l.settings.extendEvery
	case db.LeaseBusy:
		l.extendAt = sent + l.settings.busyRetry()
	default:
		k.loseLocked(l.lease)
	}
}

// stop cancels every running handler for the reason, and lets none begin.
func (k *keeper) stop(reason error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stopped = reason
	for _, l := range k.held {
		if l.cancel != nil {
			l.cancel(reason)
		}
	}
}

// abandon gives up on handlers that do not stop, and kills their programs:
// whatever they still report is not stored. It returns the runs whose leases were
// held until now, and those whose leases were lost, or whose jobs were completed,
// before. No other handler runs,
// nor will one, once stop was called.
func (k *keeper) abandon() (held, lost []*Run) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, l := range k.held {
		switch {
		case l.completed:
			l.given = true
			k.forgetLocked(l)
			lost = append(lost, l.run)
		case l.cancel != nil:
			l.lost, l.given = true, true
			if onLost := l.run.onLost.Load(); onLost != nil {
				(*onLost)()
			}
			k.forgetLocked(l)
			held = append(held, l.run)
		}
	}
	for l := range k.astray {
		l.given = true
		lost = append(lost, l.run)
	}
	return held, lost
}
