package acting

import (
	"context"
	"fmt"
	"strconv"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/auditline"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/screen"
	"github.com/jobq-dev/jobq/tui/widget"
)

// undoTimeout bounds an undo, which takes back up to 1000 jobs after another
// until all are: like an action by filter, it may take minutes.
const undoTimeout = 10 * time.Minute

// undoAction takes back the last action at once or, on the Audit screen, the one
// under the cursor after a question; in production it always asks. Which action is
// the last one is not known while another is under way.
func (p *Part) undoAction(entry *monitor.AuditEntry) screen.Action {
	if entry != nil {
		return screen.Action{Disabled: func() string { return noUndo(entry.Action) }, Run: func() tea.Msg { return p.undoEntry(*entry) }}
	}
	return screen.Action{
		Alone: true,
		Disabled: func() string {
			if p.lastAudit == 0 {
				return "there is nothing to undo"
			}
			return ""
		},
		Run: p.undoLast,
	}
}

// noUndo says why the database would refuse to undo such an action, before it is
// asked about.
func noUndo(action jobq.Action) string {
	switch action {
	case jobq.ActionUndo:
		return "an undo is not undone: act again instead"
	case jobq.ActionExport:
		return "an export is not undone: to have days exported again, set exported_before"
	case jobq.ActionLost:
		return "the jobs of a lost worker have gone back, and may run elsewhere: start another"
	case jobq.ActionDrain:
		return "a worker that drains is not called back: start another"
	case jobq.ActionScheduleRun:
		return "a schedule that was run has added its job: cancel that"
	case jobq.ActionScheduleSet, jobq.ActionSchedulePause, jobq.ActionScheduleResume, jobq.ActionScheduleRemove:
	case jobq.ActionRequeue, jobq.ActionCancel, jobq.ActionDelete, jobq.ActionEdit, jobq.ActionClone, jobq.ActionPause, jobq.ActionResume,
		jobq.ActionKindPause, jobq.ActionKindResume, jobq.ActionKindSettings, jobq.ActionKeyPause, jobq.ActionKeyResume, jobq.ActionKeyWeight, jobq.ActionSettings,
		jobq.ActionHostHold, jobq.ActionHostRelease:
	}
	return ""
}

// undoEntry asks whether to undo an action of the audit.
func (p *Part) undoEntry(entry monitor.AuditEntry) tea.Msg {
	ask := p.askUndo(entry, "")
	if p.Place().Confirm {
		ask.Typed = request.Typed{Text: strconv.FormatInt(entry.ID, 10), Meaning: "the number of the action", Effect: "undo it"}
	}
	return ask
}

// undoLast undoes the last action. Before it asks, it reads in the audit what that
// was.
func (p *Part) undoLast() tea.Msg {
	place, id := p.Place(), p.lastAudit
	if !place.Confirm {
		return p.undoNow(id)
	}
	return request.Begin{Run: func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		entries, err := place.Reader.Audit(ctx, id+1, 1)
		switch {
		case err != nil:
			return undoSeen{err: err}
		case len(entries) == 0 || entries[0].ID != id:
			return undoSeen{err: fmt.Errorf("action %d has left the audit", id)}
		}
		return undoSeen{entry: entries[0]}
	}}
}

// undoSeen is the action to undo, as the audit has it.
type undoSeen struct {
	entry monitor.AuditEntry
	err   error
}

// confirmUndo asks whether to undo what the audit says of the last action.
func (p *Part) confirmUndo(msg undoSeen) tea.Msg {
	if msg.err != nil {
		return request.Tell{Text: "undo: " + screen.ShortError(msg.err)}
	}
	return request.Later{Overlay: p.askUndo(msg.entry, ", your last")}
}

// askUndo asks with all that the audit says of the action.
func (p *Part) askUndo(entry monitor.AuditEntry, which string) request.Ask {
	what, effect := fmt.Sprintf("%s %s", entry.Action, widget.Clean(auditline.What(entry))), "the queue, the schedule or the settings are as they were before"
	if auditline.OnJobs(entry) {
		what += ", " + format.Count(entry.Done, "job")
		effect = "undone on the jobs that have not changed since"
	}
	return request.Ask{
		Title: fmt.Sprintf("undo action %d, %s%s", entry.ID, entry.Action, which),
		Details: []string{
			"action    " + what,
			fmt.Sprintf("by        %s, %s", widget.Clean(entry.Actor), entry.At.UTC().Format("2006-01-02 15:04:05Z")),
			"effect    " + effect,
		},
		Yes: p.undoNow(entry.ID),
	}
}

// undoNow takes the action back.
func (p *Part) undoNow(id int64) request.Change {
	return p.change(command.Undo, undoTimeout, func(ctx context.Context, w Writer) tea.Msg {
		undone, err := w.Undo(ctx, id)
		return Result{command.Undo, undone, err}
	})
}
