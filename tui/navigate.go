package tui

import (
	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/screen"
)

// here is the view that is shown.
func (m *Model) here() visited { return visited{m.at, m.current().Selected().Place} }

// show opens a screen; esc leads back.
func (m *Model) show(name screen.Name) {
	if m.at != name {
		m.history.open(m.here())
		m.turnTo(name)
	}
}

// turnTo makes a screen the one that is shown.
func (m *Model) turnTo(name screen.Name) {
	m.current().Update(screen.Left{})
	m.at = name
	m.polling.Need()
}

// showTop opens one of the numbered screens.
func (m *Model) showTop(name screen.Name) tea.Cmd {
	m.show(name)
	m.history.back = nil
	return nil
}

// showJob shows a job in detail.
func (m *Model) showJob(id int64) tea.Cmd {
	m.show(screen.Job)
	return m.toScreen(screen.ShowJob{ID: id})
}

// showJobs shows the jobs that match a filter, which has been checked. Without a
// state in the filter, the operator's own keeps the state that the list is about.
func (m *Model) showJobs(match string, stay bool) tea.Cmd {
	m.show(screen.Jobs)
	return m.toScreen(screen.ShowJobs{Match: match, Stay: stay})
}

// leave goes back: what esc means on the screen, then the screen before.
func (m *Model) leave() tea.Cmd {
	if asked := m.current().Update(screen.Back{}); asked != nil {
		return m.request(asked)
	}
	if name, found := m.history.escape(m.here()); found {
		m.turnTo(name)
	}
	return nil
}

// travel goes through the views that were seen, one way or the other.
func (m *Model) travel(way func(here visited) (visited, bool)) tea.Cmd {
	there, found := way(m.here())
	if !found {
		return m.request(request.Tell{Text: "there is no further view in the history"})
	}
	m.turnTo(there.name)
	if there.place == nil {
		return nil
	}
	return m.toScreen(there.place)
}
