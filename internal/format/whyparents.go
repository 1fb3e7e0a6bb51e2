package format

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/monitor"
)

// waitsForJobs is about a job that waits for others: "it waits for job 12 (running)". What
// can be done: something only about a parent that has failed or is gone, or when nobody would see
// that the parents are over.
func waitsForJobs(id int64, f monitor.ReasonFacts) (says, advice string) {
	names := make([]string, len(f.Parents))
	over := 0
	for i, parent := range f.Parents {
		names[i] = fmt.Sprintf("job %d (%s)", parent.ID, cmp.Or(string(parent.State), "gone"))
		switch parent.State {
		case jobq.StateFailed, jobq.StateCancelled:
			over++
			if parent.OnFailure == jobq.WaitOnParentFailure && advice == "" {
				advice = fmt.Sprintf("run job %d again: jobq requeue %d", parent.ID, parent.ID)
			}
		case "":
			over++
			if parent.OnFailure == jobq.WaitOnParentFailure && advice == "" {
				advice = fmt.Sprintf("job %d cannot run again: jobq requeue %d, or jobq cancel %d", parent.ID, id, id)
			}
		case jobq.StateCompleted:
			over++
		default:
		}
	}
	if more := f.ParentsOpen - int64(len(names)); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	if len(names) > 1 {
		names = []string{strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]}
	}
	says = "it waits for " + strings.Join(names, "")
	if over == len(f.Parents) && f.Janitor != nil && !*f.Janitor && advice == "" {
		return says + ": a janitor is to see that, and no janitor holds its lock at this moment", "run one: jobq janitor"
	}
	return says, advice
}
