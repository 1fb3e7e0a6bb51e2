package tui

import (
	"context"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
)

// move moves the cursor of the screen.
func (m *Model) move(by int) tea.Cmd {
	switch m.screen {
	case screenOverview, screenQueues:
		m.moveQueue(by)
	case screenWorkers:
		m.moveWorker(by)
	case screenAudit:
		m.moveAudit(by)
	case screenJob:
		if m.job.output || m.job.focused {
			m.job.scroll = min(max(m.job.scroll-by, 0), len(m.outputText()))
		} else {
			m.job.run = min(max(m.job.run+by, 0), max(len(m.job.story.runs)-1+m.job.under(), 0))
		}
	case screenJobs:
		was := m.jobs.cursor
		m.jobs.move(by)
		m.jobs.stretch()
		if was != m.jobs.cursor {
			m.renew(panelJob)
		}
		if m.jobs.more {
			m.need(panelPage)
		}
	}
	return nil
}

func (m *Model) goTop() tea.Cmd {
	if m.screen != screenJobs {
		return m.move(-1_000_000)
	}
	m.jobs.top()
	m.renew(panelPage, panelJob)
	return nil
}

// open opens what is under the cursor.
func (m *Model) open() tea.Cmd {
	switch m.screen {
	case screenOverview, screenQueues:
		return m.openQueue()
	case screenWorkers:
		return m.openWorker()
	case screenAudit:
		return m.openAudit()
	case screenJobs:
		return m.openJob(m.jobs.previewed())
	case screenJob:
		m.job.output, m.job.scroll = !m.job.output, 0
	}
	return nil
}

// neighbour opens the job beside this one in the list.
func (m *Model) neighbour(by int) tea.Cmd {
	at := m.jobs.indexOf(m.job.id) + by
	if m.jobs.indexOf(m.job.id) < 0 || at < 0 || at >= len(m.jobs.rows) {
		m.say("no job there in the list")
		return nil
	}
	m.jobs.move(at - m.jobs.at())
	return m.openJob(m.jobs.rows[at].ID)
}

func noJob(m *Model) string {
	if m.jobs.selected() == nil {
		return "no job is selected"
	}
	return ""
}

// mark marks the job under the cursor, by its id, and goes on to the next.
func (m *Model) mark() tea.Cmd {
	id := m.jobs.cursor
	m.jobs.ranged = nil
	if m.jobs.all = nil; m.jobs.marks[id] {
		delete(m.jobs.marks, id)
	} else {
		m.jobs.marks[id] = true
	}
	return m.move(1)
}

func (m *Model) markLoaded() tea.Cmd {
	marked := len(m.jobs.marks) > 0
	if m.jobs.unmark(); marked {
		return nil
	}
	for _, row := range m.jobs.rows {
		m.jobs.marks[row.ID] = true
	}
	m.jobs.follow = false
	return nil
}

// selectedMsg is what matched the filter when all of it was selected.
type selectedMsg struct {
	all allMatching
	err error
}

// selectAll selects what matches the filter at this moment, by the clock of the
// database: what is counted now is what an action will be about.
func (m *Model) selectAll() tea.Cmd {
	m.jobs.unmark()
	m.jobs.follow, m.jobs.counting = false, true
	r, match := m.env.reader, m.jobs.filterText()
	return m.begin(func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), queryTimeout)
		defer cancel()
		snapshot, err := r.BulkSnapshot(ctx, "", jobq.Filter{Match: match}) // which action is not known yet
		return selectedMsg{allMatching{match, snapshot}, err}
	})
}

// selected shows the selection, unless the list is about other jobs by now or
// some were marked meanwhile.
func (m *Model) selected(msg selectedMsg) {
	m.jobs.counting = false
	switch {
	case msg.err != nil:
		m.say("select-all: " + shortError(msg.err))
	case m.jobs.filterText() == msg.all.filter && len(m.jobs.marks) == 0:
		m.jobs.all = &msg.all
	}
}

// suspend stops the program as the shell's job control does. It stops
// listening before: a stopped listener keeps VACUUM from removing anything in
// the whole database.
func (m *Model) suspend() tea.Cmd {
	m.suspended = true
	return tea.Sequence(m.env.send.pause(), tea.Suspend)
}
