// Package editing changes a job in the operator's own editor, or makes a new one
// like it: it writes the job to a file, has the editor opened, asks about what was
// changed, and stores it. What was not stored stays in its file. Like acting it
// draws nothing, takes messages, and returns what the root is to do.
package editing

import (
	"context"
	"errors"
	"fmt"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobedit"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/tui/acting"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/commandline"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/screen"
	"github.com/jobq-dev/jobq/tui/widget"
)

// Part is the part of the UI that edits. It belongs to one database.
type Part struct {
	acting.Kit
	paint *widget.Painter
	last  string // the last edit that was stored, as a command
}

// New has edited nothing yet.
func New(kit acting.Kit, paint *widget.Painter) *Part { return &Part{Kit: kit, paint: paint} }

// Last is the last edit that was stored, as a command without the program's name;
// empty for none.
func (p *Part) Last() string { return p.last }

// Edit is a job on its way through the editor: to be changed, or to be the model of
// a new one.
type Edit struct {
	Job   *jobq.Job // as it was when the text was made
	File  *jobedit.File
	Clone bool
}

func (e *Edit) action() jobq.Action {
	if e.Clone {
		return jobq.ActionClone
	}
	return jobq.ActionEdit
}

// The messages that it takes, in the order in which they come.
type (
	// Ready says that the text is there to be edited.
	Ready struct {
		Edit
		Err error
	}
	// Edited is what the operator has made of the text.
	Edited struct {
		Edit
		Change  operator.JobChange
		Problem error // of what was written; it can be edited again
		Err     error // of the editor
	}
	// Stored is what came of storing it.
	Stored struct {
		Edit
		Change operator.JobChange
		Acted  *operator.Acted
		Err    error
	}
)

// Actions are what can be done with what is selected, by the ids of the commands.
func (p *Part) Actions(selected screen.Selection) map[string]screen.Action {
	open := func(clone bool, check func(jobq.State) string) screen.Action {
		return screen.Action{
			Alone:    true, // it may be another editor that is on its way
			Disabled: func() string { return noEditor(selected, check) },
			Run:      func() tea.Msg { return p.open(selected.Targets[0].ID, clone) },
		}
	}
	return map[string]screen.Action{
		command.Edit: open(false, func(state jobq.State) string {
			if state == jobq.StateWaiting || state == jobq.StateScheduled || state == jobq.StateAvailable {
				return ""
			}
			return fmt.Sprintf("the job is %s: only one that waits can be changed, %s makes a new one", state, p.Key(command.Clone))
		}),
		command.Clone: open(true, func(jobq.State) string { return "" }),
	}
}

// noEditor says why an editor cannot be opened on what is selected.
func noEditor(selected screen.Selection, check func(jobq.State) string) string {
	if selected.All != nil || len(selected.Targets) > 1 {
		return "an editor takes one job: `jobq edit --filter` is for many"
	}
	return acting.Refusal(selected, check)
}

// Update takes the next message of an edit in.
func (p *Part) Update(msg tea.Msg) tea.Msg {
	switch msg := msg.(type) {
	case Ready:
		if msg.Err != nil {
			return request.Tell{Text: string(msg.action()) + ": " + screen.ShortError(msg.Err)}
		}
		return request.Editor{File: msg.File, Ended: func(err error) tea.Msg { return read(msg.Edit, err) }}
	case Edited:
		return p.edited(msg)
	case Stored:
		return p.stored(msg)
	}
	return nil
}

// timeout bounds what is asked of the database and stored in it.
const timeout = 10 * time.Second

// begin does a part of the way apart from the UI.
func begin(do func(context.Context) tea.Msg) request.Begin {
	return request.Begin{Run: func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		return do(ctx)
	}}
}

// open writes the job to a file, and then has it opened in an editor.
func (p *Part) open(id int64, clone bool) tea.Msg {
	reader := p.Place().Reader
	return begin(func(ctx context.Context) tea.Msg {
		e := Edit{Clone: clone}
		var err error
		if e.Job, err = reader.Get(ctx, id); err != nil {
			return Ready{e, err}
		}
		if !clone && e.Job.State != jobq.StateAvailable && e.Job.State != jobq.StateScheduled && e.Job.State != jobq.StateWaiting {
			return Ready{e, fmt.Errorf("the job is %s now", e.Job.State)}
		}
		e.File, err = jobedit.Create(id, jobedit.Document(e.Job, jobedit.Heading(e.Job)...))
		return Ready{e, err}
	})
}

// again opens the editor once more, with what was wrong at the top.
func again(e Edit, problem error) tea.Msg {
	return begin(func(context.Context) tea.Msg {
		content, err := e.File.Read()
		if err == nil {
			err = e.File.Write(jobedit.WithProblem(content, problem.Error()))
		}
		return Ready{e, err}
	})
}

// read reads what the operator has written, once the editor has ended.
func read(e Edit, err error) Edited {
	if err != nil {
		return Edited{Edit: e, Err: fmt.Errorf("editor: %w", err)}
	}
	content, err := e.File.Read()
	if err != nil {
		return Edited{Edit: e, Err: err}
	}
	change, problem := jobedit.Changes(content, e.Job)
	return Edited{Edit: e, Change: change, Problem: problem}
}

// edited asks about what was written.
func (p *Part) edited(msg Edited) tea.Msg {
	switch {
	case msg.Err != nil:
		return notDone(msg.Edit, screen.ShortError(msg.Err))
	case msg.Problem != nil:
		return p.askAgain(msg.Edit, msg.Problem)
	case msg.Change.IsEmpty() && !msg.Clone:
		msg.File.Remove()
		return request.Tell{Text: "nothing was changed"}
	}
	return p.askChange(msg)
}

// store does what was written. It is not refused before it is tried: what cannot be
// stored says where the text is.
func (p *Part) store(msg Edited) tea.Msg {
	w, job := p.Place().Writer, msg.Job
	return begin(func(ctx context.Context) tea.Msg {
		if !msg.Clone {
			acted, err := w.Edit(ctx, msg.Change, operator.Target{ID: job.ID, State: job.State, LeaseToken: job.LeaseToken, Seen: job})
			return Stored{msg.Edit, msg.Change, acted, err}
		}
		clone, err := w.Clone(ctx, job.ID, msg.Change)
		if err != nil {
			return Stored{msg.Edit, msg.Change, nil, err}
		}
		made := operator.ActedJob{ID: clone.ID, After: clone.State, Changed: true}
		return Stored{msg.Edit, msg.Change, &operator.Acted{AuditID: clone.AuditID, Jobs: []operator.ActedJob{made}}, nil}
	})
}

// stored says what came of it. What was not stored stays in its file.
func (p *Part) stored(msg Stored) tea.Msg {
	if errors.Is(msg.Err, jobq.ErrInvalid) {
		return p.askAgain(msg.Edit, msg.Err)
	}
	result := acting.Result{Verb: string(msg.action()), Acted: msg.Acted, Err: msg.Err}
	if msg.Clone && msg.Err == nil {
		result.Verb = fmt.Sprintf("cloned job %d into", msg.Job.ID)
	}
	if result.Failed() {
		return request.All{result, notDone(msg.Edit, result.Text())}
	}
	p.last = commandline.Edit(string(msg.action()), msg.Job.ID, msg.Change)
	msg.File.Remove()
	return result
}
