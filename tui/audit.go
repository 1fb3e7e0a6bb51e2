package tui

import (
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/auditline"
)

func (m *Model) auditBody() []string {
	if m.polls[panelAudit].at.IsZero() {
		return []string{"", " " + m.waiting(panelAudit)}
	}
	columns := columnsFor([]column{
		{"ID", 7, true, 0},
		{"AT", 11, false, 0},
		{"ACTION", 8, false, 0},
		{"DONE", 6, true, 0},
		{"REF", 5, true, 3},
		{"WHAT", 0, false, 0},
		{"WHO", 30, false, 2},
		{"NOTE", 20, false, 1},
	}, m.width-2, 16)
	lines := []string{m.tableHeader(columns, m.width)}
	height := m.auditRows()
	at := m.auditAt()
	offset := window(0, at, len(m.audit), height)
	for i := offset; i < min(offset+height, len(m.audit)); i++ {
		entry := m.audit[i]
		marks := "  "
		if i == at {
			marks = bold("> ")
		}
		lines = append(lines, m.tableRow(columns, m.width, marks, map[string]string{
			"ID": strconv.FormatInt(entry.ID, 10), "AT": m.clock(entry.At), "ACTION": string(entry.Action),
			"DONE": number(int64(entry.Done)), "REF": number(int64(entry.Refused)), "WHAT": auditWhat(entry),
			"WHO": clean(entry.Actor), "NOTE": auditNote(entry),
		}))
	}
	if len(m.audit) == 0 {
		lines = append(lines, "  "+dim("nobody has acted on a job or a queue yet"))
	}
	return lines
}

// auditRows is how many actions the screen has room for.
func (m *Model) auditRows() int { return m.layout().body - 1 }

// auditWhat and auditNote are what the action was about and what became of it,
// no longer than any other text from the database.
func auditWhat(entry jobq.AuditEntry) string { return clean(auditline.What(entry)) }
func auditNote(entry jobq.AuditEntry) string { return clean(auditline.Note(entry)) }

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
