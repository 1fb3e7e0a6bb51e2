package screen

import (
	"cmp"
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

// auditDetail is the lines of the selected action: one that parts them, what it was
// about, who it was, and what became of it.
const auditDetail = 4

// SetSize gives the actions what their head and the selected one leave.
func (s *AuditList) SetSize(cells, lines int) {
	s.base.SetSize(cells, lines)
	s.setHeight(headLines, lines-headLines-auditDetail)
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
	actions[command.Open] = Action{Disabled: s.noJobs, Run: s.open}
	return actions
}

// noJobs says why there are no jobs of the action to open.
func (s *AuditList) noJobs() string {
	switch entry := s.selected(); {
	case entry == nil:
		return "nobody has acted yet"
	case len(entry.JobIDs) == 0:
		return "the action has changed no job"
	}
	return ""
}

func (s *AuditList) open() tea.Msg {
	entry := s.selected()
	if len(entry.JobIDs) == 1 {
		return request.Job{ID: entry.JobIDs[0]}
	}
	ids := make([]string, len(entry.JobIDs))
	for i, id := range entry.JobIDs {
		ids[i] = strconv.FormatInt(id, 10)
	}
	open := request.Jobs{Match: "id:" + strings.Join(ids, ",")}
	if entry.Done <= len(ids) {
		return open
	}
	return request.All{open, request.Tell{Text: fmt.Sprintf("the first %d of %s", len(ids), format.Count(entry.Done, "job"))}}
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
		widget.Left("WHAT", 0, 0).UpTo(50),
		widget.Left("WHO", 24, 1).UpTo(40),
		widget.Left("NOTE", 20, 2).UpTo(60),
	}, s.cells-2, 14)
	lines := []string{" " + s.head(), s.Paint.Header(columns, s.cells)}
	first, end := s.list.Shown(s.rows)
	for i := first; i < end; i++ {
		entry := s.Facts.Audit[i]
		lines = append(lines, s.Paint.Row(columns, s.cells, s.marks(i == s.at()), map[string]string{
			"ID": strconv.FormatInt(entry.ID, 10), "AT": s.Paint.Clock(entry.At), "ACTION": string(entry.Action),
			"DONE": jobsOf(entry, entry.Done), "NOT": jobsOf(entry, entry.Refused), "WHAT": widget.Clean(auditline.What(entry)),
			"WHO": widget.Clean(entry.Actor), "NOTE": widget.Clean(auditline.Note(entry)),
		}))
	}
	if len(s.Facts.Audit) == 0 {
		lines = append(lines, "  "+s.Paint.Muted.Render("nobody has acted on a job or a queue yet"))
	}
	return View{Lines: append(lines, s.detail()...), Cursor: s.cursor()}
}

// head says how many actions there are, which can be seen, and whether there are
// earlier ones.
func (s *AuditList) head() string {
	if len(s.Facts.Audit) < data.AuditMax {
		return "actions " + s.position()
	}
	return fmt.Sprintf("actions %s, the last ones; `jobq audit` lists those before", s.position())
}

// jobsOf is a number of jobs, where the action was about jobs.
func jobsOf(entry monitor.AuditEntry, jobs int) string {
	if !auditline.OnJobs(entry) {
		return ""
	}
	return format.Number(jobs)
}

// detail is the selected action with what the list may have cut.
func (s *AuditList) detail() []string {
	entry := s.selected()
	if entry == nil {
		return nil
	}
	what := fmt.Sprintf(" what      %s %s", entry.Action, widget.Clean(auditline.What(*entry)))
	if auditline.OnJobs(*entry) {
		what += fmt.Sprintf(": %s changed, %s left alone", format.Count(entry.Done, "job"), format.Number(entry.Refused))
	}
	return []string{
		s.Paint.Rule(s.cells, fmt.Sprintf("Action %d", entry.ID)), what,
		fmt.Sprintf(" who       %s, %s", widget.Clean(entry.Actor), format.When(entry.At, s.Paint.Now())),
		" note      " + cmp.Or(widget.Clean(auditline.Note(*entry)), "-"),
	}
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
