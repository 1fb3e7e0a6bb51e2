package tui

import (
	"context"
	"errors"
	"fmt"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobedit"
	"github.com/jobq-dev/jobq/tui/overlay"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/screen"
	"github.com/jobq-dev/jobq/tui/widget"
)

// editing is a job on its way through the operator's editor: to be changed, or
// to be the model of a new one.
type editing struct {
	job   *jobq.Job // as it was when the text was made
	file  *jobedit.File
	clone bool
}

// editReadyMsg says that the text is there to be edited.
type editReadyMsg struct {
	editing
	err error
}

// editedMsg is what the operator has made of the text.
type editedMsg struct {
	editing
	change  jobq.JobChange
	problem error // of what was written; it can be edited again
	err     error // of the editor
}

// editDoneMsg is what came of storing it.
type editDoneMsg struct {
	editing
	change jobq.JobChange
	acted  *jobq.Acted
	err    error
}

func (e *editing) action() jobq.Action {
	if e.clone {
		return jobq.ActionClone
	}
	return jobq.ActionEdit
}

// noEditor says why an editor cannot be opened on what is selected.
func (m *Model) noEditor(check func(jobq.State) string) string {
	selected := m.current().Selected()
	switch {
	case m.pending > 0:
		return underWay // it may be another editor on its way
	case selected.All != nil || len(selected.Targets) > 1:
		return "an editor takes one job: `jobq edit --filter` is for many"
	}
	return m.single(check)
}

func noEdit(m *Model) string {
	return m.noEditor(func(state jobq.State) string {
		if state == jobq.Scheduled || state == jobq.Available {
			return ""
		}
		return fmt.Sprintf("the job is %s: only one that waits can be changed, %s makes a new one", state, m.env.keyOf("clone"))
	})
}

func noClone(m *Model) string { return m.noEditor(func(jobq.State) string { return "" }) }

// edit lets the operator change the job in an editor, or a copy of it.
func (m *Model) edit(clone bool) tea.Cmd {
	id := m.current().Selected().Targets[0].ID
	r, s := m.env.reader, m.env.send
	return m.begin(m.write(func(ctx context.Context) tea.Msg {
		e := editing{clone: clone}
		var err error
		if e.job, err = r.Get(ctx, id); err != nil {
			return editReadyMsg{e, err}
		}
		if !clone && e.job.State != jobq.Available && e.job.State != jobq.Scheduled {
			return editReadyMsg{e, fmt.Errorf("the job is %s now", e.job.State)}
		}
		e.file, err = jobedit.Create(id, jobedit.Document(e.job, jobedit.Heading(e.job)...))
		s.stop()
		return editReadyMsg{e, err}
	}))
}

// editAgain opens the editor once more, with what was wrong at the top.
func (m *Model) editAgain(e editing, problem error) tea.Cmd {
	s := m.env.send
	return func() tea.Msg {
		content, err := e.file.Read()
		if err == nil {
			err = e.file.Write(jobedit.WithProblem(content, problem.Error()))
		}
		s.stop()
		return editReadyMsg{e, err}
	}
}

// apply gives the terminal to the editor. Nothing is listened to and asked
// meanwhile: a listener that nobody reads keeps VACUUM from its work.
func (msg editReadyMsg) apply(m *Model) tea.Cmd {
	if msg.err != nil {
		m.say(string(msg.action()) + ": " + screen.ShortError(msg.err))
		return m.env.send.resume()
	}
	e := msg.editing
	m.suspended = true
	answer := m.expect()
	return m.env.edit(e.file, func(err error) tea.Msg { return answer(e.read(err)) })
}

// read reads what the operator has written, once the editor has ended.
func (e *editing) read(err error) editedMsg {
	if err != nil {
		return editedMsg{editing: *e, err: fmt.Errorf("editor: %w", err)}
	}
	content, err := e.file.Read()
	if err != nil {
		return editedMsg{editing: *e, err: err}
	}
	change, problem := jobedit.Changes(content, e.job)
	return editedMsg{editing: *e, change: change, problem: problem}
}

// apply shows what would be changed, and asks.
func (msg editedMsg) apply(m *Model) tea.Cmd {
	m.suspended = false
	m.need()
	switch {
	case msg.err != nil:
		m.notDone(msg.editing, screen.ShortError(msg.err))
	case msg.problem != nil:
		m.askAgain(msg.editing, msg.problem)
	case msg.change.IsEmpty() && !msg.clone:
		msg.file.Remove()
		m.say("nothing was changed")
	default:
		m.askChange(msg)
	}
	return m.env.send.resume()
}

