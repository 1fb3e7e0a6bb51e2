package worker

import (
	"errors"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/worker/internal/excerpt"
)

// result is how a run ended, until the database has stored it. It has a completion or an ending.
// With neither, the end is stored already, and only the lease is still to be updated.
type result struct {
	run        *Run
	completion *db.Completion // the run succeeded; nil otherwise
	ending     *db.Ending     // any other end; nil otherwise
	err        error          // why the run has failed, for Config.OnFailure; nil if it has not
	retried    bool           // it was sent before, and may have been stored
}

// isUnrecorded says whether the run's end is stored and only its lease is still to be updated.
func (r result) isUnrecorded() bool { return r.completion == nil && r.ending == nil }

// result turns what the handler returned into what is to be stored.
func (r *Run) result(err, cause error) result {
	var ending *db.Ending
	if err != nil { // before reports.end: methods of the error and the Backoff are user code, which may still report
		decided := endingOf(err, cause)
		if handled, ok := r.worker.handlers.byKind[r.row.Kind]; ok {
			handled.options.delay(&decided, r, err)
		}
		ending = &decided
	}
	kept := r.reports.end()
	if err == nil {
		r.completion = db.Completion{
			Slot: r.slot(), Kind: r.row.Kind, Waited: r.Waited(), OnRow: r.row.HasKey || kept.onRow,
			Result: kept.result, Output: kept.output, Usage: kept.usage, Ran: r.ran,
		}
		return result{run: r, completion: &r.completion}
	}
	ending.Slot, ending.Output, ending.Usage, ending.Ran = r.slot(), kept.output, kept.usage, r.ran
	return result{run: r, ending: ending, err: err}
}

// errEndExited is the failure of a run for which user code ended the goroutine before it was known
// how the run ended.
var errEndExited = errors.New("the handler's error or its Backoff called runtime.Goexit, as FailNow of a test does")

// exited is the result of a run for which a method of the error, or the Backoff, has ended the
// goroutine. It calls no user code.
func (r *Run) exited() result {
	kept := r.reports.end()
	return result{run: r, err: errEndExited, ending: &db.Ending{
		Slot: r.slot(), Outcome: string(jobq.OutcomeFailed), Error: errEndExited.Error(), Started: true,
		Output: kept.output, Usage: kept.usage, Ran: r.ran,
	}}
}

// plainMax is the longest time after the claim for which the end of a run is stored in its lease.
// The lease has it in milliseconds as a smallint, at most 32.767 s; the rest is for storing it.
const plainMax = 30 * time.Second

// slot is the run's place in its lease.
func (r *Run) slot() db.Slot {
	return db.Slot{ID: r.row.ID, Token: r.row.LeaseToken, Slot: r.row.Slot, ClaimedAt: r.row.StartedAt.Time}
}

// isFirstEnd says whether to count the result as a run that has just ended. A job that was
// released before its handler started is no run, and a result that is sent again was counted
// the first time.
func (r result) isFirstEnd() bool {
	return !r.retried && (r.completion != nil || r.ending != nil && r.ending.Started)
}

// failed says whether the run has failed or timed out, and so counts as an attempt.
func (r result) failed() bool {
	return r.ending != nil && isFailed(r.ending)
}

func isFailed(ending *db.Ending) bool {
	return ending.Outcome == string(jobq.OutcomeFailed) || ending.Outcome == string(jobq.OutcomeTimedOut)
}

// took is how long the handler ran, as the result says; 0 for a result that isUnrecorded.
func (r result) took() time.Duration {
	switch {
	case r.completion != nil:
		return r.completion.Ran
	case r.ending != nil:
		return r.ending.Ran
	}
	return 0 // only the lease is still to be updated
}

// released is the result of a run that the worker ends because it stops, or because the job has
// waited too long for a slot. started says whether its handler had started.
func (r *Run) released(started bool) result {
	ending := db.Ending{Slot: r.slot(), Outcome: string(jobq.OutcomeReleased), Started: started}
	if started {
		ending.Ran = time.Since(r.began)
	}
	return result{run: r, ending: &ending}
}

// endingOf decides how a run that did not succeed has ended: by the error that the handler
// returned, and otherwise by the cause for which its context was cancelled. Methods of the
// error may panic: then the attempt has failed.
func endingOf(err, cause error) db.Ending {
	ending := db.Ending{Outcome: string(jobq.OutcomeFailed), Error: excerpt.Error(textOf(err)), Started: true}
	decided := ending
	if panicked := guard(func() error {
		decide(&decided, err, cause)
		return nil
	}); panicked != nil {
		ending.Error = excerpt.Error(panicked.Error())
		return ending
	}
	return decided
}

// decide sets the outcome and the delay of the ending by the error and the cause.
func decide(ending *db.Ending, err, cause error) {
	var retry *RetryError
	var snooze *SnoozeError
	var discard *DiscardError
	var cancelled *CancelError
	var panicked *panicError
	var release *ReleaseError
	var unreadable *unreadableError
	switch {
	case errors.As(err, &panicked):
	case errors.As(err, &snooze):
		ending.Outcome, ending.Error, ending.Delay = string(jobq.OutcomeSnoozed), "", db.DelayOf(max(snooze.Delay, 0))
	case errors.As(err, &discard):
		ending.Final = true
	case errors.As(err, &cancelled), errors.Is(cause, ErrCancelled):
		ending.Outcome = string(jobq.OutcomeCancelled)
	case errors.Is(cause, ErrDrained), errors.Is(err, ErrDrained):
		ending.Outcome = string(jobq.OutcomeReleased)
	case errors.As(err, &unreadable) && unreadable.isFinal:
		ending.Final = true
	case errors.As(err, &unreadable):
		ending.Outcome, ending.Delay = string(jobq.OutcomeUnreadable), db.DelayOf(unreadable.delay)
		ending.Started = !unreadable.isKnown
	case errors.As(err, &release):
		ending.Outcome = string(jobq.OutcomeReleased)
		ending.Started, ending.Quiet = !release.Unstarted, release.Unstarted
	default:
		if errors.Is(cause, ErrTimedOut) {
			ending.Outcome = string(jobq.OutcomeTimedOut)
		}
		if errors.As(err, &retry) {
			ending.Delay = db.DelayOf(max(retry.Delay, 0))
		}
	}
}

// unstorable is the failed attempt that replaces a result whose value the database refuses. err
// is the refusal.
func (r result) unstorable(err error) result {
	reason := err.Error()
	if invalid, ok := db.Invalid(err); ok {
		reason = invalid
	}
	unstored := "result could not be stored: " + reason
	return result{run: r.run, err: errors.New(unstored), ending: &db.Ending{
		Slot: r.run.slot(), Outcome: string(jobq.OutcomeFailed), Error: excerpt.Error(unstored), Started: true, Ran: r.took(),
	}}
}
