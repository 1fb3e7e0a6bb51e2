package format

import (
	"fmt"
	"time"

	"github.com/jobq-dev/jobq/monitor"
)

// waitsAlone is about a job that was lost with its workers: only a worker that runs nothing else takes it.
func waitsAlone(id int64, f monitor.ReasonFacts, now time.Time) (says, advice string) {
	says = fmt.Sprintf("it was lost with its worker, %s in a row, so only a worker that runs nothing else takes it", Count(int64(f.Crashes), "time"))
	if f.Crashes == 1 {
		says = "it was lost with its worker, and only its last attempt is left, so only a worker that runs nothing else takes it"
	}
	if f.CrashesAlone > 0 {
		says = fmt.Sprintf("it seems to end its workers: it was lost with them %s in a row, and nothing else ran beside it at the last %d; only a worker that runs nothing else takes it",
			Count(int64(f.Crashes), "time"), f.CrashesAlone)
		advice = fmt.Sprintf("look at its attempts: jobq show %d, and at what its workers wrote last; mend its handler, or jobq cancel %d", id, id)
	}
	if f.Until != nil {
		if f.Until.After(now) {
			says += fmt.Sprintf(", not before %s, %s", clock(*f.Until), When(*f.Until, now))
		} else {
			says += ", since " + clock(*f.Until)
			if advice == "" {
				advice = "if no worker is ever without a run, start one more: it takes this job first"
			}
		}
	}
	if f.Lost > 0 {
		return says + "; " + attemptsAndLost(f) + ": " + errorText(f), advice
	}
	return says + fmt.Sprintf("; attempt %d of %d: %s", f.Attempts, f.MaxAttempts, errorText(f)), advice
}
