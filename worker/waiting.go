package worker

import (
	"context"
	"sync"
	"time"
)

const (
	// waitAnnounced is how long an announcement holds that this worker waits for
	// jobs. It is renewed when less than waitRenewed is left.
	waitAnnounced = 15 * time.Second
	waitRenewed   = 8 * time.Second
	// waitRecheck is how often a worker claims while transactions are open that
	// may have inserted jobs without noticing the announcement.
	waitRecheck = 250 * time.Millisecond
)

// waiting is what the worker has announced to those who insert: that they
// are to notify. See the function pending_notify in sql/migrations.
type waiting struct {
	worker *Worker

	mu sync.Mutex
	// guarded by mu
	until time.Duration // by sinceBoot, a little earlier than the database's
	open  []string      // transactions that may not have seen it
	asked time.Duration // when their fate was last asked for
	round int           // grows whenever all queues have to claim once more
}

// announce makes sure that inserts notify. Jobs may have come in between
// whenever the round is another than that of the last claim; and while it is not
// settled, they may come without a notification.
func (w *waiting) announce(ctx context.Context) (round int, settled bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, waitRenewed/2)
	defer cancel()
	if err := w.renew(ctx); err != nil {
		w.worker.databaseTrouble(err)
		return w.round, false
	}
	return w.round, len(w.open) == 0
}

func (w *waiting) renew(ctx context.Context) error {
	sent := sinceBoot()
	if sent > w.until-waitRenewed {
		answer, err := w.worker.queries.WaitAnnounce(ctx, int64(waitAnnounced/time.Second))
		if err != nil {
			return err
		}
		w.until = sent + waitAnnounced
		if answer.News {
			if w.open, err = w.worker.queries.TransactionsOpen(ctx); err != nil {
				w.until = 0 // what is open is not known
				return err
			}
			w.round++
		}
		return nil
	}
	if len(w.open) == 0 || sent < w.asked+waitRecheck {
		return nil
	}
	w.asked = sent
	open, err := w.worker.queries.TransactionsStillOpen(ctx, w.open)
	if err != nil {
		return err
	}
	if len(open) < len(w.open) {
		w.round++ // what these have committed is there to be claimed
	}
	w.open = open
	return nil
}
