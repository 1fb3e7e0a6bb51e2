package tui

import (
	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/screen"
)

const (
	// historyMax bounds the views that can be gone back to, and backMax the
	// screens that esc goes back to.
	historyMax = 50
	backMax    = 20
)

// visited is a view that was seen, and the message that brings it back.
type visited struct {
	name  screen.Name
	place tea.Msg
}

func (m *Model) here() visited { return visited{m.at, m.current().Selected().Place} }

// remember keeps the view that is about to be left. There is no way forward from
// it any more.
func (m *Model) remember() {
	m.past = append(m.past, m.here())
	m.past = m.past[max(len(m.past)-historyMax, 0):]
	m.ahead = nil
}

// show opens a screen; esc leads back.
func (m *Model) show(name screen.Name) {
	if m.at == name {
		return
	}
	m.remember()
	m.back = append(m.back, m.at)
	m.back = m.back[max(len(m.back)-backMax, 0):]
	m.turnTo(name)
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
	m.back = nil
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
	if last := len(m.back) - 1; last >= 0 {
		m.remember()
		name := m.back[last]
		m.back = m.back[:last]
		m.turnTo(name)
	}
	return nil
}

// backward and forward go through the views that were seen.
func (m *Model) backward() tea.Cmd { return m.travel(&m.past, &m.ahead) }
func (m *Model) forward() tea.Cmd  { return m.travel(&m.ahead, &m.past) }

func (m *Model) travel(from, to *[]visited) tea.Cmd {
	last := len(*from) - 1
	if last < 0 {
		return m.request(request.Tell{Text: "there is no further view in the history"})
	}
	v := (*from)[last]
	*from, *to = (*from)[:last], append(*to, m.here())
	m.turnTo(v.name)
	m.back = nil
	if v.name == screen.Job {
		m.back = []screen.Name{screen.Jobs}
	}
	if v.place == nil {
		return nil
	}
	return m.toScreen(v.place)
}
