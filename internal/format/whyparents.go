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
			if parent.OnFailure == jobq.ParentFailureWait && advice == "" {
				advice = fmt.Sprintf("run job %d again: jobq requeue %d", parent.ID, parent.ID)
			}
		case "":
			over++
			if parent.OnFailure == jobq.ParentFailureWait && advice == "" {
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

// withParent is why a job was cancelled with a parent: "job 12, for which it waited, was cancelled; that began with job
// 11, which has failed: no luck". A job that is not as it was then is told as it is now.
func withParent(f monitor.ReasonFacts) string {
	says, cause := f.Error, *f.Cause
	chained := len(f.Parents) > 0 && f.Parents[0].ID != cause.ID
	switch {
	case chained && cause.State == jobq.StateFailed:
		says += fmt.Sprintf("; that began with job %d, which has failed: %s", cause.ID, cmp.Or(cause.Error, "no error text"))
	case chained && cause.State == jobq.StateCancelled:
		says += fmt.Sprintf("; that began with job %d, which was cancelled%s", cause.ID, by(monitor.ReasonFacts{By: cause.By, Note: cause.Note}))
	case chained:
		says += fmt.Sprintf("; that began with job %d, which is %s now", cause.ID, cmp.Or(string(cause.State), "gone"))
	case cause.State == jobq.StateFailed:
		says += ": " + cmp.Or(cause.Error, "no error text")
	case cause.State == jobq.StateCancelled:
		says += by(monitor.ReasonFacts{By: cause.By, Note: cause.Note})
	case cause.State != "":
		says += fmt.Sprintf("; that job is %s now", cause.State)
	}
	return says
}
