package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
)

// emptyEvery is how often a worker that ends when nothing is left looks.
const emptyEvery = 250 * time.Millisecond

// ErrTooManyFailures is returned by Run when as many runs in a row have failed
// as Config.MaxConsecutiveFailures says.
var ErrTooManyFailures = errors.New("too many runs in a row have failed")

// Batch says when a worker ends by itself. The zero value means never.
type Batch struct {
	// TimeLimit is how long the worker runs before it drains.
	TimeLimit time.Duration
	// MaxConsecutiveFailures is after how many failed runs without a completed
	// one between them the worker drains; Run then returns ErrTooManyFailures.
	MaxConsecutiveFailures int
	// ExitWhenEmpty drains the worker when its queues have nothing available of
	// its kinds, and nothing runs. Jobs that are to start later do not count.
	ExitWhenEmpty bool
}

// halt is the worker's own decision to end.
type halt struct {
	mu sync.Mutex
	// guarded by mu
	asked    chan struct{} // closed when it is to end
	closed   bool
	patient  bool // what runs has all the time it takes
	reason   error
	failures int // since a run was completed
}

// Finish drains the worker as the end of Run's context does, but what runs has
// all the time it takes. The end of the context sets the usual limit.
func (w *Worker) Finish() { w.halt.begin(nil, true) }

func (h *halt) begin(reason error, patient bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	h.closed, h.patient, h.reason = true, patient, reason
	close(h.asked)
}

func (h *halt) verdict() (reason error, patient bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reason, h.patient
}

// observe counts failures in a row; what is neither leaves the count.
func (w *Worker) observe(failed, completed bool) {
	limit := w.config.Batch.MaxConsecutiveFailures
	if limit <= 0 {
		return
	}
	w.halt.mu.Lock()
	switch {
	case failed:
		w.halt.failures++
	case completed:
		w.halt.failures = 0
	}
	tooMany := w.halt.failures >= limit
	w.halt.mu.Unlock()
	if tooMany {
		w.halt.begin(fmt.Errorf("worker: %w: %d", ErrTooManyFailures, limit), false)
	}
}

// untilHalted returns a context that ends with the one given, or when the
// worker decides to end. The function returned must be called.
func (w *Worker) untilHalted(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		var limit <-chan time.Time
		if w.config.Batch.TimeLimit > 0 {
			timer := time.NewTimer(w.config.Batch.TimeLimit)
			defer timer.Stop()
			limit = timer.C
		}
		select {
		case <-ctx.Done():
		case <-w.halt.asked:
		case <-limit:
			w.halt.begin(nil, false)
		}
		cancel()
	})
	if w.config.Batch.ExitWhenEmpty {
		watching.Go(func() { w.awaitEmpty(ctx) })
	}
	return ctx, func() {
		cancel()
		watching.Wait()
	}
}

// awaitEmpty ends the worker when there is nothing to do. Before it asks the
// database it must have nothing in hand, and afterwards as well: a job that it
// claimed meanwhile is no longer in the table.
func (w *Worker) awaitEmpty(ctx context.Context) {
	ticker := time.NewTicker(emptyEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		before := w.counts.claimed.Load()
		if !w.isIdle() || w.hasWork(ctx) || !w.isIdle() || w.counts.claimed.Load() != before {
			continue
		}
		w.log.Info("nothing left to do")
		w.halt.begin(nil, true)
		return
	}
}

func (w *Worker) isIdle() bool {
	for _, q := range w.queues {
		for _, each := range q.all() {
			if !each.isIdle() {
				return false
			}
		}
	}
	return true
}

// hasWork says whether there is, or may be, a job that could run now.
func (w *Worker) hasWork(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, killMarginMax)
	defer cancel()
	names := make([]string, 0, len(w.queues))
	for name := range w.queues {
		names = append(names, name)
	}
	waiting, err := w.queries.WorkWaits(ctx, w.claims, names)
	if err != nil && db.IsTransient(err) {
		w.databaseTrouble(err)
	}
	return err != nil || waiting
}
