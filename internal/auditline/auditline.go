// Package auditline says in words what an action of the audit was about and what
// became of it, for the command line and the terminal UI alike. Its texts are
// safe to show: what people and producers wrote is in them.
package auditline

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobedit"
	"github.com/jobq-dev/jobq/internal/printable"
	"github.com/jobq-dev/jobq/monitor"
)

// idsMax is how many ids stand for the jobs of an action.
const idsMax = 3

// What is what the action was about: a filter, a queue, a kind, a worker or a host, or the jobs;
// and what an edit has set.
func What(entry monitor.AuditEntry) string {
	subject := printable.Line(entry.Target)
	if entry.Target == "" {
		subject = ids(entry.JobIDs)
	}
	return strings.TrimSpace(subject + " " + printable.Line(jobedit.OneLine(entry.Change)))
}

// ids are the first few.
func ids(all []int64) string {
	words := make([]string, 0, idsMax+1)
	for _, id := range all[:min(len(all), idsMax)] {
		words = append(words, strconv.FormatInt(id, 10))
	}
	if len(all) > idsMax {
		words = append(words, "...")
	}
	return strings.Join(words, " ")
}

// OnJobs says whether the action was on jobs, and not on a queue, a kind, a worker, a host, a
// schedule or the settings.
func OnJobs(entry monitor.AuditEntry) bool {
	switch entry.Action {
	case jobq.ActionPause, jobq.ActionResume, jobq.ActionKindPause, jobq.ActionKindResume, jobq.ActionKindSettings, jobq.ActionKeyPause, jobq.ActionKeyResume, jobq.ActionKeyWeight, jobq.ActionDrain, jobq.ActionLost, jobq.ActionSettings, jobq.ActionExport,
		jobq.ActionScheduleSet, jobq.ActionSchedulePause, jobq.ActionScheduleResume, jobq.ActionScheduleRemove, jobq.ActionScheduleRun, jobq.ActionHostHold, jobq.ActionHostRelease:
		return false
	case jobq.ActionRequeue, jobq.ActionCancel, jobq.ActionDelete, jobq.ActionEdit, jobq.ActionClone, jobq.ActionUndo:
	}
	return true
}

// Note is what became of the action, and what was noted about it; empty for
// most.
func Note(entry monitor.AuditEntry) string {
	note := printable.Line(entry.Note)
	switch {
	case entry.UndoneBy > 0 && note != "":
		return fmt.Sprintf("undone by %d; %s", entry.UndoneBy, note)
	case entry.UndoneBy > 0:
		return fmt.Sprintf("undone by %d", entry.UndoneBy)
	case entry.Undoes > 0:
		return fmt.Sprintf("undoes %s %d", note, entry.Undoes)
	case entry.NoResume() == "" && note == "":
		return "not at its end"
	case entry.NoResume() == "":
		return "not at its end, " + note
	}
	return note
}
