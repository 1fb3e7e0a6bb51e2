package tui

import (
	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/tui/widget"
)

// wheelRows is how far a turn of the wheel moves.
const wheelRows = 3

// toggleMouse takes the mouse, or gives it back to the terminal, with which
// text can be selected then.
func (m *Model) toggleMouse() tea.Cmd {
	m.look.mouse = !m.look.mouse
	if m.look.mouse {
		m.say("mouse: the wheel moves, a click selects; " + m.keyOf("mouse") + " gives it back to the terminal")
	} else {
		m.say("mouse: given back to the terminal")
	}
	return nil
}

func (m *Model) wheel(msg tea.MouseWheelMsg) tea.Cmd {
	switch {
	case m.overlay != nil:
		return nil
	case msg.Button == tea.MouseWheelDown:
		return m.move(wheelRows)
	case msg.Button == tea.MouseWheelUp:
		return m.move(-wheelRows)
	}
	return nil
}

// click moves the cursor to the row that was clicked on.
func (m *Model) click(msg tea.MouseClickMsg) tea.Cmd {
	r := m.rowsShown()
	row := msg.Y - r.top
	if m.overlay != nil || msg.Button != tea.MouseLeft || row < 0 || row >= r.count {
		return nil
	}
	return m.move(row - r.at)
}

// rows are where the rows of a screen are.
type rows struct {
	top   int // the line of the first one
	count int // on the screen
	at    int // the selected one, of those
}

// rowsShown are the rows of the screen; none where it has none.
func (m *Model) rowsShown() rows {
	const head = 3
	part := func(top, at, count, height int) rows {
		offset := widget.Window(0, at, count, height)
		return rows{top, min(height, count-offset), at - offset}
	}
	switch m.screen {
	case screenOverview:
		top := head + 2 + len(m.overviewHead())
		return part(top, m.queueAt(), len(m.queues), m.overviewQueues())
	case screenQueues:
		return part(head+2, m.queueAt(), len(m.queues), m.queueRows())
	case screenWorkers:
		return part(head+2, m.workerAt(), len(m.workers), m.workerRows())
	case screenAudit:
		return part(head+1, m.auditAt(), len(m.audit), m.auditRows())
	case screenJobs:
		j := &m.jobs
		if j.at() >= 0 {
			return rows{head + 4, min(j.visible, len(j.rows)-j.offset), j.at() - j.offset}
		}
	case screenJob:
	}
	return rows{}
}
