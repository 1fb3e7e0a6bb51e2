package acting

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/screen"
)

// Result is what came of an action on jobs.
type Result struct {
	Verb  string
	Acted *operator.Acted // nil with an error
	Err   error
}

// Failed says that not all was done that was asked for.
func (r Result) Failed() bool { return r.Err != nil || len(r.Acted.Problems()) > 0 }

// Text says what came of it.
func (r Result) Text() string {
	if r.Err != nil {
		text := screen.ShortError(r.Err)
		if strings.HasPrefix(text, r.Verb+" ") { // it says what was to be done
			return text
		}
		return r.Verb + ": " + text
	}
	problems, jobs := r.Acted.Problems(), r.Acted.Jobs
	switch {
	case r.Verb == command.Undo && len(jobs) == 0: // of what was no action on jobs
		return "undone"
	case r.Verb == command.Undo && len(problems) < len(jobs):
		return undoneText(jobs, problems)
	case len(jobs) == 1 && len(problems) == 1:
		return fmt.Sprintf("%s job %d: %s", r.Verb, problems[0].ID, problems[0].Problem)
	case len(jobs) == 1:
		return fmt.Sprintf("%s job %d: it is %s", r.Verb, jobs[0].ID, afterWord(jobs[0]))
	}
	text := fmt.Sprintf("%s: %s", r.Verb, format.Count(int64(r.Acted.Changed()), "job"))
	if len(problems) > 0 {
		text += fmt.Sprintf(", %d left alone: %s", len(problems), problems[0].Problem)
	}
	return text
}

// undoneText says how the jobs of an action are now that it is undone.
//
// Example: "undone: 2 jobs are failed now, 1 left alone: it has changed meanwhile".
func undoneText(jobs, problems []operator.ActedJob) string {
	count := make(map[jobq.State]int)
	for _, job := range jobs {
		if job.Problem == "" {
			count[job.After]++
		}
	}
	var parts []string
	for _, state := range slices.Sorted(maps.Keys(count)) {
		are := "are"
		if count[state] == 1 {
			are = "is"
		}
		parts = append(parts, fmt.Sprintf("%s %s %s now", format.Count(count[state], "job"), are, state))
	}
	text := "undone: " + strings.Join(parts, ", ")
	if len(jobs) == 1 {
		text = fmt.Sprintf("undone: job %d is %s now", jobs[0].ID, jobs[0].After)
	}
	if len(problems) > 0 {
		text += fmt.Sprintf(", %d left alone: %s", len(problems), problems[0].Problem)
	}
	return text
}

// undoable says whether undo can bring back any of it: a job that was asked to stop
// has been told so.
func undoable(acted *operator.Acted) bool {
	return slices.ContainsFunc(acted.Jobs, func(job operator.ActedJob) bool { return job.Changed && job.After != jobq.StateRunning })
}

func afterWord(job operator.ActedJob) string {
	if job.After == jobq.StateRunning {
		return "asked to stop"
	}
	return string(job.After)
}

// came says with a text what came of an action, shows it at once, and has the jobs
// looked at again.
func (p *Part) came(result Result, text string) tea.Msg {
	switch {
	case result.Err != nil && result.Verb == command.Undo:
		return p.undoFailed(result)
	case result.Err != nil:
		return request.All{request.Renew{}, request.Tell{Text: text}}
	}
	p.lastAudit = 0
	if result.Verb != command.Undo && undoable(result.Acted) {
		p.lastAudit = result.Acted.AuditID
		text += p.undoHint()
	}
	return request.All{
		request.Tell{Text: text},
		request.Renew{Panels: []data.Panel{data.Job, data.Visible}},
		request.Screens{Msg: screen.Acted{Acted: result.Acted}},
	}
}

// undoFailed says that an undo has ended with an error. What it has taken back
// before stays so: that is shown, and the same undo goes on with the rest.
func (p *Part) undoFailed(result Result) tea.Msg {
	if errors.Is(result.Err, jobq.ErrConflict) || errors.Is(result.Err, jobq.ErrNotFound) { // refused before it began
		return request.All{request.Renew{}, request.Tell{Text: result.Text()}}
	}
	acted := result.Acted
	if acted == nil {
		acted = &operator.Acted{}
	}
	return request.All{
		request.Tell{Text: result.Text() + "; some jobs may be undone already, " + p.Key(command.Undo) + " undoes the rest"},
		request.Renew{Panels: []data.Panel{data.Job, data.Visible, data.Page, data.Count, data.Audit}},
		request.Screens{Msg: screen.Acted{Acted: acted}},
	}
}

// undoHint says at the end of a text how to take back what it tells of.
func (p *Part) undoHint() string { return "   " + p.Key(command.Undo) + " undo" }
