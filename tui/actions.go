package tui

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/tui/overlay"
	"github.com/jobq-dev/jobq/tui/widget"
)

// targets are the jobs that an action is about, as the operator sees them.
func (m *Model) targets() []jobq.Target {
	if m.screen == screenJob {
		job := m.job.story.job
		if job == nil || job.ID != m.job.id {
			return nil
		}
		return []jobq.Target{{ID: job.ID, State: job.State, LeaseToken: job.LeaseToken}}
	}
	return m.jobs.targets()
}

// single says why an action on one job makes no sense; with many, the answer
// says it for each.
func (m *Model) single(check func(jobq.State) string) string {
	switch {
	case m.screen != screenJobs:
	case m.jobs.counting:
		return "the jobs that match are still being counted"
	case m.jobs.all != nil:
		return ""
	}
	targets := m.targets()
	switch len(targets) {
	case 0:
		return "no job is selected"
	case 1:
		return check(targets[0].State)
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
	if m.screen == screenJobs && m.jobs.all != nil {
		return m.actOnAll(action)
	}
	targets := m.targets()
	run := m.actNow(action, targets)
	runs := false
	for _, target := range targets {
		runs = runs || target.State == jobq.Running
	}
	asks := len(targets) > 1 || action == jobq.ActionDelete || runs || m.env.confirm
	if !asks {
		return m.begin(run)
	}
	details := []string{"effect    " + m.effectOf(action), "if it changed meanwhile, it is left alone"}
	var answer overlay.Typed
	if len(targets) > manyMarks || m.env.confirm && (action == jobq.ActionDelete || len(targets) > 1 || runs) {
		answer = typedCount(int64(len(targets)), action)
	}
	title := fmt.Sprintf("%s %d jobs", action, len(targets))
	if len(targets) == 1 {
		title = fmt.Sprintf("%s job %d, %s", action, targets[0].ID, targets[0].State)
	}
	m.ask(title, details, answer, run)
	return nil
}

// typedCount asks for the number of jobs that the action is about.
func typedCount(count int64, action jobq.Action) overlay.Typed {
	effect := string(action) + " them"
	if count == 1 {
		effect = string(action) + " it"
	}
	return overlay.Typed{Text: strconv.FormatInt(count, 10), Meaning: "the number of jobs", Effect: effect}
}

func (m *Model) effectOf(action jobq.Action) string {
	switch action {
	case jobq.ActionRequeue:
		return "available now, attempts kept, one more allowed; " + m.keyOf("undo") + " undoes it"
	case jobq.ActionCancel:
		return "cancelled; a running one is asked to stop"
	case jobq.ActionDelete:
		return "removed with its history; " + m.keyOf("undo") + " brings it back"
	case jobq.ActionEdit:
		return "changed as the audit says; " + m.keyOf("undo") + " undoes it"
	case jobq.ActionClone, jobq.ActionPause, jobq.ActionResume, jobq.ActionDrain, jobq.ActionUndo:
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

// acted says what came of an action, and looks at the jobs again.
func (m *Model) acted(msg actedMsg) {
	m.need(m.wanted()...)
	if msg.err != nil {
		m.say(msg.verb + ": " + shortError(msg.err))
		return
	}
	problems := msg.acted.Problems()
	changed := msg.acted.Changed()
	text := fmt.Sprintf("%s: %d jobs", msg.verb, changed)
	switch {
	case msg.verb == "undo" && len(msg.acted.Jobs) == 0: // of what was no action on jobs
		text = "undone"
	case len(msg.acted.Jobs) == 1 && len(problems) == 1:
		text = fmt.Sprintf("%s job %d: %s", msg.verb, problems[0].ID, problems[0].Problem)
	case len(msg.acted.Jobs) == 1:
		text = fmt.Sprintf("%s job %d: it is %s", msg.verb, msg.acted.Jobs[0].ID, afterWord(msg.acted.Jobs[0]))
	case len(problems) > 0:
		text += fmt.Sprintf(", %d not: %s", len(problems), problems[0].Problem)
	}
	m.lastAudit = 0
	if msg.verb != "undo" && changed > 0 {
		m.lastAudit = msg.acted.AuditID
		text += m.undoHint()
	}
	m.jobs.unmark()
	m.say(text)
	m.patchActed(msg.acted)
}

// undoHint says at the end of a toast how to take back what it tells of.
func (m *Model) undoHint() string { return "   " + m.keyOf("undo") + " undo" }

func afterWord(job jobq.ActedJob) string {
	if job.After == jobq.Running {
		return "asked to stop"
	}
	return string(job.After)
}

// patchActed shows at once what the database has answered.
func (m *Model) patchActed(acted *jobq.Acted) {
	for _, job := range acted.Jobs {
		if job.Problem != "" || job.After == "" {
			continue
		}
		if at := m.jobs.indexOf(job.ID); at >= 0 {
			row := m.jobs.rows[at]
			row.State = job.After
			if job.After != jobq.Running {
				row.StartedAt = nil
			}
			m.jobs.notice(row, m.env.now())
			m.jobs.follow = false
		}
		if story := m.job.story.job; story != nil && story.ID == job.ID {
			story.State = job.After
		}
	}
	m.renew(panelJob, panelVisible)
}

// shortError is an error for one line: without the parts that only say where
// it came from.
func shortError(err error) string {
	switch {
	case errors.Is(err, jobq.ErrTimeout):
		return "timed out"
	case errors.Is(err, jobq.ErrNotFound):
		return "no such job: it was deleted, or retention has removed it"
	case errors.Is(err, jobq.ErrNotMigrated), errors.Is(err, jobq.ErrNewerSchema):
		return widget.Clean(err.Error())
	}
	text := err.Error()
	if _, after, found := strings.Cut(text, "ERROR: "); found {
		text = after
	}
	return widget.Clean(text)
}
