package tui

import (
	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/tui/request"
)

// lend stops listening, and then gives the terminal to the operator's editor: a
// listener that nobody reads keeps VACUUM from its work.
func (m *Model) lend(editor request.Editor) tea.Cmd {
	send := m.env.send
	return m.begin(func() tea.Msg {
		send.stop()
		return lentMsg(editor)
	})
}

// lentMsg says that the terminal can be given away.
type lentMsg request.Editor

func (msg lentMsg) apply(m *Model) tea.Cmd {
	m.suspended = true
	answer := m.expect()
	return m.env.edit(msg.File, func(err error) tea.Msg { return answer(returnedMsg{msg.Ended(err)}) })
}

// returnedMsg says that the terminal has been given back, and what came of that.
type returnedMsg struct{ then tea.Msg }

func (msg returnedMsg) apply(m *Model) tea.Cmd {
	m.suspended = false
	m.polling.Need()
	return tea.Batch(m.request(msg.then), m.env.send.resume())
}
