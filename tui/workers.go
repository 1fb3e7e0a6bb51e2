package tui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/tui/widget"
)

func (m *Model) workersBody() []string {
	if m.polls[panelWorkers].at.IsZero() {
		return []string{"", " " + m.waiting(panelWorkers)}
	}
	now := m.env.now()
	var running, slots int64
	silent := 0
	for _, w := range m.workers {
		running += w.Running
		for _, count := range w.Slots {
			slots += int64(count)
		}
		if now.Sub(w.HeartbeatAt) > workerSilence {
			silent++
		}
	}
	head := fmt.Sprintf(" %d workers  %d/%d slots", len(m.workers), running, slots)
	if slots > 0 {
		head += fmt.Sprintf(" %d%%", running*100/slots)
	}
	if m.leader != nil {
		head += fmt.Sprintf("  leader pid %d@%s, %s", m.leader.PID, widget.Clean(m.leader.Address), format.Ago(now.Sub(m.leader.Since)))
	}
	if silent > 0 {
		head += "  " + m.paint.Alarm.Render(fmt.Sprintf("%d silent", silent))
	}
	columns := widget.ColumnsFor([]widget.Column{
		widget.Left("WORKER", 34, 0),
		widget.Right("RUNNING", 9, 0),
		widget.Right("BEAT", 6, 0),
		widget.Right("UP", 5, 2),
		widget.Left("VERSION", 10, 4),
		widget.Left("KINDS", 24, 5),
		widget.Left("QUEUES", 0, 1),
	}, m.width-2, 10)
	lines := []string{head, m.paint.Header(columns, m.width)}
	height := m.workerRows()
	at := m.workerAt()
	offset := widget.Window(0, at, len(m.workers), height)
	for i := offset; i < min(offset+height, len(m.workers)); i++ {
		lines = append(lines, m.workerRow(columns, m.workers[i], i == at))
	}
	if len(m.workers) == 0 {
		lines = append(lines, "  "+m.paint.Muted.Render("no worker has registered: start one with `jobq worker`"))
	}
	return append(lines, m.janitorLines()...)
}

// workerRows is how many workers the screen has room for.
func (m *Model) workerRows() int { return max(m.layout().body-12, 3) }

func (m *Model) workerRow(columns []widget.Column, w jobq.Worker, selected bool) string {
	now := m.env.now()
	name := widget.Clean(w.ID)
	if w.Draining {
		name += " drain"
	}
	marks := "  "
	beat := format.Ago(now.Sub(w.HeartbeatAt))
	if now.Sub(w.HeartbeatAt) > workerSilence {
		beat = m.paint.Alarm.Render(beat + "!")
		marks = m.paint.Alarm.Render("!") + " "
	}
	if selected {
		marks = m.paint.Title.Render("> ")
	}
	total := 0
	queues := make([]string, 0, len(w.Slots))
	for queue, slots := range w.Slots {
		queues = append(queues, widget.Clean(queue))
		total += slots
	}
	slices.Sort(queues)
	return m.paint.Row(columns, m.width, marks, map[string]string{
		"WORKER": name, "RUNNING": fmt.Sprintf("%d/%d", w.Running, total), "BEAT": beat, "UP": format.Ago(now.Sub(w.StartedAt)),
		"VERSION": widget.Clean(w.Version), "QUEUES": strings.Join(queues, ","), "KINDS": widget.Clean(strings.Join(w.Kinds, ",")),
	})
}

// janitorLines are what the janitor looks after, and when it must act next.
func (m *Model) janitorLines() []string {
	lines := []string{m.paint.Rule(m.width, "Janitor")}
	leader := m.paint.Warn.Render("no session holds the janitor's lock")
	if m.leader != nil {
		leader = fmt.Sprintf("server process %d, from %s, connected %s ago", m.leader.PID, widget.Clean(m.leader.Address), format.Ago(m.env.now().Sub(m.leader.Since)))
	}
	var lost, retried int64
	for _, minute := range m.minutes {
		lost += minute.Lost
		retried += minute.Retried
	}
	next := func(left time.Duration, none string) string {
		switch {
		case left == 0:
			return none
		case left < 0:
			return "now"
		}
		return "in " + format.Ago(left)
	}
	expiry, due := "-", "-"
	if m.session != nil {
		expiry, due = next(m.session.NextExpiry, "no lease is held"), next(m.session.NextDue, "nothing is scheduled")
	}
	for _, event := range m.events { // newest first
		if event.Type == jobq.EventLeadershipAcquired {
			leader = widget.Clean(event.Source) + ", elected " + m.paint.Clock(event.At) + "; " + leader
			break
		}
	}
	lines = append(
		lines,
		" leader    "+leader,
		fmt.Sprintf(" rescue    %s leases lost in 60 min     next expiry unless extended: %s", format.Number(lost), expiry),
		fmt.Sprintf(" promote   next scheduled job due: %s     retried in 60 min: %s", due, format.Number(retried)),
	)
	return append(lines, m.eventLines()...)
}

// eventLines are what janitors and starting workers have seen and done last.
func (m *Model) eventLines() []string {
	lines := []string{m.paint.Rule(m.width, "Events")}
	for _, event := range m.events {
		text := fmt.Sprintf(" %s  %-20s %s", m.paint.Clock(event.At), event.Type, widget.Clean(event.Source))
		if event.JobID > 0 {
			text += fmt.Sprintf("  job %d", event.JobID)
		}
		lines = append(lines, text+"  "+widget.Clean(event.Message))
	}
	if len(m.events) == 0 {
		lines = append(lines, " "+m.paint.Muted.Render("none: no lease was lost, no leader has changed"))
	}
	return lines
}

func (m *Model) workerAt() int { return m.cursor[screenWorkers].in(len(m.workers), m.workerID) }

func (m *Model) workerID(i int) string { return m.workers[i].ID }

func (m *Model) moveWorker(by int) {
	m.cursor[screenWorkers] = m.cursor[screenWorkers].moved(by, len(m.workers), m.workerID)
}

// openWorker shows the jobs that the worker holds.
func (m *Model) openWorker() tea.Cmd {
	if len(m.workers) == 0 {
		return nil
	}
	m.show(screenJobs)
	m.jobs.setTab(tabRunning)
	m.jobs.setMatch("worker:" + quoteValue(m.workers[m.workerAt()].ID))
	m.renew(panelPage, panelVisible, panelCount)
	return nil
}