// askAgain offers to mend what cannot be stored as it is.
func (m *Model) askAgain(e editing, problem error) {
	details := []string{m.paint.Alarm.Render(widget.Clean(problem.Error())), "text      " + widget.Clean(e.file.Path) + ", which stays", "", "Edit it again?"}
	m.askLate(func() tea.Cmd {
		return m.ask(fmt.Sprintf("%s job %d: that cannot be", e.action(), e.job.ID), details, request.Typed{}, m.editAgain(e, problem))
	})
}

// notDone says why the text was not stored, and where it is.
func (m *Model) notDone(e editing, reason string) {
	m.askLate(func() tea.Cmd {
		return m.lay(overlay.NewNote(m.paint, fmt.Sprintf("%s job %d: not done", e.action(), e.job.ID),
			[]string{reason, "the text is in " + widget.Clean(e.file.Path)}))
	})
}

// askChange asks whether to do what was written.
func (m *Model) askChange(msg editedMsg) {
	var details []string
	for _, d := range jobedit.Differences(msg.change, msg.job) {
		if len(d.Old)+len(d.New) < 50 {
			details = append(details, fmt.Sprintf("%-12s  %s %s %s", d.Field, orNone(d.Old), m.paint.Arrow, orNone(d.New)))
			continue
		}
		details = append(details, fmt.Sprintf("%-12s  %s", d.Field, m.paint.Muted.Render(widget.Clean(d.Old))), fmt.Sprintf("%12s  %s", m.paint.Arrow, widget.Clean(d.New)))
	}
	title := fmt.Sprintf("edit job %d, %s", msg.job.ID, msg.job.State)
	undo := m.env.keyOf("undo")
	effect := "stored if nobody has changed the same meanwhile; " + undo + " undoes it"
	if msg.clone {
		title = fmt.Sprintf("clone job %d, %s", msg.job.ID, msg.job.State)
		effect = "a new job, without unique key and attempts; " + undo + " removes it"
		if msg.change.RunAt == nil {
			effect = "a new job, due now, without unique key and attempts; " + undo + " removes it"
		}
		if len(details) == 0 {
			details = append(details, "as it is")
		}
	}
	details = append(details, "", "effect    "+effect, "text      "+widget.Clean(msg.file.Path)+", kept unless it is done")
	var answer request.Typed
	if m.env.confirm {
		answer = typedCount(1, msg.action())
	}
	m.askLate(func() tea.Cmd { return m.ask(title, details, answer, m.storeEdit(msg)) })
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return widget.Clean(text)
}

// storeEdit does what was written.
func (m *Model) storeEdit(msg editedMsg) tea.Cmd {
	w, job := m.env.writer, msg.job
	return m.write(func(ctx context.Context) tea.Msg {
		if !msg.clone {
			acted, err := w.Edit(ctx, msg.change, jobq.Target{ID: job.ID, State: job.State, LeaseToken: job.LeaseToken, Seen: job})
			return editDoneMsg{msg.editing, msg.change, acted, err}
		}
		clone, err := w.Clone(ctx, job.ID, msg.change)
		if err != nil {
			return editDoneMsg{msg.editing, msg.change, nil, err}
		}
		made := jobq.ActedJob{ID: clone.ID, After: clone.State, Changed: true}
		return editDoneMsg{msg.editing, msg.change, &jobq.Acted{AuditID: clone.AuditID, Jobs: []jobq.ActedJob{made}}, nil}
	})
}

// apply says what came of it. What was not stored stays in its file.
func (msg editDoneMsg) apply(m *Model) tea.Cmd {
	if errors.Is(msg.err, jobq.ErrInvalid) {
		m.askAgain(msg.editing, msg.err)
		return nil
	}
	verb := string(msg.action())
	if msg.clone && msg.err == nil {
		verb = fmt.Sprintf("cloned job %d into", msg.job.ID)
	}
	command := actedMsg{verb, msg.acted, msg.err}.apply(m)
	if msg.err != nil || len(msg.acted.Problems()) > 0 {
		m.notDone(msg.editing, m.toast)
		return command
	}
	m.lastEdit = editCommand(string(msg.action()), msg.job.ID, msg.change)
	msg.file.Remove()
	return command
}
