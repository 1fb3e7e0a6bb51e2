package tui

import (
	"fmt"
	"strings"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/tui/widget"
)

// told is the screen in lines of words, for those who hear it.
func (m *Model) told() []string {
	head := m.env.name
	if head == "" {
		head = "jobq"
	}
	if m.env.production {
		head += ", production"
	}
	if reason := m.writeDisabled(); reason != "" {
		head += ", nothing can be changed: " + reason
	}
	lines := []string{}
	if problem := m.problem(); problem != "" {
		lines = append(lines, problem)
	}
	switch m.screen {
	case screenOverview:
		lines = append(lines, "Overview of "+widget.Clean(head))
		lines = append(lines, m.toldTotals()...)
		lines = append(lines, m.toldQueues()...)
	case screenQueues:
		lines = append(lines, fmt.Sprintf("%d queues of %s", len(m.queues), widget.Clean(head)))
		lines = append(lines, m.toldQueues()...)
	case screenJobs:
		lines = append(lines, m.toldJobs(widget.Clean(head))...)
	case screenWorkers:
		lines = append(lines, fmt.Sprintf("%d workers of %s", len(m.workers), widget.Clean(head)))
		lines = append(lines, m.toldWorkers()...)
	case screenAudit:
		lines = append(lines, fmt.Sprintf("the last %d actions on %s", len(m.audit), widget.Clean(head)))
		for i, entry := range m.audit {
			lines = append(lines, m.toldRow(i, len(m.audit), i == m.auditAt(), fmt.Sprintf("%d, %s %s by %s, %d done, %s, %s",
				entry.ID, entry.Action, auditWhat(entry), widget.Clean(entry.Actor), entry.Done, m.paint.Clock(entry.At), auditNote(entry))))
		}
	case screenJob:
		lines = append(lines, m.toldJob()...)
	}
	return lines
}

// toldRow is a row with its number, by which it can be picked.
func (m *Model) toldRow(i, count int, selected bool, text string) string {
	row := fmt.Sprintf("%d of %d: %s", i+1, count, strings.TrimRight(text, ", "))
	if selected {
		row += ", selected"
	}
	return row
}

func (m *Model) toldTotals() []string {
	t, r := m.totals(), m.rates("")
	lines := []string{
		fmt.Sprintf("available %s, scheduled %s, running %s of %s slots, retrying %s, failed %s, cancelled %s", format.Capped(t.available), format.Capped(t.scheduled),
			format.Number(t.running), format.Number(t.slots), format.Capped(t.retrying), format.Capped(t.failed), format.Capped(t.cancelled)),
		fmt.Sprintf("in the last hour %s completed and %s failed; now %s a second, a run takes %s and a wait %s on average", format.Number(t.completed),
			format.Number(t.recentFailed), format.Rate(r.completed), format.Took(r.run), format.Took(r.wait)),
	}
	attention := m.attention()
	lines = append(lines, fmt.Sprintf("%d need attention", len(attention)))
	return append(lines, attention...)
}

func (m *Model) toldQueues() []string {
	lines := make([]string, len(m.queues))
	now := m.env.now()
	for i, q := range m.queues {
		text := fmt.Sprintf("%s, %s running, %s available, %s scheduled, %s retrying, %s failed", widget.Clean(q.Name), format.Number(q.Running),
			format.Capped(q.Available), format.Capped(q.Scheduled), format.Capped(q.Retrying), format.Capped(q.Failed))
		if q.HeadRunAt != nil {
			text += ", the oldest waits " + format.Ago(now.Sub(*q.HeadRunAt))
		}
		if q.PausedAt != nil {
			text += ", paused for " + format.Ago(now.Sub(*q.PausedAt))
		}
		lines[i] = m.toldRow(i, len(m.queues), i == m.queueAt(), text)
	}
	return lines
}

// toldJobs are the rows around the cursor.
func (m *Model) toldJobs(head string) []string {
	m.jobsBody() // decides which rows are shown
	j := &m.jobs
	about := "jobs"
	if j.tab != tabAll {
		about = strings.ToLower(tabNames[j.tab]) + " jobs"
	}
	if j.match != "" {
		about += " that match " + widget.Clean(j.match)
	}
	total := "uncounted"
	if j.total >= 0 {
		total = format.Capped(j.total) + " in all"
	}
	lines := []string{fmt.Sprintf("%s of %s, %s, %s", about, head, total, j.order().title)}
	switch {
	case j.all != nil:
		lines = append(lines, "all "+format.Capped(j.all.snapshot.Count)+" that match are selected")
	case len(j.marks) > 0:
		lines = append(lines, fmt.Sprintf("%d marked", len(j.marks)))
	}
	for i := j.offset; i < min(j.offset+j.visible, len(j.rows)); i++ {
		text := m.toldOne(j.rows[i])
		if j.marks[j.rows[i].ID] {
			text += ", marked"
		}
		lines = append(lines, m.toldRow(i, len(j.rows), j.rows[i].ID == j.cursor, text))
	}
	return lines
}

func (m *Model) toldOne(job *jobq.Job) string {
	when := jobAge(job, m.env.now())
	switch {
	case m.paint.Absolute:
		when = m.paint.Clock(format.Since(job)) + " UTC"
	case !strings.HasPrefix(when, "in "):
		when += " ago"
	}
	text := fmt.Sprintf("%d %s %s %s, %d of %d, %s, %s", job.ID, widget.Clean(job.Queue), widget.Clean(job.Kind), format.State(job),
		format.Attempt(job), job.MaxAttempts, when, widget.FirstLine(job.LastError))
	return strings.TrimRight(text, ", ")
}

func (m *Model) toldWorkers() []string {
	lines := make([]string, len(m.workers))
	now := m.env.now()
	for i, w := range m.workers {
		text := fmt.Sprintf("%s, %d running, heard of %s ago, up %s", widget.Clean(w.ID), w.Running, format.Ago(now.Sub(w.HeartbeatAt)), format.Ago(now.Sub(w.StartedAt)))
		if w.Draining {
			text += ", draining"
		}
		lines[i] = m.toldRow(i, len(m.workers), i == m.workerAt(), text)
	}
	return append(lines, m.janitorLines()...)
}

// toldJob is a job in detail: what it is, what happened to it, and the end of
// what its run has written.
func (m *Model) toldJob() []string {
	job := m.job.story.job
	if job == nil {
		return []string{m.waiting(panelJob)}
	}
	lines := append([]string{"Job " + m.toldOne(job)}, m.properties(job)...)
	for _, moment := range m.job.story.moments() {
		lines = append(lines, m.paint.Clock(moment.at)+" "+moment.text)
	}
	lines = append(lines, m.outputTitle())
	return append(lines, m.outputLines(plainLines)...)
}

// pickRow moves the cursor to a row by its number.
func (m *Model) pickRow(number int) {
	at, count := 0, 0
	switch m.screen {
	case screenOverview, screenQueues:
		at, count = m.queueAt(), len(m.queues)
	case screenJobs:
		at, count = m.jobs.at(), len(m.jobs.rows)
	case screenWorkers:
		at, count = m.workerAt(), len(m.workers)
	case screenAudit:
		at, count = m.auditAt(), len(m.audit)
	case screenJob:
	}
	if number < 1 || number > count {
		m.say(fmt.Sprintf("no row %d here", number))
		return
	}
	m.move(number - 1 - at)
}
