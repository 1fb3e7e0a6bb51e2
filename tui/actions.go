package tui

import (
	"context"
	"fmt"
	"strconv"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/screen"
)

// single says why an action on one job makes no sense; with many, the answer
// says it for each.
func (m *Model) single(check func(jobq.State) string) string {
	selected := m.current().Selected()
	switch {
	case selected.Counting:
		return "the jobs that match are still being counted"
	case selected.All != nil:
		return ""
	case len(selected.Targets) == 0:
		return "no job is selected"
	case len(selected.Targets) == 1:
		return check(selected.Targets[0].State)
	}
	return ""
}

func noRequeue(m *Model) string {
	return m.single(func(state jobq.State) string {
		switch state {
		case jobq.Running:
			return "the job is running: cancel it first, or let it end"
		case jobq.Available:
			return "the job is available already"
		case jobq.Scheduled, jobq.Completed, jobq.Failed, jobq.Cancelled:
		}
		return ""
	})
}

func noCancel(m *Model) string {
	return m.single(func(state jobq.State) string {
		switch state {
		case jobq.Completed, jobq.Failed, jobq.Cancelled:
			return "the job has ended already: it is " + string(state)
		case jobq.Scheduled, jobq.Available, jobq.Running:
		}
		return ""
	})
}

func noDelete(m *Model) string {
	return m.single(func(state jobq.State) string {
		if state == jobq.Running {
			return "the job is running: cancel it first, or let it end"
		}
		return ""
	})
}

// manyMarks is how many jobs an action may be about before it asks for their
// number, and not just for a yes.
const manyMarks = 100

// act does something to the selected jobs, and asks first where that is due:
// not for one job that undo can bring back, with y for what cannot be taken back
// so easily, and with the number of jobs for many, and in production.
func (m *Model) act(action jobq.Action) tea.Cmd {
	selected := m.current().Selected()
	if selected.All != nil {
		return m.actOnAll(action, selected.All)
	}
	targets := selected.Targets
	run := m.actNow(action, targets)
	runs := false
	for _, target := range targets {
		runs = runs || target.State == jobq.Running
	}
	asks := len(targets) > 1 || action == jobq.ActionDelete || runs || m.env.confirm
	if !asks {
		return m.begin(run)
	}
	details := []string{"effect    " + m.effectOf(action), "          a job that has changed meanwhile is left alone"}
	var answer request.Typed
	if len(targets) > manyMarks || m.env.confirm && (action == jobq.ActionDelete || len(targets) > 1 || runs) {
		answer = typedCount(int64(len(targets)), action)
	}
	title := fmt.Sprintf("%s %s", action, format.Count(int64(len(targets)), "job"))
	if len(targets) == 1 {
		title = fmt.Sprintf("%s job %d, %s", action, targets[0].ID, targets[0].State)
	}
	return m.ask(title, details, answer, run)
}

// typedCount asks for the number of jobs that the action is about.
func typedCount(count int64, action jobq.Action) request.Typed {
	effect := string(action) + " them"
	if count == 1 {
		effect = string(action) + " it"
	}
	return request.Typed{Text: strconv.FormatInt(count, 10), Meaning: "the number of jobs", Effect: effect}
}

func (m *Model) effectOf(action jobq.Action) string {
	switch action {
	case jobq.ActionRequeue:
		return "it may run at once, one attempt more is allowed; " + m.env.keyOf("undo") + " undoes it"
	case jobq.ActionCancel:
		return "it will not run; one that runs is asked to stop"
	case jobq.ActionDelete:
		return "it is removed with its history; " + m.env.keyOf("undo") + " brings it back"
	case jobq.ActionEdit:
		return "it is changed as the audit says; " + m.env.keyOf("undo") + " undoes it"
	case jobq.ActionClone, jobq.ActionPause, jobq.ActionResume, jobq.ActionDrain, jobq.ActionSettings, jobq.ActionUndo:
	}
	return string(action)
}

// actNow is the action itself, on ids and on what was seen of them.
func (m *Model) actNow(action jobq.Action, targets []jobq.Target) tea.Cmd {
	w := m.env.writer
	return m.write(func(ctx context.Context) tea.Msg {
		acted, err := w.Act(ctx, action, targets...)
		return actedMsg{string(action), acted, err}
	})
}

// actedMsg is what came of an action.
type actedMsg struct {
	verb  string
	acted *jobq.Acted
	err   error
}

// apply says what came of an action, shows it at once, and looks at the jobs
// again.
func (msg actedMsg) apply(m *Model) tea.Cmd {
	m.need()
	if msg.err != nil && msg.verb == "undo" {
		return m.undoFailed(msg)
	}
	if msg.err != nil {
		m.say(msg.verb + ": " + screen.ShortError(msg.err))
		return nil
	}
	problems := msg.acted.Problems()
	changed := msg.acted.Changed()
	text := fmt.Sprintf("%s: %s", msg.verb, format.Count(int64(changed), "job"))
	switch {
	case msg.verb == "undo" && len(msg.acted.Jobs) == 0: // of what was no action on jobs
		text = "undone"
	case len(msg.acted.Jobs) == 1 && len(problems) == 1:
		text = fmt.Sprintf("%s job %d: %s", msg.verb, problems[0].ID, problems[0].Problem)
	case len(msg.acted.Jobs) == 1:
		text = fmt.Sprintf("%s job %d: it is %s", msg.verb, msg.acted.Jobs[0].ID, afterWord(msg.acted.Jobs[0]))
	case len(problems) > 0:
		text += fmt.Sprintf(", %d left alone: %s", len(problems), problems[0].Problem)
	}
	m.lastAudit = 0
	if msg.verb != "undo" && changed > 0 {
		m.lastAudit = msg.acted.AuditID
		text += m.undoHint()
	}
	m.say(text)
	m.renew(data.Job, data.Visible)
	return m.toScreens(screen.Acted{Acted: msg.acted})
}

// undoHint says at the end of a toast how to take back what it tells of.
func (m *Model) undoHint() string { return "   " + m.env.keyOf("undo") + " undo" }

func afterWord(job jobq.ActedJob) string {
	if job.After == jobq.Running {
		return "asked to stop"
	}
	return string(job.After)
}
