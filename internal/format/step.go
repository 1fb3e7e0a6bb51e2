package format

import (
	"fmt"
	"time"

	"github.com/jobq-dev/jobq/monitor"
)

// Step says how far a durable step is: "done … in 1.2s", "begun 3m ago, begun 2 times, not
// done", "sleeps until …", "waits for its event", "waits for jobs".
func Step(step monitor.Step, now time.Time) string {
	const layout = time.RFC3339
	state, until := StepState(step)
	switch {
	case until != nil:
		return state + " until " + until.Format(layout)
	case step.FinishedAt != nil && step.Type == monitor.StepPlain:
		return fmt.Sprintf("%s %s in %s%s", state, step.FinishedAt.Format(layout), Took(step.FinishedAt.Sub(step.StartedAt)), times(step.Attempts))
	case step.FinishedAt != nil:
		return state + " " + step.FinishedAt.Format(layout)
	case step.Type == monitor.StepPlain:
		return fmt.Sprintf("%s %s ago%s, not done", state, Ago(now.Sub(step.StartedAt)), times(step.Attempts))
	}
	return state
}

// StepState is what a durable step has come to, in a few words, and for a sleep or an event
// that is waited for with a timeout, until when.
func StepState(step monitor.Step) (state string, until *time.Time) {
	isDone := step.FinishedAt != nil
	switch {
	case isDone && step.TimedOut:
		return "event timed out", nil
	case isDone && step.Type == monitor.StepSleep:
		return "slept", step.WakeAt
	case isDone && step.Type == monitor.StepEvent:
		return "event came", nil
	case isDone && step.Type == monitor.StepAwait:
		return "awaited", nil
	case isDone:
		return "done", nil
	case step.Type == monitor.StepSleep:
		return "sleeps", step.WakeAt
	case step.Type == monitor.StepEvent && step.WakeAt != nil && step.WakeAt.Sub(step.StartedAt) < waitForever:
		return "waits for its event", step.WakeAt
	case step.Type == monitor.StepEvent:
		return "waits for its event", nil
	case step.Type == monitor.StepAwait:
		return "waits for jobs", nil
	}
	return "begun", nil
}

// waitForever is how long an event is waited for at least without a timeout: 10 years.
const waitForever = 10 * 365 * 24 * time.Hour

// StepResult is the result of a durable step as it is stored, or what an event has brought;
// of a long one, how long it is. It is empty where there is none, and may have control
// characters.
func StepResult(step monitor.Step) string {
	switch {
	case step.ResultBytes == 0, step.Type == monitor.StepSleep, step.TimedOut:
		return ""
	case step.Result == nil:
		return fmt.Sprintf("(%s: the table jobq.step has them)", Count(step.ResultBytes, "byte"))
	}
	return Value(step.Result)
}

// times says how often a step was begun, if more than once.
func times(attempts int) string {
	if attempts < 2 {
		return ""
	}
	return fmt.Sprintf(", begun %d times", attempts)
}
