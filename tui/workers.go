package tui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
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
		head += fmt.Sprintf("  leader pid %d@%s, %s", m.leader.PID, clean(m.leader.Address), ago(now.Sub(m.leader.Since)))
	}
	if silent > 0 {
		head += "  " + red(fmt.Sprintf("%d silent", silent))
	}
	columns := columnsFor([]column{
		{"WORKER", 34, false, 0},
		{"RUNNING", 9, true, 0},
		{"BEAT", 6, true, 0},
		{"UP", 5, true, 2},
		{"VERSION", 10, false, 4},
		{"KINDS", 24, false, 5},
		{"QUEUES", 0, false, 1},
	}, m.width-2, 10)
	lines := []string{head, m.tableHeader(columns, m.width)}
	height := m.workerRows()
	at := m.workerAt()
	offset := window(0, at, len(m.workers), height)
	for i := offset; i < min(offset+height, len(m.workers)); i++ {
		lines = append(lines, m.workerRow(columns, m.workers[i], i == at))
	}
	if len(m.workers) == 0 {
		lines = append(lines, "  "+dim("no worker has registered: start one with `jobq worker`"))
	}
	return append(lines, m.janitorLines()...)
}

// workerRows is how many workers the screen has room for.
func (m *Model) workerRows() int { return max(m.layout().body-12, 3) }

func (m *Model) workerRow(columns []column, w jobq.Worker, selected bool) string {
	now := m.env.now()
	name := clean(w.ID)
	if w.Draining {
		name += " drain"
	}
	marks := "  "
	beat := ago(now.Sub(w.HeartbeatAt))
	if now.Sub(w.HeartbeatAt) > workerSilence {
		beat = red(beat + "!")
		marks = red("!") + " "
	}
	if selected {
		marks = bold("> ")
	}
	total := 0
	queues := make([]string, 0, len(w.Slots))
	for queue, slots := range w.Slots {
		queues = append(queues, clean(queue))
		total += slots
	}
	slices.Sort(queues)
	return m.tableRow(columns, m.width, marks, map[string]string{
		"WORKER": name, "RUNNING": fmt.Sprintf("%d/%d", w.Running, total), "BEAT": beat, "UP": ago(now.Sub(w.StartedAt)),
		"VERSION": clean(w.Version), "QUEUES": strings.Join(queues, ","), "KINDS": clean(strings.Join(w.Kinds, ",")),
	})
}

// janitorLines are what the janitor looks after, and when it must act next.
func (m *Model) janitorLines() []string {
	lines := []string{m.rule(m.width, "Janitor")}
	leader := styled(sgrYellow, "no session holds the janitor's lock")
	if m.leader != nil {
		leader = fmt.Sprintf("server process %d, from %s, connected %s ago", m.leader.PID, clean(m.leader.Address), ago(m.env.now().Sub(m.leader.Since)))
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
		return "in " + ago(left)
	}
	expiry, due := "-", "-"
	if m.session != nil {
		expiry, due = next(m.session.NextExpiry, "no lease is held"), next(m.session.NextDue, "nothing is scheduled")
	}
	for _, event := range m.events { // newest first
		if event.Type == jobq.EventLeadershipAcquired {
			leader = clean(event.Source) + ", elected " + m.clock(event.At) + "; " + leader
			break
		}
	}
	lines = append(
		lines,
		" leader    "+leader,
		fmt.Sprintf(" rescue    %s leases lost in 60 min     next expiry unless extended: %s", number(lost), expiry),
		fmt.Sprintf(" promote   next scheduled job due: %s     retried in 60 min: %s", due, number(retried)),
	)
	return append(lines, m.eventLines()...)
}

// eventLines are what janitors and starting workers have seen and done last.
func (m *Model) eventLines() []string {
	lines := []string{m.rule(m.width, "Events")}
	for _, event := range m.events {
		text := fmt.Sprintf(" %s  %-20s %s", m.clock(event.At), event.Type, clean(event.Source))
		if event.JobID > 0 {
			text += fmt.Sprintf("  job %d", event.JobID)
		}
		lines = append(lines, text+"  "+clean(event.Message))
	}
	if len(m.events) == 0 {
		lines = append(lines, " "+dim("none: no lease was lost, no leader has changed"))
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
