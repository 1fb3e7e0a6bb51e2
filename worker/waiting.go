package worker

import (
	"context"
	"sync"
	"time"
)

const (
	// waitAnnounced is how long an announcement holds that this worker waits for
	// jobs. It is renewed when less than waitRenewed is left.
	waitAnnounced = 30 * time.Second
	waitRenewed   = 15 * time.Second
	waitTimeout   = 4 * time.Second
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

	mu sync.Mutex
	// guarded by mu
	until time.Duration // by sinceBoot, a little earlier than the database's
	news  bool          // this worker did not wait before, and what is open is not known yet
	open  []string      // transactions that may not have seen it
	asked time.Duration // when their fate was last asked for
	after time.Duration // how long until it is asked for again
	round int           // grows whenever all queues have to claim once more
}

// announce makes sure that inserts notify. Jobs may have come in between
// whenever the round is another than that of the last claim; and when there is a
// time to recheck, they may still come without a notification.
func (w *waiting) announce(ctx context.Context) (round int, recheck time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	if err := w.renew(ctx); err != nil {
		w.worker.databaseTrouble(err)
		return w.round, 0 // the poll, or the listener's return, comes back here
	}
	if len(w.open) == 0 {
		return w.round, 0
	}
	return w.round, w.after
}

// forget makes the next announcement be made anew: a standby that has become the
// server may never have heard of the last one.
func (w *waiting) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.until = 0
}

func (w *waiting) renew(ctx context.Context) error {
	sent := sinceBoot()
	if sent > w.until-waitRenewed {
		answer, err := w.worker.queries.WaitAnnounce(ctx, int64(waitAnnounced/time.Second))
		if err != nil {
			return err
		}
		// Another worker's announcement is not enough: that one may have other
		// queues, and may no longer look for what did not see it.
		w.news = w.news || answer.News || sent >= w.until
		w.until = sent + waitAnnounced
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
