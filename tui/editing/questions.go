package editing

import (
	"fmt"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/internal/jobedit"
	"github.com/jobq-dev/jobq/tui/acting"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/widget"
)

// askAgain offers to mend what cannot be stored as it is.
func (p *Part) askAgain(e Edit, problem error) tea.Msg {
	return request.Later{Overlay: request.Ask{
		Title:   fmt.Sprintf("%s job %d: that cannot be", e.action(), e.Job.ID),
		Details: []string{p.paint.Alarm.Render(widget.Clean(problem.Error())), "text      " + widget.Clean(e.File.Path) + ", which stays", "", "Edit it again?"},
		Yes:     again(e, problem),
	}}
}

// notDone says why the text was not stored, and where it is.
func notDone(e Edit, reason string) tea.Msg {
	return request.Later{Overlay: request.Note{
		Title: fmt.Sprintf("%s job %d: not done", e.action(), e.Job.ID),
		Lines: []string{reason, "the text is in " + widget.Clean(e.File.Path)},
	}}
}

// longText is from how many bytes on the two sides of a change have a line each.
const longText = 50

// askChange asks whether to do what was written.
func (p *Part) askChange(msg Edited) tea.Msg {
	var details []string
	for _, d := range jobedit.Differences(msg.Change, msg.Job) {
		if len(d.Old)+len(d.New) < longText {
			details = append(details, fmt.Sprintf("%-12s  %s %s %s", d.Field, orNone(d.Old), p.paint.Arrow, orNone(d.New)))
			continue
		}
		details = append(details, fmt.Sprintf("%-12s  %s", d.Field, p.paint.Muted.Render(widget.Clean(d.Old))), fmt.Sprintf("%12s  %s", p.paint.Arrow, widget.Clean(d.New)))
	}
	undo := p.Key(command.Undo)
	effect := "stored if nobody has changed the same meanwhile; " + undo + " undoes it"
	if msg.Clone {
		effect = "a new job, without unique key and attempts; " + undo + " removes it"
		if msg.Change.RunAt == nil {
			effect = "a new job, due now, without unique key and attempts; " + undo + " removes it"
		}
		if len(details) == 0 {
			details = append(details, "as it is")
		}
	}
	ask := request.Ask{
		Title:   fmt.Sprintf("%s job %d, %s", msg.action(), msg.Job.ID, msg.Job.State),
		Details: append(details, "", "effect    "+effect, "text      "+widget.Clean(msg.File.Path)+", kept unless it is done"),
		Yes:     p.store(msg),
	}
	if p.Place().Confirm {
		ask.Typed = acting.TypedCount(1, msg.action())
	}
	return request.Later{Overlay: ask}
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return widget.Clean(text)
}
