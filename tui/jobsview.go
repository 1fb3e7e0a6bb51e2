package tui

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jobq-dev/jobq"
)

func (m *Model) jobsBody() []string {
	j := &m.jobs
	l := m.layout()
	lines := []string{m.jobTabs(), m.filterLine(), m.rule(m.width)}
	height := l.body - len(lines) - 2 - l.preview
	if l.preview > 0 {
		height--
	}
	height = max(height, 1)
	if j.visible = height; j.at() >= 0 {
		j.offset = window(j.offset, j.at(), len(j.rows), height)
	}
	columns := columnsFor(m.jobColumns(), m.width-2, 16)
	lines = append(lines, m.tableHeader(columns, m.width))
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
		lines = append(lines, fmt.Sprintf(" %s %s new above (%s jumps to the top and follows)", m.env.glyphs.up, count, m.keyOf("top")))
	case j.recent:
		lines = append(lines, styled(sgrYellow, fmt.Sprintf(" only the newest %s jobs were searched: name a state or a queue to look further", number(recentJobs))))
	case len(j.rows) >= rowsMax:
		lines = append(lines, dim(fmt.Sprintf(" the first %d are kept here: filter with %s to look further", rowsMax, m.keyOf("filter"))))
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
		return dim("no such jobs")
	}
	return dim("no job matches; " + m.keyOf("back") + " clears the filter")
}

func (m *Model) jobTabs() string {
	t := m.totals()
	counts := [tabEnd]string{"", capped(t.available), capped(t.scheduled), number(t.running), capped(t.retrying), capped(t.failed), capped(t.cancelled), ""}
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
			line += " " + styled(sgrReverse, "["+name+"]")
		} else {
			line += "  " + name
		}
	}
	return line
}

func (m *Model) filterLine() string {
	j := &m.jobs
	left := " " + m.keyOf("filter") + " " + clean(j.match)
	if j.match == "" {
		left = dim(" " + m.keyOf("filter") + " to filter")
	}
	var right []string
	switch {
	case j.all != nil:
		right = append(right, styled(sgrYellow, "all "+capped(j.all.snapshot.Count)+" matching selected"))
	case len(j.marks) > 0:
		right = append(right, fmt.Sprintf("%d marked", len(j.marks)))
	}
	if len(j.rows) > 0 {
		total := "?"
		if j.total >= 0 {
			total = capped(j.total)
		}
		right = append(right, fmt.Sprintf("%d-%d of %s", j.offset+1, min(j.offset+j.visible, len(j.rows)), total))
	}
	return m.spread(left, strings.Join(right, "  ")+"  "+j.order().title+" ", m.width)
}

// jobColumns are the columns of the list. Wide has others, which may cost the
// error its place.
func (m *Model) jobColumns() []column {
	last := "LAST ERROR"
	if m.jobs.tab == tabRunning {
		last = "PROGRESS"
	}
	age := column{"AGE", 7, true, 0}
	if m.look.absolute {
		age = column{"AT (UTC)", 11, true, 0}
	}
	if m.look.wide {
		return []column{
			{"ID", 12, true, 0},
			{"STATE", 9, false, 2},
			{"QUEUE", 11, false, 1},
			{"KIND", 20, false, 0},
			{"TRY", 6, true, 6},
			age,
			{"PRIO", 5, true, 1},
			{"CREATED", 11, true, 1},
			{"WORKER", 20, false, 3},
			{"TAGS", 12, false, 4},
			{last, 0, false, 5},
		}
	}
	return []column{
		{"ID", 12, true, 0},
		{"STATE", 9, false, 2},
		{"QUEUE", 11, false, 4},
		{"KIND", 20, false, 0},
		{"TRY", 6, true, 1},
		age,
		{"TOOK", 7, true, 5},
		{last, 0, false, 3},
	}
}

func (m *Model) jobRow(columns []column, job *jobq.Job) string {
	j := &m.jobs
	marks := []byte("  ")
	if job.ID == j.cursor {
		marks[0] = '>'
	}
	if j.marks[job.ID] || j.all != nil {
		marks[1] = '*'
	}
	now := m.env.now()
	state := styled(stateColour(job.State), stateWord(job))
	tookText := ""
	if job.StartedAt != nil && job.FinishedAt != nil {
		tookText = took(job.FinishedAt.Sub(*job.StartedAt))
	} else if job.StartedAt != nil {
		tookText = took(now.Sub(*job.StartedAt))
	}
	values := map[string]string{
		"ID": strconv.FormatInt(job.ID, 10), "STATE": state, "QUEUE": clean(job.Queue), "KIND": clean(job.Kind),
		"TRY": fmt.Sprintf("%d/%d", min(attemptsShown(job), job.MaxAttempts), job.MaxAttempts), "AGE": jobAge(job, now), "AT (UTC)": m.clock(jobSince(job)),
		"PRIO": strconv.Itoa(int(job.Priority)), "CREATED": m.clock(job.CreatedAt), "WORKER": clean(job.LeaseOwner), "TAGS": clean(strings.Join(job.Tags, ",")),
		"TOOK": tookText, "LAST ERROR": firstLine(job.LastError), "PROGRESS": m.progressText(job.Progress),
	}
	if !j.left[job.ID].IsZero() {
		for name, value := range values {
			values[name] = dim(value)
		}
		values["STATE"] = dim(string(job.State))
		values["LAST ERROR"] = m.env.glyphs.arrow + " " + stateWord(job)
		values["PROGRESS"] = values["LAST ERROR"]
	}
	prefix := string(marks)
	if job.ID == j.cursor {
		prefix = bold(prefix)
	}
	return m.tableRow(columns, m.width, prefix, values)
}

func (m *Model) progressText(p *jobq.Progress) string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf("%s %3.0f%% %s %s", m.bar(float64(p.Percent)/100, 10), p.Percent, clean(p.Stage), clean(p.Message))
}

// attemptsShown counts the run under way too.
func attemptsShown(job *jobq.Job) int {
	if job.State == jobq.Running || job.State == jobq.Completed {
		return job.Attempts + 1
	}
	return job.Attempts
}

func stateWord(job *jobq.Job) string {
	switch {
	case job.State == jobq.Scheduled && job.Attempts > 0:
		return "retrying"
	case job.State == jobq.Running && job.CancelRequestedAt != nil:
		return "stopping"
	}
	return string(job.State)
}

// jobSince is since when the job has been in its state; when it is due for one
// that waits.
func jobSince(job *jobq.Job) time.Time {
	switch {
	case job.FinishedAt != nil:
		return *job.FinishedAt
	case job.StartedAt != nil:
		return *job.StartedAt
	}
	return job.RunAt
}

// jobAge is how long ago that was, or how far off it is.
func jobAge(job *jobq.Job, now time.Time) string {
	if job.State == jobq.Scheduled && job.RunAt.After(now) && job.StartedAt == nil {
		return "in " + ago(job.RunAt.Sub(now))
	}
	return ago(now.Sub(jobSince(job)))
}

// preview is the job under the cursor in a few lines.
func (m *Model) preview() []string {
	job := m.jobs.selected()
	if job == nil {
		return []string{m.rule(m.width)}
	}
	lines := []string{m.rule(m.width, fmt.Sprintf("%d %s/%s", job.ID, clean(job.Queue), clean(job.Kind)))}
	story := m.job.story
	if story.job == nil || story.job.ID != job.ID {
		return append(lines, " "+m.waiting(panelJob))
	}
	return append(lines, m.summary(story)...)
}
