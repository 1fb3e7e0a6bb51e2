package tui

import (
	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/tui/widget"
)

// underWay is why something has to wait that needs to know what came of the
// command before.
const underWay = "an action is under way: wait for its end"

// begin runs a command whose answer is waited for.
func (m *Model) begin(run tea.Cmd) tea.Cmd {
	answer := m.expect()
	return func() tea.Msg { return answer(run()) }
}

// expect counts one more answer that is waited for, in m.pending, and returns a
// function that wraps the message with which the answer comes. The count goes down
// when that arrives (answerMsg), and only then. A question to the operator is not
// counted: it may never be answered.
func (m *Model) expect() func(tea.Msg) tea.Msg {
	m.pending++
	at := m.env.link
	return func(msg tea.Msg) tea.Msg { return answerMsg{at, msg} }
}

// answerMsg is what came of a command that was begun at a database.
type answerMsg struct {
	link   *link
	answer tea.Msg
}

// apply takes an answer in. One of a database that was left meanwhile says
// nothing about the rows of this one; only a file that was written is there all
// the same.
func (msg answerMsg) apply(m *Model) tea.Cmd {
	if msg.link == m.env.link {
		m.pending--
		_, command := m.Update(msg.answer)
		return command
	}
	if exported, ok := msg.answer.(exportedMsg); ok {
		return exported.apply(m)
	}
	m.say("an action ended at " + widget.Clean(msg.link.Name) + " after you had left it: the audit there says how")
	return nil
}
