package screen

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/widget"
)

// View draws the list and, where there is room, the job under the cursor.
func (s *JobList) View() View {
	lastMin := 16
	if !s.wide() && s.tab != tabAll {
		lastMin = 26 // of what the tab does not say
	}
	columns := widget.ColumnsFor(s.tableColumns(), s.cells-2, lastMin)
	lines := []string{s.tabs(), s.filterLine(), s.Paint.Rule(s.cells), s.Paint.Header(columns, s.cells)}
	for i := s.offset; i < s.offset+s.visible; i++ {
		switch {
		case i < len(s.rows):
			lines = append(lines, s.row(columns, s.rows[i]))
		case i == 0:
			lines = append(lines, "  "+s.noJobs())
		default:
			lines = append(lines, "")
		}
	}
	lines = append(lines, s.note())
	if s.preview > 0 {
		lines = append(lines, s.previewOf()...)
	}
	cursor := -1
	if at := s.at(); at >= 0 {
		cursor = jobsHead + at - s.offset
	}
	return View{Lines: lines, Cursor: cursor}
}

// note is what is to be said about the list as a whole.
func (s *JobList) note() string {
	switch {
	case s.toEnd:
		return s.Paint.Muted.Render(" " + s.Paint.Spinner() + " going to the end of the list")
	case s.above > 0:
		return fmt.Sprintf(" %s %s new above (%s jumps to the top and follows)", s.Paint.Up, format.CappedAt(int64(s.above), pageSize), s.Key(command.Top))
	case s.recent && !s.question().goesOn():
		return s.Paint.Warn.Render(fmt.Sprintf(" only the newest %s jobs were searched: sort by id to search on, or name a state or a queue", format.Number(recentJobs)))
	case s.recent:
		return s.searchNote()
	case len(s.rows) >= rowsMax:
		return s.Paint.Muted.Render(fmt.Sprintf(" the first %d are kept here: filter with %s to look further", len(s.rows), s.Key(command.Filter)))
	}
	return ""
}

// searchNote says how far the search has come; empty when all jobs were searched.
func (s *JobList) searchNote() string {
	done, all, goesOn := s.searching()
	switch {
	case !s.known:
		return s.Paint.Muted.Render(fmt.Sprintf(" searching the newest %s jobs first: name a state or a queue to be faster", format.Number(recentJobs)))
	case !goesOn:
		return ""
	case s.stopped != "":
		return s.Paint.Warn.Render(fmt.Sprintf(" %d%% of all jobs searched, and then: %s; %s searches on", done*100/all, s.stopped, s.Key(command.End)))
	case s.more:
		return s.Paint.Muted.Render(fmt.Sprintf(" %s searching: %d%% of all jobs so far, the newest first; name a state or a queue to be faster", s.Paint.Spinner(), done*100/all))
	}
	return s.Paint.Muted.Render(fmt.Sprintf(" %d%% of all jobs searched, the newest first; %s searches on", done*100/all, s.Key(command.End)))
}

func (s *JobList) noJobs() string {
	if !s.known || s.Facts.Err(data.Page) != nil {
		return s.waiting(data.Page)
	}
	if _, _, goesOn := s.searching(); goesOn || s.recent && !s.question().goesOn() {
		return s.Paint.Muted.Render("none found yet")
	}
	if s.match == "" {
		return s.Paint.Muted.Render("there are no such jobs")
	}
	if s.tab != tabAll {
		return s.Paint.Muted.Render(fmt.Sprintf("no %s job matches; %s and %s show other states, %s clears the filter",
			strings.ToLower(tabNames[s.tab]), s.Key(command.PreviousTab), s.Key(command.NextTab), s.Key(command.Back)))
	}
	return s.Paint.Muted.Render("no job matches; " + s.Key(command.Back) + " clears the filter")
}

