package screen

import (
	"encoding/json"
	"fmt"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/filter"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/widget"
)

// ErrorList is the screen with the errors of late: jobs of a queue that failed
// with the same words, the most frequent first.
type ErrorList struct{ table }

// errorRows are the groups by queue and error.
type errorRows struct{ *data.Facts }

func (r errorRows) Len() int          { return len(r.Failures) }
func (r errorRows) Name(i int) string { return r.Failures[i].Queue + "\n" + r.Failures[i].Error }

// NewErrors makes the screen.
func NewErrors(kit Kit) *ErrorList {
	return &ErrorList{table{base: base{Kit: kit}, rows: errorRows{kit.Facts}, panel: data.Failures}}
}

// The lines of the screen that are no rows.
const (
	errorsHead   = 3 // what is shown, a line, and the header
	errorsDetail = 4 // the selected error, with the line that parts it
)

// SetSize gives the groups what the detail leaves.
func (s *ErrorList) SetSize(cells, lines int) {
	s.base.SetSize(cells, lines)
	s.setHeight(errorsHead, max(lines-errorsHead-errorsDetail, 1))
}

// Wants are the failures, and how many there were in all.
func (s *ErrorList) Wants() []data.Want { return data.Wants(data.Failures, data.Minutes) }

// selected is the group under the cursor, or nil.
func (s *ErrorList) selected() *jobq.Failure {
	if len(s.Facts.Failures) == 0 {
		return nil
	}
	return &s.Facts.Failures[s.at()]
}

// match is the filter that finds the jobs of a group.
func match(f jobq.Failure) string {
	text := "state:failed queue:" + quoted(f.Queue)
	if f.Error != "" {
		text += " " + filter.Equal("err", f.Error).String()
	}
	return text
}

// Actions are the moves, and to open the jobs of the group.
func (s *ErrorList) Actions() map[string]Action {
	actions := s.moves()
	actions["open"] = Action{Run: func() tea.Msg {
		if f := s.selected(); f != nil {
			return request.Jobs{Match: match(*f)}
		}
		return nil
	}}
	return actions
}

// Selected is what can be copied and written to a file.
func (s *ErrorList) Selected() Selection {
	selection := Selection{Noun: "errors", Rows: func() []json.RawMessage { return encoded(s.Facts.Failures) }}
	if f := s.selected(); f != nil {
		selection.List = "list " + format.ShellWord(match(*f))
	}
	return selection
}

// View draws the groups, and all of the selected error.
func (s *ErrorList) View() View {
	if !s.Facts.Known(data.Failures) {
		return View{Lines: []string{"", " " + s.waiting(data.Failures)}, Cursor: -1}
	}
	columns := widget.ColumnsFor([]widget.Column{
		widget.Right("JOBS", 7, 0), widget.Left("QUEUE", 16, 0), widget.Right("FIRST", 7, 1), widget.Left("ERROR", 0, 0),
	}, s.cells-2, 16)
	lines := []string{" " + s.head(), s.Paint.Rule(s.cells), s.Paint.Header(columns, s.cells)}
	first, end := s.list.Shown(s.rows)
	for i := first; i < end; i++ {
		f := s.Facts.Failures[i]
		lines = append(lines, s.Paint.Row(columns, s.cells, s.marks(i == s.at()), map[string]string{
			"JOBS": format.Number(f.Jobs), "QUEUE": widget.Clean(f.Queue), "FIRST": format.Ago(s.Paint.Now().Sub(f.Since)), "ERROR": widget.Clean(f.Error),
		}))
	}
	f := s.selected()
	if f == nil {
		return View{Lines: append(lines, "  "+s.Paint.Muted.Render("no job has failed in the last "+format.Ago(data.FailuresSpan))), Cursor: -1}
	}
	lines = append(lines, s.Paint.Rule(s.cells, widget.Clean(f.Queue)),
		" error    "+s.Paint.Error.Render(widget.Clean(f.Error)),
		fmt.Sprintf(" failed   %s, the first %s", format.Count(f.Jobs, "job"), format.When(f.Since, s.Paint.Now())),
		fmt.Sprintf(" %s shows the jobs; there %s selects all of them, and %s requeues them", s.Key("open"), s.Key("select-all"), s.Key("requeue")))
	return View{Lines: lines, Cursor: s.cursor()}
}

// head says how much of all failures the groups are.
func (s *ErrorList) head() string {
	var known, all int64
	queues := make(map[string]bool)
	for _, f := range s.Facts.Failures {
		known += f.Jobs
		queues[f.Queue] = true
	}
	for _, minute := range s.Facts.Minutes {
		queues[minute.Queue] = true
	}
	for queue := range queues {
		all += s.Facts.FailedOfLate(queue)
	}
	head := fmt.Sprintf("%s failed in the last %s", format.Count(all, "job"), format.Ago(data.FailuresSpan))
	if all > known {
		head += fmt.Sprintf(", %s of them with the errors below, the most frequent ones", format.Number(known))
	}
	return head
}

// Told is the list in words.
func (s *ErrorList) Told() []string {
	lines := []string{s.head()}
	for i, f := range s.Facts.Failures {
		lines = append(lines, toldRow(i, len(s.Facts.Failures), i == s.at(), fmt.Sprintf("%s in %s, the first %s: %s", format.Count(f.Jobs, "job"),
			widget.Clean(f.Queue), format.When(f.Since, s.Paint.Now()), widget.Clean(f.Error))))
	}
	return lines
}
