package tui

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/tui/widget"
)

func (m *Model) jobsBody() []string {
	j := &m.jobs
	l := m.layout()
	lines := []string{m.jobTabs(), m.filterLine(), m.paint.Rule(m.width)}
	height := l.body - len(lines) - 2 - l.preview
	if l.preview > 0 {
		height--
	}
	height = max(height, 1)
	if j.visible = height; j.at() >= 0 {
		j.offset = widget.Window(j.offset, j.at(), len(j.rows), height)
	}
	columns := widget.ColumnsFor(m.jobColumns(), m.width-2, 16)
	lines = append(lines, m.paint.Header(columns, m.width))
	for i := j.offset; i < j.offset+height; i++ {
		switch {
		case i < len(j.rows):
			lines = append(lines, m.jobRow(columns, j.rows[i]))
		case i == 0:
			lines = append(lines, "  "+m.noJobs())
		default:
			lines = append(lines, "")
		}
	}
	switch {
	case j.above > 0:
		count := strconv.Itoa(j.above)
		if j.above >= pageSize {
			count += "+"
		}
		lines = append(lines, fmt.Sprintf(" %s %s new above (%s jumps to the top and follows)", m.paint.Up, count, m.keyOf("top")))
	case j.recent:
		lines = append(lines, m.paint.Warn.Render(fmt.Sprintf(" only the newest %s jobs were searched: name a state or a queue to look further", format.Number(recentJobs))))
	case len(j.rows) >= rowsMax:
		lines = append(lines, m.paint.Muted.Render(fmt.Sprintf(" the first %d are kept here: filter with %s to look further", rowsMax, m.keyOf("filter"))))
	default:
		lines = append(lines, "")
	}
	if l.preview > 0 {
		lines = append(lines, m.preview()...)
	}
	return lines
}

func (m *Model) noJobs() string {
	if m.polls[panelPage].at.IsZero() || m.polls[panelPage].err != nil {
		return m.waiting(panelPage)
	}
	if m.jobs.match == "" {
		return m.paint.Muted.Render("no such jobs")
	}
	return m.paint.Muted.Render("no job matches; " + m.keyOf("back") + " clears the filter")
}

func (m *Model) jobTabs() string {
	t := m.totals()
	counts := [tabEnd]string{"", format.Capped(t.available), format.Capped(t.scheduled), format.Number(t.running), format.Capped(t.retrying), format.Capped(t.failed), format.Capped(t.cancelled), ""}
	if m.polls[panelQueues].at.IsZero() {
		counts = [tabEnd]string{}
	}
	line := ""
	for i := range tabEnd {
		name, value := tabNames[i], counts[i]
		if !m.layout().wide {
			name = [tabEnd]string{"All", "Avail", "Sched", "Run", "Retry", "Fail", "Canc", "Done"}[i]
			if thousands, _, found := strings.Cut(value, ","); found {
				value = thousands + "k"
			}
		}
		if value != "" && value != "0" && !m.layout().narrow {
			name += " " + value
		}
		if i == m.jobs.tab {
			line += " " + m.paint.Selected.Render("["+name+"]")
		} else {
			line += "  " + name
		}
	}
	return line
}

func (m *Model) filterLine() string {
	j := &m.jobs
	left := " " + m.keyOf("filter") + " " + widget.Clean(j.match)
	if j.match == "" {
		left = m.paint.Muted.Render(" " + m.keyOf("filter") + " to filter")
	}
	var right []string
	switch {
	case j.all != nil:
		right = append(right, m.paint.Warn.Render("all "+format.Capped(j.all.snapshot.Count)+" matching selected"))
	case len(j.marks) > 0:
		right = append(right, fmt.Sprintf("%d marked", len(j.marks)))
	}
	if len(j.rows) > 0 {
		total := "?"
		if j.total >= 0 {
			total = format.Capped(j.total)
		}
		right = append(right, fmt.Sprintf("%d-%d of %s", j.offset+1, min(j.offset+j.visible, len(j.rows)), total))
	}
	return m.paint.Spread(left, strings.Join(right, "  ")+"  "+j.order().title+" ", m.width)
}

