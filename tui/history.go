package tui

import tea "charm.land/bubbletea/v2"

// historyMax bounds the views that can be gone back to.
const historyMax = 50

// place is a view that was seen.
type place struct {
	screen screen
	job    int64
	tab    tab
	match  string
}

func (m *Model) place() place { return place{m.screen, m.job.id, m.jobs.tab, m.jobs.match} }

// remember keeps the view that is about to be left. What had been gone back
// from is not ahead any more.
func (m *Model) remember() {
	m.past = append(m.past, m.place())
	m.past = m.past[max(len(m.past)-historyMax, 0):]
	m.ahead = nil
}

// backward and forward go through the views that were seen.
func (m *Model) backward() tea.Cmd { return m.travel(&m.past, &m.ahead) }
func (m *Model) forward() tea.Cmd  { return m.travel(&m.ahead, &m.past) }

func (m *Model) travel(from, to *[]place) tea.Cmd {
	last := len(*from) - 1
	if last < 0 {
		m.say("no view there in the history")
		return nil
	}
	p := (*from)[last]
	*from, *to = (*from)[:last], append(*to, m.place())
	if p.screen == screenJobs && (p.tab != m.jobs.tab || p.match != m.jobs.match) {
		m.jobs.setTab(p.tab)
		m.jobs.setMatch(p.match)
	}
	m.back = nil
	if m.screen = p.screen; p.screen == screenJob {
		m.job.turnTo(p.job)
		m.back = []screen{screenJobs}
	}
	m.renew(m.wanted()...)
	return nil
}
