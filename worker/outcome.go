package worker

import (
	"errors"
	"fmt"
	"time"

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
	// ErrTimedOut means that the run has taken longer than the job's timeout.
	ErrTimedOut = errors.New("job timed out")
	// ErrDrained means that the worker is shutting down and has no more time to
	// wait: the job goes back to the queue and loses no attempt.
	ErrDrained = errors.New("worker drained")
)

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