// jobColumns are the columns of the list. Wide has others, which may cost the
// error its place.
func (m *Model) jobColumns() []widget.Column {
	last := "LAST ERROR"
	if m.jobs.tab == tabRunning {
		last = "PROGRESS"
	}
	age := widget.Right("AGE", 7, 0)
	if m.paint.Absolute {
		age = widget.Right("AT (UTC)", 11, 0)
	}
	if m.look.wide {
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
	return []widget.Column{
		widget.Right("ID", 12, 0),
		widget.Left("STATE", 9, 2),
		widget.Left("QUEUE", 11, 4),
		widget.Left("KIND", 20, 0),
		widget.Right("TRY", 6, 1),
		age,
		widget.Right("TOOK", 7, 5),
		widget.Left(last, 0, 3),
	}
}

func (m *Model) jobRow(columns []widget.Column, job *jobq.Job) string {
	j := &m.jobs
	marks := []byte("  ")
	if job.ID == j.cursor {
		marks[0] = '>'
	}
	if j.marks[job.ID] || j.all != nil {
		marks[1] = '*'
	}
	now := m.env.now()
	state := m.paint.State(job.State).Render(format.State(job))
	values := map[string]string{
		"ID": strconv.FormatInt(job.ID, 10), "STATE": state, "QUEUE": widget.Clean(job.Queue), "KIND": widget.Clean(job.Kind),
		"TRY": format.Attempts(job), "AGE": jobAge(job, now), "AT (UTC)": m.paint.Clock(format.Since(job)),
		"PRIO": strconv.Itoa(int(job.Priority)), "CREATED": m.paint.Clock(job.CreatedAt), "WORKER": widget.Clean(job.LeaseOwner), "TAGS": widget.Clean(strings.Join(job.Tags, ",")),
		"TOOK": format.Duration(job, now), "LAST ERROR": widget.FirstLine(job.LastError), "PROGRESS": m.progressText(job.Progress),
	}
	if !j.left[job.ID].IsZero() {
		for name, value := range values {
			values[name] = m.paint.Muted.Render(value)
		}
		values["STATE"] = m.paint.Muted.Render(string(job.State))
		values["LAST ERROR"] = m.paint.Arrow + " " + format.State(job)
		values["PROGRESS"] = values["LAST ERROR"]
	}
	prefix := string(marks)
	if job.ID == j.cursor {
		prefix = m.paint.Title.Render(prefix)
	}
	return m.paint.Row(columns, m.width, prefix, values)
}

func (m *Model) progressText(p *jobq.Progress) string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf("%s %3.0f%% %s %s", m.paint.Progress(float64(p.Percent)/100, 10), p.Percent, widget.Clean(p.Stage), widget.Clean(p.Message))
}

// jobAge is how long ago that was, or how far off it is.
func jobAge(job *jobq.Job, now time.Time) string {
	if job.State == jobq.Scheduled && job.RunAt.After(now) && job.StartedAt == nil {
		return "in " + format.Ago(job.RunAt.Sub(now))
	}
	return format.Ago(now.Sub(format.Since(job)))
}

// preview is the job under the cursor in a few lines.
func (m *Model) preview() []string {
	job := m.jobs.selected()
	if job == nil {
		return []string{m.paint.Rule(m.width)}
	}
	lines := []string{m.paint.Rule(m.width, fmt.Sprintf("%d %s/%s", job.ID, widget.Clean(job.Queue), widget.Clean(job.Kind)))}
	story := m.job.story
	if story.job == nil || story.job.ID != job.ID {
		return append(lines, " "+m.waiting(panelJob))
	}
	return append(lines, m.summary(story)...)
}
