package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/worker/internal/leases"
)

// Reasons for which the context of a running job is cancelled; see
// context.Cause.
var (
	// ErrLeaseLost means that the job is, or may soon be, another worker's.
	// Nothing that this run reports is stored any more. It is also returned by
	// calls that need the lease.
	ErrLeaseLost = leases.ErrLost
	// ErrCancelled means that somebody cancelled the job.
	ErrCancelled = leases.ErrCancelled
	// ErrTimedOut means that the run has taken longer than the job's own timeout, or that of
	// its kind (HandleOptions.Timeout) or of the worker (Config.Timeout).
	ErrTimedOut = errors.New("job timed out")
	// ErrDrained means that the worker is shutting down and has no more time to
	// wait: the job goes back to the queue and loses no attempt.
	ErrDrained = errors.New("worker drained")
)

// OutcomeOf is how a run ends whose handler has returned err, for a Middleware: ctx is the
// context that the middleware got, and err what next has returned. A run whose lease is
// lost is jobq.OutcomeLost, whatever the handler says, because nothing of it is stored.
//
// It is the outcome that the worker sends to the database. Another outcome is stored if the
// lease is lost after that, if the database refuses the result, or if a transaction of the
// handler's own has ended the job, or should have and has not: see Run.CompleteTx.
func OutcomeOf(ctx context.Context, err error) jobq.Outcome {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, ErrLeaseLost):
		return jobq.OutcomeLost
	case err == nil:
		return jobq.OutcomeCompleted
	}
	return jobq.Outcome(endingOf(err, cause).Outcome)
}

// RetryError is what Retry returns: a failed attempt, and when the next one runs.
type RetryError struct {
	// Delay is how long the job waits; below 0 is 0. The job's backoff does not count.
	Delay time.Duration
	// Err is why the attempt has failed.
	Err error
}

func (e *RetryError) Error() string { return textOr(e.Err, "retry asked for") }

// Unwrap returns why the attempt has failed.
func (e *RetryError) Unwrap() error { return e.Err }

// Retry makes a failed attempt of err, and the next one run after exactly
// that long instead of the job's backoff. It returns a *RetryError.
func Retry(after time.Duration, err error) error { return &RetryError{Delay: after, Err: err} }

// SnoozeError is what Snooze returns.
type SnoozeError struct {
	// Delay is how long the job waits; below 0 is 0.
	Delay time.Duration
}

func (e *SnoozeError) Error() string { return fmt.Sprintf("snoozed for %s", e.Delay) }

// Snooze postpones the job without using an attempt. It returns a *SnoozeError.
func Snooze(after time.Duration) error { return &SnoozeError{Delay: after} }

// DiscardError is what Discard returns.
type DiscardError struct {
	// Err is why the job has failed.
	Err error
}

func (e *DiscardError) Error() string { return textOr(e.Err, "discarded") }

// Unwrap returns why the job has failed.
func (e *DiscardError) Unwrap() error { return e.Err }

// Discard fails the job for good, whatever attempts are left. It returns a
// *DiscardError.
func Discard(err error) error { return &DiscardError{Err: err} }

// CancelError is what Cancel returns.
type CancelError struct {
	// Err is why the job was cancelled.
	Err error
}

func (e *CancelError) Error() string {
	if e.Err == nil {
		return "cancelled by its handler"
	}
	return "cancelled by its handler: " + e.Err.Error()
}

// Unwrap returns why the job was cancelled.
func (e *CancelError) Unwrap() error { return e.Err }

// Cancel ends the job as cancelled: neither completed nor failed. The reason is kept as the error of the
// attempt. It returns a *CancelError.
func Cancel(reason error) error { return &CancelError{Err: reason} }

// ReleaseError is what Release and Unreached return.
type ReleaseError struct {
	// Err is why the job was not run to an end.
	Err error
	// Unstarted means that no handler has seen the job: nothing is kept of the
	// attempt.
	Unstarted bool
}

func (e *ReleaseError) Error() string { return textOr(e.Err, "released") }

// Unwrap returns why the job was not run to an end.
func (e *ReleaseError) Unwrap() error { return e.Err }

// Release gives the job back to its place for a reason that is not its own. The
// attempt is kept in the history and does not count. It returns a *ReleaseError.
func Release(reason error) error { return &ReleaseError{Err: reason} }

// Unreached is Release for a job that its handler has not seen: nothing is kept of
// the attempt.
func Unreached(reason error) error { return &ReleaseError{Err: reason, Unstarted: true} }

// textOr is the text of the error, or what is said without one.
func textOr(err error, otherwise string) string {
	if err == nil {
		return otherwise
	}
	return err.Error()
}
