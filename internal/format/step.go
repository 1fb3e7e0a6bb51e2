package format

import (
	"fmt"
	"time"

	"github.com/jobq-dev/jobq/monitor"
)

// Step says how far a durable step is: "done in 1.2s", "begun 3m ago, 2 times", "sleeps
// until …", "waits for its event".
func Step(step monitor.Step, now time.Time) string {
	const layout = time.RFC3339
	switch {
	case step.FinishedAt != nil && step.TimedOut:
		return "event timed out " + step.FinishedAt.Format(layout)
	case step.FinishedAt != nil && step.Type == monitor.StepSleep:
		return "slept until " + step.WakeAt.Format(layout)
	case step.FinishedAt != nil && step.Type == monitor.StepEvent:
		return "event came " + step.FinishedAt.Format(layout)
	case step.FinishedAt != nil:
		return fmt.Sprintf("done %s in %s%s", step.FinishedAt.Format(layout), Took(step.FinishedAt.Sub(step.StartedAt)), times(step.Attempts))
	case step.Type == monitor.StepSleep:
		return "sleeps until " + step.WakeAt.Format(layout)
	case step.Type == monitor.StepEvent && step.WakeAt.Sub(step.StartedAt) < 10*365*24*time.Hour:
		return "waits for its event until " + step.WakeAt.Format(layout)
	case step.Type == monitor.StepEvent:
		return "waits for its event"
	}
	return fmt.Sprintf("begun %s ago%s, not done", Ago(now.Sub(step.StartedAt)), times(step.Attempts))
}

// times says how often a step was begun, if more than once.
func times(attempts int) string {
	if attempts < 2 {
		return ""
	}
	return fmt.Sprintf(", begun %d times", attempts)
}