// tabs are the states with how many jobs are in each. With a filter, only the one
// that is shown has a number: the others were not counted.
func (s *JobList) tabs() string {
	t := s.Facts.Totals()
	counts := [tabEnd]string{
		"", t.AvailableText(), format.Capped(t.Scheduled), format.Number(t.Running + t.Claimed), format.Capped(t.Retrying),
		format.Capped(t.Failed), format.Capped(t.Cancelled), "",
	}
	if !s.Facts.Known(data.Queues) || s.match != "" {
		counts = [tabEnd]string{}
	}
	if s.match != "" && s.total >= 0 || s.total >= jobq.CountMax && counts[s.tab] != "" {
		counts[s.tab] = s.totalText()
	}
	line := ""
	for i := range tabEnd {
		name, value := tabNames[i], counts[i]
		if !s.wide() {
			name = tabShort[i]
			if thousands, rest, found := strings.Cut(value, ","); found {
				value = thousands + "." + rest[:1] + "k"
			}
		}
		if value != "" && value != "0" && !s.narrow() {
			name += " " + value
		}
		if i == s.tab {
			line += " " + s.Paint.Selected.Render("["+name+"]")
		} else {
			line += "  " + name
		}
	}
	return line
}

// totalText is how many jobs match, and never less than are there to be seen:
// they were counted a while ago.
func (s *JobList) totalText() string {
	loaded := int64(len(s.rows))
	switch {
	case s.total < 0 && s.next == "":
		return format.Number(loaded)
	case s.total < 0:
		return "?"
	case s.total >= jobq.CountMax && s.match == "" && s.tab == tabAvailable:
		return s.Facts.Totals().AvailableText()
	case s.total >= jobq.CountMax && s.about > jobq.CountMax:
		return format.About(max(s.about, loaded))
	case s.total >= loaded:
		return format.Capped(s.total)
	case s.next != "":
		return format.CappedAt(loaded, loaded)
	}
	return format.Number(loaded)
}

func (s *JobList) filterLine() string {
	left := " " + s.Key(command.Filter) + " " + widget.Clean(s.match)
	if s.match == "" {
		left = s.Paint.Muted.Render(" " + s.Key(command.Filter) + " to filter")
	}
	var right []string
	switch {
	case s.counting:
		right = append(right, s.Paint.Muted.Render(s.Paint.Spinner()+" counting all that match"))
	case s.all != nil:
		right = append(right, s.Paint.Warn.Render("all "+format.OrMore(s.all.Snapshot.Count, s.all.Snapshot.More)+" matching selected"))
	case len(s.marks) > 0:
		right = append(right, fmt.Sprintf("%d marked", len(s.marks)))
	}
	if len(s.rows) > 0 {
		right = append(right, fmt.Sprintf("%d-%d of %s", s.offset+1, min(s.offset+s.visible, len(s.rows)), s.totalText()))
	}
	return s.Paint.Spread(left, "  "+strings.Join(append(right, s.order().title), "  ")+" ", s.cells)
}

// tableColumns are the columns of the list. There are others to choose, which may
// cost the error its place.
func (s *JobList) tableColumns() []widget.Column {
	last := "LAST ERROR"
	if s.tab == tabRunning {
		last = "PROGRESS"
	}
	age := widget.Right("AGE", 7, 0)
	if s.Paint.Absolute {
		age = widget.Right("AT (UTC)", 11, 0)
	}
	if s.columns && s.cells < allFrom {
		return []widget.Column{
			widget.Right("ID", 12, 0),
			widget.Left("STATE", 9, 2),
			widget.Left("QUEUE", 11, 1),
			widget.Left("KIND", 20, 0),
			widget.Right("TRY", 6, 6),
			age,
			widget.Right("PRIO", 5, 1),
			widget.Right("CREATED", 11, 1),
			widget.Left("WORKER", 20, 3),
			widget.Left("TAGS", 12, 4),
			widget.Left(last, 0, 5),
		}
	}
	columns := []widget.Column{
		widget.Right("ID", 12, 0),
		widget.Left("STATE", 9, 2),
		widget.Left("QUEUE", 11, 4).UpTo(30),
		widget.Left("KIND", 20, 0).UpTo(32),
		widget.Right("TRY", 6, 1),
		age,
		widget.Right("TOOK", 7, 5),
	}
	switch {
	case s.cells >= allFrom:
		columns = append(columns, widget.Right("PRIO", 5, 9), widget.Right("CREATED", 11, 8), widget.Left("WORKER", 20, 7), widget.Left("TAGS", 12, 6).UpTo(20))
	case !s.wide() && s.tab != tabAll: // the tab says it, and the error needs the room
		columns = slices.Delete(columns, 1, 2)
	}
	return append(columns, widget.Left(last, 0, 3).UpTo(40))
}

