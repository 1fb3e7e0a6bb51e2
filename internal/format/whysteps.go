package format

import (
	"time"

	"github.com/jobq-dev/jobq/monitor"
)

// otherTime is how far the next run of a job that is suspended is from what its step waits
// for, at least, if somebody has chosen another time: with the step, both are the same but
// for the time of a statement.
const otherTime = time.Minute

// whySuspended is about jobs whose last run has ended in a durable step.
func whySuspended(reason monitor.Reason, now time.Time) (says, advice string) {
	f := reason.Facts
	moment := func(at time.Time) string { return clock(at) + ", " + When(at, now) }
	if reason.Code == monitor.ReasonSleeping {
		says, advice = "it sleeps in step "+f.Step, "wait for it: after a requeue it would sleep on until then"
	} else {
		says, advice = "it waits for event "+f.Step, "let the event happen: jobq emit "+ShellWord(f.Step)+"; after a requeue it would wait on"
	}
	switch {
	case f.StepUntil != nil:
		says += " until " + moment(*f.StepUntil)
	case f.Until != nil && f.Until.Sub(now) > waitForever/2: // it waits for nothing else
		return says + " without a timeout", advice
	default:
		says += " without a timeout"
	}
	if f.Until != nil && (f.StepUntil == nil || f.Until.Sub(*f.StepUntil).Abs() > otherTime) {
		says += "; its next run, which looks again, is at " + moment(*f.Until)
	}
	if more := janitorAdvice(f); more != "" {
		advice += "; " + more
	}
	return says + janitorUnseen(f), advice
}
