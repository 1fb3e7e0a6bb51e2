package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jobq-dev/jobq"
)

const (
	// failureTimeout is how long a call of Config.OnFailure may take, and how long a worker that
	// ends waits for the last calls.
	failureTimeout = 5 * time.Second
	// failureCallers is how many calls are under way at most.
	failureCallers = 8
	// failuresMax is how many failures may wait for a call. Each keeps its job's args in memory.
	failuresMax = 1000
)

// errEndedAsFailed is the error of a run that a transaction of its own has ended as failed, and whose
// handler has returned nil.
var errEndedAsFailed = errors.New("a transaction of the handler has ended the run as failed")

// Failure is a run that has failed or timed out: see Config.OnFailure.
type Failure struct {
	// Run is the run: its job, kind, queue and attempt. It has ended: what it is told to report or to
	// save is not stored.
	Run *Run
	// Err is what the handler or a Middleware has returned, with all that it wraps. That of a panic has the
	// value and the stack as its text. Never nil.
	Err error
	// Outcome is jobq.OutcomeFailed or jobq.OutcomeTimedOut.
	Outcome jobq.Outcome
	// Panic is the value with which the handler has panicked; nil if it has not.
	Panic any
	// Stack is where it has panicked, at most 8 KiB; nil if it has not.
	Stack []byte
	// Final means that the job has failed for good: no attempt is left, or the handler has returned Discard.
	Final bool
}

// failures calls Config.OnFailure. The calls have goroutines of their own, so that neither a slot nor the
// storing of results waits for them.
type failures struct {
	callFunc func(ctx context.Context, failure Failure) // nil: nobody is told
	log      *slog.Logger
	timeout  time.Duration // failureTimeout; tests change it
	waiting  chan Failure
	over     chan struct{} // closed when no more failures come
	callers  sync.WaitGroup
}

func newFailures(callFunc func(context.Context, Failure), log *slog.Logger) *failures {
	return &failures{
		callFunc: callFunc, log: log, timeout: failureTimeout,
		waiting: make(chan Failure, failuresMax), over: make(chan struct{}),
	}
}

// add has the function called for a run that has ended in the state. It does not block, and calls no
// method of the error.
func (f *failures) add(run *Run, err error, outcome string, final bool) {
	if f.callFunc == nil {
		return
	}
	if err == nil {
		err = errEndedAsFailed
	}
	select {
	case f.waiting <- Failure{Run: run, Err: err, Outcome: jobq.Outcome(outcome), Final: final}:
	default:
		f.log.Warn("failure not reported, OnFailure is too slow", run.logAttrs()...)
	}
}

// start begins the goroutines that call the function, until end. ctx has the values of the calls' contexts;
// its end is the end of the calls.
func (f *failures) start(ctx context.Context) {
	if f.callFunc == nil {
		return
	}
	for range failureCallers {
		f.callers.Go(func() { f.run(ctx) })
	}
}

// run calls the function, one failure after the other. When the function ends the goroutine with
// runtime.Goexit, another one goes on.
func (f *failures) run(ctx context.Context) {
	ended := false
	defer func() {
		if !ended {
			f.callers.Go(func() { f.run(ctx) })
		}
	}()
	for ctx.Err() == nil {
		select {
		case failure := <-f.waiting:
			f.call(ctx, failure)
			continue
		default:
		}
		select {
		case failure := <-f.waiting:
			f.call(ctx, failure)
		case <-f.over:
			ended = true
			return
		}
	}
	ended = true
}

// call calls the function. What it does changes nothing of the run.
func (f *failures) call(ctx context.Context, failure Failure) {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	attrs := failure.Run.logAttrs()
	defer context.AfterFunc(ctx, func() { f.log.Warn("OnFailure takes too long", attrs...) })() // before cancel
	if panicked := guard(func() error {
		var panicked *panicError
		if errors.As(failure.Err, &panicked) { // a method of the error
			failure.Panic, failure.Stack = panicked.value, panicked.stack
		}
		return nil
	}); panicked != nil {
		f.log.Debug("failure with an error that panics", append(attrs, "error", panicked)...)
	}
	if panicked := guard(func() error {
		f.callFunc(ctx, failure)
		return nil
	}); panicked != nil {
		f.log.Error("OnFailure panics", append(attrs, "error", panicked)...)
	}
}

// end waits until all failures are reported, for as long as a call may take. It must be called after the last
// add, but for runs whose handlers did not stop. stop ends the contexts of the calls.
func (f *failures) end(stop func()) {
	close(f.over)
	done := make(chan struct{})
	go func() {
		f.callers.Wait()
		close(done)
	}()
	ended := within(done, f.timeout, nil)
	stop()
	if !ended {
		f.log.Warn("worker stopped before all failures were reported", "waiting", len(f.waiting))
	}
}
