package screen

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/internal/auditline"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/widget"
)

// AuditList is the screen that says who did what.
type AuditList struct{ table }

// auditRows are the actions by their numbers.
type auditRows struct{ *data.Facts }

func (r auditRows) Len() int          { return len(r.Audit) }
func (r auditRows) Name(i int) string { return strconv.FormatInt(r.Audit[i].ID, 10) }

// NewAudit makes the screen.
func NewAudit(kit Kit) *AuditList {
	return &AuditList{table{base: base{Kit: kit}, rows: auditRows{kit.Facts}, panel: data.Audit}}
}

// SetSize gives the actions the whole screen, but for the header.
func (s *AuditList) SetSize(cells, lines int) {
	s.base.SetSize(cells, lines)
	s.setHeight(1, lines-1)
}

// Wants are the last actions.
func (s *AuditList) Wants() []data.Want { return data.Wants(data.Audit) }

// selected is the action under the cursor, or nil.
func (s *AuditList) selected() *monitor.AuditEntry {
	if len(s.Facts.Audit) == 0 {
		return nil
	}
	return &s.Facts.Audit[s.at()]
}

// Actions are the moves, and to open the jobs of the action.
func (s *AuditList) Actions() map[string]Action {
	actions := s.moves()
	actions[command.Open] = Action{Run: s.open}
	return actions
}

func (s *AuditList) open() tea.Msg {
	entry := s.selected()
	switch {
	case entry == nil, len(entry.JobIDs) == 0:
		return nil
	case len(entry.JobIDs) == 1:
		return request.Job{ID: entry.JobIDs[0]}
	}
	ids := make([]string, len(entry.JobIDs))
	for i, id := range entry.JobIDs {
		ids[i] = strconv.FormatInt(id, 10)
	}
	return request.Jobs{Match: "id:" + strings.Join(ids, ",")}
}

// Selected is the action under the cursor.
func (s *AuditList) Selected() Selection {
	return Selection{Entry: s.selected(), Noun: "actions", Rows: func() []json.RawMessage { return encoded(s.Facts.Audit) }}
}

// View draws the last actions.
func (s *AuditList) View() View {
	if !s.Facts.Known(data.Audit) {
		return View{Lines: []string{"", " " + s.waiting(data.Audit)}, Cursor: -1}
	}
	columns := widget.ColumnsFor([]widget.Column{
		widget.Right("ID", 7, 0),
		widget.Left("AT", 11, 0),
		widget.Left("ACTION", 8, 0),
		widget.Right("DONE", 6, 0),
		widget.Right("NOT", 5, 3),
		widget.Left("WHAT", 0, 0),
		widget.Left("WHO", 30, 2),
		widget.Left("NOTE", 20, 1),
	}, s.cells-2, 16)
	lines := []string{s.Paint.Header(columns, s.cells)}
	first, end := s.list.Shown(s.rows)
	for i := first; i < end; i++ {
		entry := s.Facts.Audit[i]
		lines = append(lines, s.Paint.Row(columns, s.cells, s.marks(i == s.at()), map[string]string{
			"ID": strconv.FormatInt(entry.ID, 10), "AT": s.Paint.Clock(entry.At), "ACTION": string(entry.Action),
			"DONE": format.Number(int64(entry.Done)), "NOT": format.Number(int64(entry.Refused)), "WHAT": widget.Clean(auditline.What(entry)),
			"WHO": widget.Clean(entry.Actor), "NOTE": widget.Clean(auditline.Note(entry)),
		}))
	}
	if len(s.Facts.Audit) == 0 {
		lines = append(lines, "  "+s.Paint.Muted.Render("nobody has acted on a job or a queue yet"))
	}
	return View{Lines: lines, Cursor: s.cursor()}
}

// Told is the list in words.
func (s *AuditList) Told() []string {
	lines := []string{fmt.Sprintf("the last %s", format.Count(int64(len(s.Facts.Audit)), "action"))}
	for i, entry := range s.Facts.Audit {
		lines = append(lines, toldRow(i, len(s.Facts.Audit), i == s.at(), fmt.Sprintf("%d, %s %s by %s, %d done, %s, %s", entry.ID, entry.Action,
			widget.Clean(auditline.What(entry)), widget.Clean(entry.Actor), entry.Done, s.Paint.Clock(entry.At), widget.Clean(auditline.Note(entry)))))
	}
	return lines
}
