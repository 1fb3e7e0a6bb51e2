package tui

import (
	"context"
	"fmt"
	"strconv"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/tui/overlay"
	"github.com/jobq-dev/jobq/tui/widget"
)

// undoSeenMsg is the action to undo, as the audit has it.
type undoSeenMsg struct {
	entry jobq.AuditEntry
	err   error
}

func noUndo(m *Model) string {
	switch {
	case m.screen != screenAudit && m.pending > 0:
		return underWay // which of them is the last is not known yet
	case m.undoID() == 0:
		return "there is nothing to undo"
	}
	return ""
}

// undoID is the action that u would take back.
func (m *Model) undoID() int64 {
	if m.screen == screenAudit && len(m.audit) > 0 {
		return m.audit[m.auditAt()].ID
	}
	return m.lastAudit
}

// undo takes back the last action at once or, on the Audit screen, the one under
// the cursor after a question; in production it always asks.
func (m *Model) undo() tea.Cmd {
	id := m.undoID()
	switch {
	case m.screen == screenAudit:
		var answer overlay.Typed
		if m.env.confirm {
			answer = overlay.Typed{Text: strconv.FormatInt(id, 10), Meaning: "the number of the action", Effect: "undo it"}
		}
		m.askUndo(m.audit[m.auditAt()], "", answer)
		return nil
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

// undoSeen asks whether to undo what the audit says of the last action.
func (m *Model) undoSeen(msg undoSeenMsg) {
	if msg.err != nil {
		m.say("undo: " + shortError(msg.err))
		return
	}
	m.askUndo(msg.entry, ", your last", overlay.Typed{})
}

// askUndo asks with all that the audit says of the action.
func (m *Model) askUndo(entry jobq.AuditEntry, which string, answer overlay.Typed) {
	m.ask(fmt.Sprintf("undo action %d, %s%s", entry.ID, entry.Action, which), []string{
		fmt.Sprintf("action    %s %s, %s jobs", entry.Action, auditWhat(entry), format.Number(int64(entry.Done))),
		fmt.Sprintf("by        %s, %s", widget.Clean(entry.Actor), entry.At.UTC().Format("2006-01-02 15:04:05Z")),
		"effect    undone on the jobs that nothing has happened to since",
	}, answer, m.undoNow(entry.ID))
}

// undoNow takes the action back.
func (m *Model) undoNow(id int64) tea.Cmd {
	w := m.env.writer
	return m.write(func(ctx context.Context) tea.Msg {
		undone, err := w.Undo(ctx, id)
		return actedMsg{"undo", undone, err}
	})
}
