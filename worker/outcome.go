package worker

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/worker/internal/excerpt"
)

// Reasons for which the context of a running job is cancelled; see
// context.Cause.
var (
	// ErrLeaseLost means that the job is, or may soon be, another worker's.
	// Nothing that this run reports is stored any more. It is also returned by
	// calls that need the lease.
	ErrLeaseLost = errors.New("lease lost")
	// ErrCancelled means that somebody cancelled the job.
	ErrCancelled = errors.New("job cancelled")
	// ErrTimedOut means that the run has taken longer than the job's timeout.
	ErrTimedOut = errors.New("job timed out")
	// ErrDrained means that the worker is shutting down and has no more time to
	// wait: the job goes back to the queue and loses no attempt.
	ErrDrained = errors.New("worker drained")
)

// stackBytesMax bounds what is kept of a panic's stack.
const stackBytesMax = 8 << 10

// retryError, snoozeError and discardError are what handlers return to say
// more than that the run failed.
type retryError struct {
	after time.Duration
	err   error
}

func (e *retryError) Error() string { return e.err.Error() }
func (e *retryError) Unwrap() error { return e.err }

type snoozeError struct{ after time.Duration }

func (e *snoozeError) Error() string { return fmt.Sprintf("snoozed for %s", e.after) }

type discardError struct{ err error }

func (e *discardError) Error() string { return e.err.Error() }
func (e *discardError) Unwrap() error { return e.err }

// Retry makes a failed attempt of err, and the next one run after exactly
// that long instead of the job's backoff.
func Retry(after time.Duration, err error) error {
	if err == nil {
		err = errors.New("retry asked for")
	}
	return &retryError{after: max(after, 0), err: err}
}

// Snooze postpones the job without using an attempt.
func Snooze(after time.Duration) error { return &snoozeError{after: max(after, 0)} }

// Discard fails the job for good, whatever attempts are left.
func Discard(err error) error {
	if err == nil {
		err = errors.New("discarded")
	}
	return &discardError{err: err}
}

// cancelError ends a job as cancelled, by its own handler's wish.
type cancelError struct{ reason string }

func (e *cancelError) Error() string { return "cancelled by its handler: " + e.reason }

// Cancel ends the job as cancelled, for the reason: neither completed nor
// failed.
func Cancel(reason string) error { return &cancelError{reason} }

// blamelessError says that the job was not run to an end for a reason that is
// not its own. It goes back to its place, and no attempt is counted.
type blamelessError struct {
	err       error
	unstarted bool // no handler has seen the job: it is away
}

func (e *blamelessError) Error() string { return e.err.Error() }
func (e *blamelessError) Unwrap() error { return e.err }

// panicError is a panic of a handler, with the stack that led to it.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v\n\n%s", e.value, e.stack) }

func newPanicError(value any) *panicError {
	stack := debug.Stack()
	return &panicError{value: value, stack: stack[:min(len(stack), stackBytesMax)]}
}

// endingOf decides how a run that did not succeed ended: by what the handler
// says, and else by why its context was cancelled.
func endingOf(err, cause error) db.Ending {
	ending := db.Ending{Outcome: string(jobq.OutcomeFailed), Error: excerpt.Error(err.Error()), Started: true}
	var retry *retryError
	var snooze *snoozeError
	var discard *discardError
	var cancelled *cancelError
	var panicked *panicError
	var blameless *blamelessError
	switch {
	case errors.As(err, &panicked):
	case errors.As(err, &snooze):
		ending.Outcome, ending.Error, ending.Delay = string(jobq.OutcomeSnoozed), "", db.DelayOf(snooze.after)
	case errors.As(err, &discard):
		ending.Final = true
	case errors.As(err, &cancelled), errors.Is(cause, ErrCancelled):
		ending.Outcome = string(jobq.OutcomeCancelled)
	case errors.Is(cause, ErrDrained), errors.Is(err, ErrDrained):
		ending.Outcome = string(jobq.OutcomeReleased)
	case errors.As(err, &blameless):
		ending.Outcome = string(jobq.OutcomeReleased)
		ending.Started, ending.Quiet = !blameless.unstarted, blameless.unstarted
	case errors.Is(cause, ErrTimedOut):
		ending.Outcome = string(jobq.OutcomeTimedOut)
	case errors.As(err, &retry):
		ending.Delay = db.DelayOf(retry.after)
	}
	return ending
}
