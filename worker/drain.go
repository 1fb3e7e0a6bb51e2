package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// stopGrace is how long handlers have to return after their contexts were
// cancelled by a drain, or killTime longer than the longest grace of a program
// if that is more; and flushGrace how long the last results may take.
const (
	stopGrace  = 5 * time.Second
	killTime   = 2 * time.Second
	flushGrace = 5 * time.Second
)

var (
	// errStuck: handlers did not return after their contexts were cancelled.
	errStuck = errors.New("handlers did not stop")
	// errUnstored: the database did not take the last results in time.
	errUnstored = errors.New("results could not be stored; their leases will expire")
)

// halt is the worker's own decision to end.
type halt struct {
	mu sync.Mutex
	// guarded by mu
	begun    chan struct{} // closed when it is to end
	closed   bool
	patient  bool // what runs has all the time it takes
	reason   error
	failures int // since a run was completed
}

// Drain makes Run return when the handlers that run have ended, however long that
// takes. It returns at once, and can be called at any time, from any goroutine.
// operator.DrainWorker does the same from afar. The end of Run's context limits the
// wait to Config.DrainTimeout; DrainNow ends it.
func (w *Worker) Drain() { w.halt.begin(nil, true) }

// DrainNow makes Run return without waiting for the handlers that run: their contexts
// are cancelled, with ErrDrained as the cause, and their jobs go back without losing
// an attempt. It returns at once, and can be called at any time, from any goroutine,
// also during a drain that waits.
func (w *Worker) DrainNow() {
	w.halt.begin(nil, false)
	w.hurried.Do(func() { close(w.hurry) })
}

func (h *halt) begin(reason error, patient bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	h.closed, h.patient, h.reason = true, patient, reason
	close(h.begun)
}

// observe counts failures in a row, of which so many end the worker; a run that has
// neither failed nor completed leaves the count.
func (h *halt) observe(limit int, failed, completed bool) {
	h.mu.Lock()
	switch {
	case failed:
		h.failures++
	case completed:
		h.failures = 0
	}
	tooMany := h.failures >= limit
	h.mu.Unlock()
	if tooMany {
		h.begin(fmt.Errorf("worker: %w: %d", ErrTooManyFailures, limit), false)
	}
}

func (h *halt) verdict() (reason error, patient bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reason, h.patient
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
		case <-w.halt.begun:
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

// awaitEnd waits for the end of the context and then for the queues, and makes
// them end. When the worker itself has decided to end, the context that Run was
// given, outer, can still end, and with it the patience for what runs.
func (w *Worker) awaitEnd(outer, ctx context.Context, working *sync.WaitGroup, stopFlush func()) error {
	done := make(chan struct{})
	go func() {
		working.Wait()
		close(done)
	}()
	<-ctx.Done()
	w.draining.Store(true)
	if _, patient := w.halt.verdict(); patient && outer.Err() == nil {
		w.log.Info("worker takes no new work")
		select {
		case <-done:
			return nil
		case <-outer.Done():
		case <-w.hurry:
		}
	}
	w.log.Info("worker drains", "timeout", w.config.DrainTimeout)
	if within(done, w.config.DrainTimeout, w.hurry) {
		return nil
	}
	w.keeper.held.Stop(ErrDrained)
	if within(done, max(stopGrace, w.externals.grace()+killTime), nil) {
		return nil
	}
	var problems []error
	if stuck := w.abandon(); stuck > 0 {
		problems = append(problems, fmt.Errorf("worker: %w: %d", errStuck, stuck))
	}
	if !within(done, flushGrace, nil) {
		stopFlush()
		problems = append(problems, fmt.Errorf("worker: %w", errUnstored))
	}
	return errors.Join(problems...)
}

// abandon gives up on the handlers that have not stopped, and returns how many
// they are. The jobs that are still ours go back.
func (w *Worker) abandon() (stuck int) {
	held, lost := w.keeper.held.Abandon()
	for _, run := range held {
		w.log.Error("handler did not stop", run.logAttrs()...)
		run.queue.end(run.released(true))
	}
	for _, run := range lost {
		w.log.Error("handler did not stop, its job is no longer held", run.logAttrs()...)
		run.queue.discard()
	}
	return len(held) + len(lost)
}

// within says whether the channel is closed before the time is over, or there
// is a reason not to wait that long.
func within(done <-chan struct{}, limit time.Duration, hurry <-chan struct{}) bool {
	timer := time.NewTimer(max(limit, 0))
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-hurry:
	case <-timer.C:
	}
	return false
}
