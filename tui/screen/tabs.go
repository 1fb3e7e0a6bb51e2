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

// order is an order of jobs that an index has: a page then costs the same
// however deep it is.
type order struct {
	title   string
	sort    jobq.Sort
	reverse bool
}

// orders are those of the tab's jobs, its own first.
func (t tab) orders() []order {
	byID := []order{{"newest first", jobq.NewestFirst, false}, {"oldest first", jobq.NewestFirst, true}}
	switch t {
	case tabFailed, tabCancelled:
		return append([]order{{"last ended first", jobq.FinishedFirst, false}, {"first ended first", jobq.FinishedFirst, true}}, byID...)
	case tabScheduled, tabRetrying:
		return append([]order{{"next due first", jobq.DueFirst, false}, {"last due first", jobq.DueFirst, true}}, byID...)
	case tabAll, tabAvailable, tabRunning, tabCompleted, tabEnd:
	}
	return byID
}