// allFrom is the width from which there is room for all columns at once.
const allFrom = 180

func (s *JobList) row(columns []widget.Column, job *jobq.Job) string {
	marks := []byte("  ")
	if job.ID == s.cursor {
		marks[0] = '>'
	}
	if s.marks[job.ID] || s.all != nil {
		marks[1] = '*'
	}
	now := s.Paint.Now()
	values := map[string]string{
		"ID": strconv.FormatInt(job.ID, 10), "STATE": s.Paint.State(job.State).Render(format.State(job)), "QUEUE": widget.Clean(job.Queue),
		"KIND": widget.Clean(job.Kind), "TRY": format.Attempts(job), "AGE": format.Age(job, now), "AT (UTC)": s.Paint.Clock(format.Since(job)),
		"PRIO": strconv.Itoa(int(job.Priority)), "CREATED": s.Paint.Clock(job.CreatedAt), "WORKER": widget.Clean(job.LeaseOwner),
		"TAGS": widget.Clean(strings.Join(job.Tags, ",")), "TOOK": format.Duration(job, now), "LAST ERROR": format.LastError(job), "PROGRESS": s.progress(job.Progress),
	}
	if !s.left[job.ID].IsZero() {
		for name, value := range values {
			values[name] = s.Paint.Muted.Render(value)
		}
		values["STATE"] = s.Paint.Muted.Render(string(job.State))
		values["LAST ERROR"] = s.Paint.Arrow + " " + format.State(job)
		values["PROGRESS"] = values["LAST ERROR"]
	}
	prefix := string(marks)
	if job.ID == s.cursor {
		prefix = s.Paint.Cursor.Render(prefix)
	}
	return s.Paint.Row(columns, s.cells, prefix, values)
}

// previewOf is the job under the cursor in a few lines.
func (s *JobList) previewOf() []string {
	job := s.selected()
	if job == nil {
		return []string{s.Paint.Rule(s.cells)}
	}
	lines := []string{s.Paint.Rule(s.cells, fmt.Sprintf("%d %s/%s", job.ID, widget.Clean(job.Queue), widget.Clean(job.Kind)))}
	if !s.story.of(job.ID) {
		return append(lines, " "+s.waiting(data.Job))
	}
	summary := s.summary(s.story)
	return append(lines, summary[:min(len(summary), previewSummary)]...)
}

// Told is the rows around the cursor in words.
func (s *JobList) Told() []string {
	about := "jobs"
	if s.tab != tabAll {
		about = strings.ToLower(tabNames[s.tab]) + " jobs"
	}
	if s.match != "" {
		about += " that match " + widget.Clean(s.match)
	}
	total := "uncounted"
	if s.total >= 0 {
		total = s.totalText() + " in all"
	}
	lines := []string{about, total + ", " + s.order().title}
	switch {
	case s.counting:
		lines = append(lines, "counting all that match")
	case s.all != nil:
		lines = append(lines, "all "+format.OrMore(s.all.Snapshot.Count, s.all.Snapshot.More)+" that match are selected")
	case len(s.marks) > 0:
		lines = append(lines, fmt.Sprintf("%d marked", len(s.marks)))
	}
	for i := s.offset; i < min(s.offset+s.visible, len(s.rows)); i++ {
		text := s.toldOne(s.rows[i])
		if s.marks[s.rows[i].ID] {
			text += ", marked"
		}
		lines = append(lines, toldRow(i, len(s.rows), s.rows[i].ID == s.cursor, text))
	}
	return lines
}

// Above says whether there are new jobs above the list.
func (s *JobList) Above() bool { return s.above > 0 }
