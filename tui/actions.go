package tui

import (
	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/screen"
	"github.com/jobq-dev/jobq/tui/theme"
)

// actions are what the root does for commands: where we are, what lies over it, how
// all is shown, and the way out.
func (m *Model) actions() map[string]screen.Action {
	do := func(run func() tea.Cmd) screen.Action {
		return screen.Action{Run: func() tea.Msg { return request.Run{Run: run()} }}
	}
	ask := func(what func() tea.Msg) screen.Action { return screen.Action{Run: what} }
	top := func(name screen.Name) screen.Action { return do(func() tea.Cmd { return m.showTop(name) }) }
	contexts := ask(m.contexts)
	contexts.Disabled = m.env.noContexts
	return map[string]screen.Action{
		command.Overview: top(screen.Overview), command.Jobs: top(screen.Jobs), command.Queues: top(screen.Queues),
		command.Workers: top(screen.Workers), command.Schedules: top(screen.Schedules), command.Errors: top(screen.Errors), command.Audit: top(screen.Audit),
		command.Back:     do(m.leave),
		command.Backward: do(func() tea.Cmd { return m.travel(m.history.backward) }),
		command.Forward:  do(func() tea.Cmd { return m.travel(m.history.forward) }),

		command.Filter: ask(m.filter), command.Palette: ask(m.palette), command.Help: ask(m.help),
		command.Copy: ask(m.copies), command.Export: ask(m.exports), command.Contexts: contexts,

		command.Freeze: do(m.freeze), command.Refetch: do(m.refetch), command.Times: do(m.toggleTimes), command.Mouse: do(m.toggleMouse),
		command.Redraw: do(func() tea.Cmd { return tea.ClearScreen }), command.Suspend: do(m.suspend), command.Quit: do(m.quit),
	}
}

// freeze lets the screen stand still, or follow again.
func (m *Model) freeze() tea.Cmd {
	m.frozen = !m.frozen
	m.polling.Need()
	return nil
}

// refetch asks anew for all that is shown.
func (m *Model) refetch() tea.Cmd {
	for _, want := range m.wanted() {
		m.polling.Renew(want.Panel)
	}
	return nil
}

// toggleTimes shows times in UTC, or how long ago.
func (m *Model) toggleTimes() tea.Cmd {
	m.paint.Absolute = !m.paint.Absolute
	return nil
}

// toggleMouse takes the mouse, or gives it back to the terminal, with which
// text can be selected then.
func (m *Model) toggleMouse() tea.Cmd {
	m.look.mouse = !m.look.mouse
	if m.look.mouse {
		m.say("mouse: the wheel moves, a click selects; " + m.env.keyOf(command.Mouse) + " gives it back to the terminal")
	} else {
		m.say("mouse: given back to the terminal")
	}
	return nil
}

// suspend stops the program as the shell's job control does. It stops
// listening before: a stopped listener keeps VACUUM from removing anything in
// the whole database.
func (m *Model) suspend() tea.Cmd {
	m.suspended = true
	return tea.Sequence(m.env.send.pause(), tea.Suspend)
}

// quit ends the UI, or leaves a job that was opened from another screen.
func (m *Model) quit() tea.Cmd {
	if len(m.history.back) > 0 && m.at == screen.Job {
		return m.leave()
	}
	return tea.Quit
}

// setTheme changes the colours at once. auto asks the terminal again.
func (m *Model) setTheme(name string) tea.Cmd {
	m.look.style.Name = name
	m.restyle()
	if name == "" || name == theme.Auto {
		return tea.RequestBackgroundColor
	}
	return nil
}
