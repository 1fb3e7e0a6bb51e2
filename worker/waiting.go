package worker

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/jobq-dev/jobq/worker/internal/clock"
)

const (
	// waitAnnounced is how long an announcement holds that this worker waits for
	// jobs. An idle queue renews it when a third of that is left.
	waitAnnounced = 30 * time.Second
	// waitTimeout bounds an announcement, and is how long the worker waits after
	// one that failed.
	waitTimeout = 4 * time.Second
	// waitRecheck is when a worker claims anyhow while transactions are open that
	// may have inserted jobs without noticing the announcement. It doubles, up to
	// the poll interval: one that has been open for long, perhaps of another
	// database, is not to keep an idle worker busy.
	waitRecheck = 100 * time.Millisecond
)

// waiting is what the worker has announced to those who insert: that they
// are to notify. See the function pending_wake in sql/migrations.
type waiting struct {
	worker *Worker
	holds  time.Duration // in tests, less than waitAnnounced, which 0 means

	mu sync.Mutex
	// guarded by mu
	until time.Duration // by clock.SinceBoot, a little earlier than the database's
	news  bool          // this worker did not wait before, and what is open is not known yet
	open  []string      // transactions that may not have seen it
	asked time.Duration // when their fate was last asked for
	after time.Duration // how long until it is asked for again
	round int           // grows whenever all queues have to claim once more
}

// alarms are how long an idle queue sleeps at most.
type alarms struct {
	recheck time.Duration // until it claims anyhow, since jobs may come without a notification
	renew   time.Duration // until the announcement is made again
}

var noAlarms = alarms{never, never}

// announce makes sure that inserts notify, and says when to come back. Jobs may
// have come in between whenever the round is another than that of the last claim.
func (w *waiting) announce(ctx context.Context) (round int, next alarms) {
	w.mu.Lock()
	defer w.mu.Unlock()
	callCtx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	if err := w.renew(callCtx); err != nil {
		if ctx.Err() == nil {
			w.worker.databaseTrouble(err)
		}
		return w.round, alarms{recheck: never, renew: waitTimeout}
	}
	next = alarms{recheck: never, renew: max(w.renewAt()-clock.SinceBoot(), 0)}
	if len(w.open) > 0 {
		next.recheck = w.after
	}
	return w.round, next
}

func (w *waiting) announced() time.Duration { return cmp.Or(w.holds, waitAnnounced) }

func (w *waiting) renewAt() time.Duration { return w.until - w.announced()/3 }

// forget makes the next announcement be made anew: a standby that has become the
// server may never have heard of the last one.
func (w *waiting) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.until = 0
}

func (w *waiting) renew(ctx context.Context) error {
	sent := clock.SinceBoot()
	if sent >= w.renewAt() {
		answer, err := w.worker.queries.WaitAnnounce(ctx, int64(w.announced()/time.Second))
		if err != nil {
			return err
		}
		// Another worker's announcement is not enough: that one may have other
		// queues, and may no longer look for what did not see it.
		w.news = w.news || answer.News || sent >= w.until
		w.until = sent + w.announced()
	}
	switch {
	case w.news:
		if err := w.worker.queries.TransactionMark(ctx); err != nil {
			return err
		}
		open, err := w.worker.queries.TransactionsOpen(ctx)
		if err != nil {
			return err
		}
		w.open, w.news = open, false
		w.asked, w.after = sent, waitRecheck
		w.round++
	case len(w.open) > 0 && sent >= w.asked+w.after:
		open, err := w.worker.queries.TransactionsStillOpen(ctx, w.open)
		if err != nil {
			return err
		}
		w.asked, w.after = sent, min(2*w.after, w.worker.config.PollInterval)
		if len(open) < len(w.open) {
			w.round++ // what these have committed is there to be claimed
		}
		w.open = open
	}
	return nil
}
