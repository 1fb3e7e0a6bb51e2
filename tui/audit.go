package tui

import (
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/auditline"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/tui/widget"
)

func (m *Model) auditBody() []string {
	if m.polls[panelAudit].at.IsZero() {
		return []string{"", " " + m.waiting(panelAudit)}
	}
	columns := widget.ColumnsFor([]widget.Column{
		widget.Right("ID", 7, 0),
		widget.Left("AT", 11, 0),
		widget.Left("ACTION", 8, 0),
		widget.Right("DONE", 6, 0),
		widget.Right("REF", 5, 3),
		widget.Left("WHAT", 0, 0),
		widget.Left("WHO", 30, 2),
		widget.Left("NOTE", 20, 1),
	}, m.width-2, 16)
	lines := []string{m.paint.Header(columns, m.width)}
	height := m.auditRows()
	at := m.auditAt()
	offset := widget.Window(0, at, len(m.audit), height)
	for i := offset; i < min(offset+height, len(m.audit)); i++ {
		entry := m.audit[i]
		marks := "  "
		if i == at {
			marks = m.paint.Title.Render("> ")
		}
		lines = append(lines, m.paint.Row(columns, m.width, marks, map[string]string{
			"ID": strconv.FormatInt(entry.ID, 10), "AT": m.paint.Clock(entry.At), "ACTION": string(entry.Action),
			"DONE": format.Number(int64(entry.Done)), "REF": format.Number(int64(entry.Refused)), "WHAT": auditWhat(entry),
			"WHO": widget.Clean(entry.Actor), "NOTE": auditNote(entry),
		}))
	}
	if len(m.audit) == 0 {
		lines = append(lines, "  "+m.paint.Muted.Render("nobody has acted on a job or a queue yet"))
	}
	return lines
}

// auditRows is how many actions the screen has room for.
func (m *Model) auditRows() int { return m.layout().body - 1 }

// auditWhat and auditNote are what the action was about and what became of it,
// no longer than any other text from the database.
func auditWhat(entry jobq.AuditEntry) string { return widget.Clean(auditline.What(entry)) }
func auditNote(entry jobq.AuditEntry) string { return widget.Clean(auditline.Note(entry)) }

func (m *Model) auditAt() int { return m.cursor[screenAudit].in(len(m.audit), m.auditID) }

func (m *Model) auditID(i int) string { return strconv.FormatInt(m.audit[i].ID, 10) }

func (m *Model) moveAudit(by int) {
	m.cursor[screenAudit] = m.cursor[screenAudit].moved(by, len(m.audit), m.auditID)
}

// openAudit shows the jobs of an action.
func (m *Model) openAudit() tea.Cmd {
	if len(m.audit) == 0 {
		return nil
	}
	entry := m.audit[m.auditAt()]
	switch {
	case len(entry.JobIDs) == 1:
		return m.openJob(entry.JobIDs[0])
	case len(entry.JobIDs) > 1:
		ids := make([]string, len(entry.JobIDs))
		for i, id := range entry.JobIDs {
			ids[i] = strconv.FormatInt(id, 10)
		}
		m.show(screenJobs)
		m.jobs.setTab(tabAll)
		m.jobs.setMatch("id:" + strings.Join(ids, ","))
		m.renew(panelPage, panelVisible, panelCount)
	}
	return nil
}
