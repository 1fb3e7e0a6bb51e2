package tui

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/auditline"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/screen"
	"github.com/jobq-dev/jobq/tui/widget"
)

// undoTimeout bounds an undo, which takes back up to 1000 jobs after another
// until all are: like an action by filter, it may take minutes.
const undoTimeout = 10 * time.Minute

// undoSeenMsg is the action to undo, as the audit has it.
type undoSeenMsg struct {
	entry jobq.AuditEntry
	err   error
}

func noUndo(m *Model) string {
	switch {
	case m.at != screen.Audit && m.pending > 0:
		return underWay // which of them is the last is not known yet
	case m.undoID() == 0:
		return "there is nothing to undo"
	}
	return ""
}

// undoID is the action that u would take back.
func (m *Model) undoID() int64 {
	if entry := m.current().Selected().Entry; entry != nil {
		return entry.ID
	}
	return m.lastAudit
}

// undo takes back the last action at once or, on the Audit screen, the one under
// the cursor after a question; in production it always asks.
func (m *Model) undo() tea.Cmd {
	id := m.undoID()
	switch {
	case m.at == screen.Audit:
		var answer request.Typed
		if m.env.confirm {
			answer = request.Typed{Text: strconv.FormatInt(id, 10), Meaning: "the number of the action", Effect: "undo it"}
		}
		return m.askUndo(*m.current().Selected().Entry, "", answer)
	case !m.env.confirm:
		return m.begin(m.undoNow(id))
	}
	r := m.env.reader
	return m.begin(m.write(func(ctx context.Context) tea.Msg {
		entries, err := r.Audit(ctx, id+1, 1)
		switch {
		case err != nil:
			return undoSeenMsg{err: err}
		case len(entries) == 0 || entries[0].ID != id:
			return undoSeenMsg{err: fmt.Errorf("action %d has left the audit", id)}
		}
		return undoSeenMsg{entry: entries[0]}
	}))
}

// apply asks whether to undo what the audit says of the last action.
func (msg undoSeenMsg) apply(m *Model) tea.Cmd {
	if msg.err != nil {
		m.say("undo: " + screen.ShortError(msg.err))
		return nil
	}
	return m.askLate(func() tea.Cmd { return m.askUndo(msg.entry, ", your last", request.Typed{}) })
}

// askUndo asks with all that the audit says of the action.
func (m *Model) askUndo(entry jobq.AuditEntry, which string, answer request.Typed) tea.Cmd {
	return m.ask(fmt.Sprintf("undo action %d, %s%s", entry.ID, entry.Action, which), []string{
		fmt.Sprintf("action    %s %s, %s", entry.Action, widget.Clean(auditline.What(entry)), format.Count(int64(entry.Done), "job")),
		fmt.Sprintf("by        %s, %s", widget.Clean(entry.Actor), entry.At.UTC().Format("2006-01-02 15:04:05Z")),
		"effect    undone on the jobs that have not changed since",
	}, answer, m.undoNow(entry.ID))
}

// undoNow takes the action back.
func (m *Model) undoNow(id int64) tea.Cmd {
	w := m.env.writer
	return writeWithin(undoTimeout, func(ctx context.Context) tea.Msg {
		undone, err := w.Undo(ctx, id)
		return actedMsg{"undo", undone, err}
	})
}

// undoFailed says that an undo has ended with an error. What it has taken back
// before stays so: that is shown, and the same undo goes on with the rest.
func (m *Model) undoFailed(msg actedMsg) tea.Cmd {
	text := "undo: " + screen.ShortError(msg.err)
	if errors.Is(msg.err, jobq.ErrConflict) || errors.Is(msg.err, jobq.ErrNotFound) { // refused before it began
		m.say(text)
		return nil
	}
	m.say(text + "; some jobs may be undone already, " + m.env.keyOf("undo") + " undoes the rest")
	m.renew(data.Job, data.Visible, data.Page, data.Count, data.Audit)
	acted := msg.acted
	if acted == nil {
		acted = &jobq.Acted{}
	}
	return m.toScreens(screen.Acted{Acted: acted})
}
