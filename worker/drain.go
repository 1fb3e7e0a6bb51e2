package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// stopGrace is how long handlers have to return after a drain has cancelled their
	// contexts. They have longer if a program's grace plus killTime is longer.
	stopGrace = 5 * time.Second
	killTime  = 2 * time.Second
	// flushGrace is how long storing the last results may take after that.
	flushGrace = 5 * time.Second
)

var (
	// errStuck says that handlers did not return after their contexts were cancelled.
	errStuck = errors.New("handlers did not stop")
	// errUnstored says that the last results could not be stored within flushGrace.
	errUnstored = errors.New("results could not be stored; their leases will expire")
)

// halt is the worker's own decision to end.
type halt struct {
	mu sync.Mutex
	// guarded by mu
	begun    chan struct{} // closed when the worker must end
	closed   bool          // begun is closed
	patient  bool          // running handlers may take as long as they need
	reason   error         // what Run returns; nil for none
	failures int           // failed runs since one has completed
}

// notice is when the handlers that run have to end.
type notice struct {
	begun chan struct{} // closed when they have so long
	endAt time.Time     // set before that, and never again
}

// begin tells those who listen that running handlers have so long.
func (n *notice) begin(left time.Duration) {
	n.endAt = time.Now().Add(left)
	close(n.begun)
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

// observe counts failures in a row, and ends the worker when there are limit of them. A run that
// has neither failed nor completed does not change the count.
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

// awaitEnd waits until the context ends, and then makes the queues end and waits for them. outer
// is the context that Run was given. Drain waits for handlers without a limit until outer ends;
// then Config.DrainTimeout limits the wait. DrainNow ends either wait.
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
	if w.config.DrainTimeout > 0 {
		w.notice.begin(w.config.DrainTimeout)
	}
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

// abandon stops waiting for the handlers that have not returned, and returns how many they are.
// Their jobs are released, unless the lease is lost.
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

// within waits until done is closed and returns true. It returns false when the limit has passed
// first, or hurry is closed first; a nil hurry never is.
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
