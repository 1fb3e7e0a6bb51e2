package format

import (
	"fmt"
	"strconv"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/printable"
	"github.com/jobq-dev/jobq/monitor"
)

// State is the state of a job in one word: also retrying, for a scheduled job
// that has failed before, stopping, for a running one that was asked to stop, and claimed,
// for one that its worker has claimed ahead and that waits there for a slot.
func State(job *jobq.Job) string {
	switch {
	case job.State == jobq.StateScheduled && job.Attempts > 0:
		return "retrying"
	case job.State == jobq.StateRunning && job.CancelRequestedAt != nil:
		return "stopping"
	case job.State == jobq.StateRunning && job.StartedAt == nil:
		return "claimed"
	}
	return string(job.State)
}

// Attempt is the number of the attempt that runs or ran last; 0 before the first.
//
// Example: a job that runs for the first time has 0 attempts behind it, and is
// in attempt 1 of 25. When that fails it still is in attempt 1 of 25, until the
// next one begins. When it completes, it did so in attempt 1 of 25.
func Attempt(job *jobq.Job) int {
	number := job.Attempts
	if job.State == jobq.StateRunning || job.State == jobq.StateCompleted {
		number++
	}
	return min(number, job.MaxAttempts)
}

// Attempts is the number of the attempt and how many there may be: 1/25.
func Attempts(job *jobq.Job) string { return fmt.Sprintf("%d/%d", Attempt(job), job.MaxAttempts) }

// Lost is how many runs of the job were lost without using an attempt, and how many may be: 3/20, or 3 if nobody says any more how
// many may be. Empty if none was.
func Lost(job *jobq.Job) string {
	switch {
	case job.Lost == 0:
		return ""
	case job.MaxLost == 0:
		return strconv.Itoa(job.Lost)
	}
	return fmt.Sprintf("%d/%d", job.Lost, job.MaxLost)
}

// AttemptsAndLost is Attempts, and Lost if there are any: 1/1, lost 3/20.
func AttemptsAndLost(job *jobq.Job) string {
	if lost := Lost(job); lost != "" {
		return Attempts(job) + ", lost " + lost
	}
	return Attempts(job)
}

// LastError is the first line of the error that the job is to be judged by: what
// went wrong before it completed is in its history.
func LastError(job *jobq.Job) string {
	if job.State == jobq.StateCompleted {
		return ""
	}
	return printable.FirstLine(job.LastError)
}

// Age is for how long the job has been in its state, or when it is due: "41s", "in
// 2m".
func Age(job *jobq.Job, now time.Time) string {
	if job.State == jobq.StateScheduled && job.RunAt.After(now) {
		return When(job.RunAt, now)
	}
	return Ago(now.Sub(Since(job)))
}

// Available is how many jobs of a queue are available: exactly as far as they were counted, else about
// how many, or that there are more.
func Available(queue monitor.Queue) string {
	if queue.AvailableEstimate > 0 {
		return About(queue.AvailableEstimate)
	}
	return CappedAt(queue.Available, queue.AvailableMax)
}

// PausedBy says who has paused the queue, and why where that was said: "ana: books
// are closed".
func PausedBy(queue monitor.Queue) string { return By(queue.PausedBy, queue.PauseReason) }

// By is who did something, and why where that was said.
func By(who, reason string) string {
	if reason == "" {
		return who
	}
	return who + ": " + reason
}

// Since is since when the job has been in its state; when it may run for one that
// waits in the line, or for its time.
func Since(job *jobq.Job) time.Time {
	switch job.State {
	case jobq.StateRunning:
		if job.StartedAt != nil {
			return *job.StartedAt
		}
	case jobq.StateCompleted, jobq.StateFailed, jobq.StateCancelled, jobq.StateDeleted:
		if job.FinishedAt != nil {
			return *job.FinishedAt
		}
	case jobq.StateWaiting:
		return job.CreatedAt
	case jobq.StateScheduled, jobq.StateAvailable:
	}
	return job.RunAt
}

// Duration is how long the last run took, or the one under way takes so far, from its
// claim; empty for a job that waits. A run that succeeds leaves no record of when its
// handler was called, so that of a completed job this is at most how long it took.
func Duration(job *jobq.Job, now time.Time) string {
	switch {
	case job.StartedAt == nil, job.State == jobq.StateScheduled, job.State == jobq.StateAvailable:
		return ""
	case job.FinishedAt != nil && job.State == jobq.StateCompleted:
		return AtMost(job.FinishedAt.Sub(*job.StartedAt))
	case job.FinishedAt != nil && job.State != jobq.StateRunning:
		return Took(job.FinishedAt.Sub(*job.StartedAt))
	}
	return Took(now.Sub(*job.StartedAt))
}
