package screen

import (
	"strings"

	"github.com/jobq-dev/jobq"
)

// tab is a state that the list of jobs is about.
type tab int

const (
	tabAll tab = iota
	tabAvailable
	tabScheduled
	tabRunning
	tabRetrying
	tabFailed
	tabCancelled
	tabCompleted
	tabEnd
)

// tabNames and tabShort are what the tabs are called where there is room, and
// where there is less.
var (
	tabNames = [tabEnd]string{"All", "Available", "Scheduled", "Running", "Retrying", "Failed", "Cancelled", "Completed"}
	tabShort = [tabEnd]string{"All", "Avail", "Sched", "Run", "Retry", "Fail", "Canc", "Done"}
)

// term is the tab in the filter's grammar.
func (t tab) term() string {
	if t == tabAll {
		return ""
	}
	return "state:" + strings.ToLower(tabNames[t])
}

// tabOf is the tab that a filter begins with, and the rest of the filter.
func tabOf(match string) (tab, string) {
	for t := tabAvailable; t < tabEnd; t++ {
		if strings.HasPrefix(match+" ", t.term()+" ") {
			return t, strings.TrimSpace(strings.TrimPrefix(match, t.term()))
		}
	}
	return tabAll, match
}

// holds says whether a job is in the tab's state.
func (t tab) holds(job *jobq.Job) bool {
	switch t {
	case tabAll:
		return job.State != jobq.StateDeleted
	case tabRetrying:
		return job.State == jobq.StateScheduled && job.Attempts > 0
	case tabAvailable, tabScheduled, tabRunning, tabFailed, tabCancelled, tabCompleted, tabEnd:
	}
	return string(job.State) == strings.ToLower(tabNames[t])
}

// order is an order that a tab's jobs can have: see jobq.Sort.
type order struct {
	title   string
	sort    jobq.Sort
	reverse bool
}

// orders are those of the tab's jobs, the usual one first.
func (t tab) orders() []order {
	byID := []order{{"newest first", jobq.SortNewest, false}, {"oldest first", jobq.SortNewest, true}}
	switch t {
	case tabFailed, tabCancelled:
		return append([]order{{"last ended first", jobq.SortFinished, false}, {"first ended first", jobq.SortFinished, true}}, byID...)
	case tabScheduled, tabRetrying:
		return append([]order{{"next due first", jobq.SortDue, false}, {"last due first", jobq.SortDue, true}}, byID...)
	case tabRunning:
		return append(byID, order{"running longest first", jobq.SortStarted, false}, order{"started last first", jobq.SortStarted, true})
	case tabAll, tabAvailable, tabCompleted, tabEnd:
	}
	return byID
}
