package screen

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/widget"
)

// WorkerList is the screen with the workers, and what the janitor does.
type WorkerList struct{ table }

// workerRows are the workers by their ids.
type workerRows struct{ *data.Facts }

func (r workerRows) Len() int          { return len(r.Workers) }
func (r workerRows) Name(i int) string { return r.Workers[i].ID }

// NewWorkers makes the screen.
func NewWorkers(kit Kit) *WorkerList {
	return &WorkerList{table{base: base{Kit: kit}, rows: workerRows{kit.Facts}, panel: data.Workers}}
}

// SetSize gives the workers what the janitor and the events leave.
func (s *WorkerList) SetSize(cells, lines int) {
	s.base.SetSize(cells, lines)
	const below = 13
	s.setHeight(headLines, max(lines-headLines-below, 3))
}

// Wants are the workers, the janitor, and what both have said.
func (s *WorkerList) Wants() []data.Want {
	return data.Wants(data.Workers, data.Leader, data.Minutes, data.Events)
}

// selected is the worker under the cursor, or nil.
func (s *WorkerList) selected() *monitor.Worker {
	if len(s.Facts.Workers) == 0 {
		return nil
	}
	return &s.Facts.Workers[s.at()]
}

// Actions are the moves, and to open the jobs of the worker.
func (s *WorkerList) Actions() map[string]Action {
	actions := s.moves()
	noWorker := func() string {
		if s.selected() == nil {
			return "no worker has registered"
		}
		return ""
	}
	actions[command.Open] = Action{Disabled: noWorker, Run: func() tea.Msg {
		return request.Jobs{Match: "state:running worker:" + quoted(s.selected().ID)}
	}}
	return actions
}

// Selected is the worker under the cursor.
func (s *WorkerList) Selected() Selection {
	return Selection{Worker: s.selected(), Noun: "workers", Rows: func() []json.RawMessage { return encoded(s.Facts.Workers) }}
}

// View draws the workers, the janitor and the events.
func (s *WorkerList) View() View {
	if !s.Facts.Known(data.Workers) {
		return View{Lines: []string{"", " " + s.waiting(data.Workers)}, Cursor: -1}
	}
	columns := widget.ColumnsFor([]widget.Column{
		widget.Left("WORKER", 34, 0),
		widget.Right("RUNNING", 9, 0),
		widget.Right("HEARD", 6, 0),
		widget.Right("UP", 5, 2),
		widget.Left("VERSION", 10, 4),
		widget.Left("KINDS", 24, 5).UpTo(60),
		widget.Left("QUEUES", 0, 1).UpTo(30),
	}, s.cells-2, 10)
	lines := []string{s.head(), s.Paint.Header(columns, s.cells)}
	first, end := s.list.Shown(s.rows)
	for i := first; i < end; i++ {
		lines = append(lines, s.row(columns, s.Facts.Workers[i], i == s.at()))
	}
	if len(s.Facts.Workers) == 0 {
		lines = append(lines, "  "+s.Paint.Muted.Render("no worker has registered: start one with `jobq worker`"))
	}
	lines = append(lines, s.detail()...)
	return View{Lines: append(lines, s.janitor()...), Cursor: s.cursor()}
}

// head sums the workers up.
func (s *WorkerList) head() string {
	now := s.Paint.Now()
	var running, slots int64
	silent, held := 0, 0
	for _, w := range s.Facts.Workers {
		running += w.Running
		slots += slotsOf(w)
		if now.Sub(w.HeartbeatAt) > data.WorkerSilence {
			silent++
		}
		if w.Held != nil {
			held++
		}
	}
	head := fmt.Sprintf(" %s  %s/%s slots", format.Count(len(s.Facts.Workers), "worker"), format.Number(running), format.Number(slots))
	if slots > 0 {
		head += fmt.Sprintf(" %d%%", running*100/slots)
	}
	if first, end := s.list.Shown(s.rows); end-first < len(s.Facts.Workers) {
		head += "  rows " + s.position()
	}
	if l := s.Facts.Leader; l != nil {
		head += "  leader pid " + widget.ServerProcess(l.PID, l.Address)
		if !l.Since.IsZero() {
			head += ", " + format.Ago(now.Sub(l.Since))
		}
	}
	if held > 0 {
		head += "  " + s.Paint.Warn.Render(fmt.Sprintf("%d held", held))
	}
	if silent > 0 {
		head += "  " + s.Paint.Alarm.Render(fmt.Sprintf("%d silent", silent))
	}
	return head
}

func slotsOf(w monitor.Worker) (slots int64) {
	for _, count := range w.Slots {
		slots += int64(count)
	}
	return slots
}

func (s *WorkerList) row(columns []widget.Column, w monitor.Worker, selected bool) string {
	now := s.Paint.Now()
	name := widget.Clean(w.ID)
	if w.Draining {
		name += " drains"
	}
	if w.Held != nil {
		name += " held"
	}
	marks := s.marks(selected)
	heard := format.Ago(now.Sub(w.HeartbeatAt))
	if now.Sub(w.HeartbeatAt) > data.WorkerSilence {
		heard = s.Paint.Alarm.Render(heard + "!")
		if !selected {
			marks = s.Paint.Alarm.Render("!") + " "
		}
	}
	queues := make([]string, 0, len(w.Slots))
	for queue := range w.Slots {
		queues = append(queues, widget.Clean(queue))
	}
	slices.Sort(queues)
	return s.Paint.Row(columns, s.cells, marks, map[string]string{
		"WORKER": name, "RUNNING": fmt.Sprintf("%d/%d", w.Running, slotsOf(w)), "HEARD": heard, "UP": format.Ago(now.Sub(w.StartedAt)),
		"VERSION": widget.Clean(w.Version), "QUEUES": strings.Join(queues, ","), "KINDS": widget.Clean(strings.Join(w.Kinds, ",")),
	})
}

// detail is what the selected worker takes, which the list may have cut.
func (s *WorkerList) detail() []string {
	w := s.selected()
	if w == nil {
		return nil
	}
	slots := make([]string, 0, len(w.Slots))
	for _, queue := range slices.Sorted(maps.Keys(w.Slots)) {
		slots = append(slots, fmt.Sprintf("%s %d", widget.Clean(queue), w.Slots[queue]))
	}
	kinds := "all"
	if len(w.Kinds) > 0 {
		words := slices.Clone(w.Kinds)
		for i, kind := range words {
			if slots := w.KindSlots[kind]; slots > 0 {
				words[i] = fmt.Sprintf("%s %d", kind, slots)
			}
		}
		kinds = widget.Clean(strings.Join(words, ", "))
	}
	lines := []string{
		s.Paint.Rule(s.cells, widget.Clean(w.ID)),
		" slots     " + strings.Join(slots, ", "),
		" kinds     " + kinds,
	}
	for _, line := range s.stopped(*w) {
		lines = append(lines, " "+s.Paint.Warn.Render(line))
	}
	return lines
}

// stopped is why the worker claims nothing, or nothing of a kind.
func (s *WorkerList) stopped(w monitor.Worker) (lines []string) {
	if w.Held != nil {
		line := fmt.Sprintf("held      %s is held by %s, for %s", w.Hostname, w.Held.By, format.Ago(s.Paint.Now().Sub(w.Held.Since)))
		if w.Held.Reason != "" {
			line += ": " + w.Held.Reason
		}
		lines = append(lines, widget.Clean(line))
	}
	for _, kind := range slices.Sorted(maps.Keys(w.Programs)) {
		if trouble := w.Programs[kind].Trouble; trouble != "" {
			lines = append(lines, widget.Clean("waits     "+kind+": "+trouble))
		}
	}
	return lines
}

// janitor is what the janitor looks after, and when it must act next.
func (s *WorkerList) janitor() []string {
	leader := s.Paint.Warn.Render("no session holds the janitor's lock")
	if l := s.Facts.Leader; l != nil {
		leader = fmt.Sprintf("server process %d, whose session this role may not see", l.PID)
		if !l.Since.IsZero() {
			leader = fmt.Sprintf("server process %d, from %s, connected %s ago", l.PID, widget.Clean(l.Address), format.Ago(s.Paint.Now().Sub(l.Since)))
		}
	}
	var lost, retried int64
	for _, minute := range s.Facts.Minutes {
		lost += minute.Lost
		retried += minute.Retried
	}
	next := func(left time.Duration, what, none string) string {
		switch {
		case left == 0:
			return none
		case left < 0:
			return what + " now"
		}
		return what + " in " + format.Ago(left)
	}
	expiry, due := "", ""
	if session := s.Facts.Session; session != nil {
		expiry, due = next(session.NextExpiry, "unless extended, the next ends", "none is held"), next(session.NextDue, "the next job is due", "nothing is scheduled")
	}
	for _, event := range s.Facts.Events { // newest first
		if event.Type == monitor.EventLeadershipAcquired {
			leader = widget.Clean(event.Source) + ", elected " + s.Paint.Clock(event.At) + "; " + leader
			break
		}
	}
	lines := []string{
		s.Paint.Rule(s.cells, "Janitor"),
		" leader    " + leader,
		fmt.Sprintf(" leases    %s lost in 60 min   %s", format.Number(lost), expiry),
		fmt.Sprintf(" schedule  %s retried in 60 min   %s", format.Number(retried), due),
	}
	return append(lines, s.events()...)
}

// events are what janitors and starting workers have seen and done last.
func (s *WorkerList) events() []string {
	title := "Events"
	if len(s.Facts.Events) >= data.EventsMax {
		title = fmt.Sprintf("Events, the last %d", data.EventsMax)
	}
	lines := []string{s.Paint.Rule(s.cells, title)}
	for _, event := range s.Facts.Events {
		text := fmt.Sprintf(" %s  %-20s %s", s.Paint.Clock(event.At), event.Type, widget.Clean(event.Source))
		if event.JobID > 0 {
			text += fmt.Sprintf("  job %d", event.JobID)
		}
		lines = append(lines, text+"  "+widget.Clean(event.Message))
	}
	if len(s.Facts.Events) == 0 {
		lines = append(lines, " "+s.Paint.Muted.Render("none: no lease was lost, and no leader has changed"))
	}
	return lines
}

// Told is the list in words.
func (s *WorkerList) Told() []string {
	now := s.Paint.Now()
	lines := []string{format.Count(int64(len(s.Facts.Workers)), "worker")}
	for i, w := range s.Facts.Workers {
		text := fmt.Sprintf("%s, %d running, heard of %s ago, up %s", widget.Clean(w.ID), w.Running, format.Ago(now.Sub(w.HeartbeatAt)), format.Ago(now.Sub(w.StartedAt)))
		if w.Draining {
			text += ", drains"
		}
		for _, line := range s.stopped(w) {
			text += ", " + strings.Join(strings.Fields(line), " ")
		}
		lines = append(lines, toldRow(i, len(s.Facts.Workers), i == s.at(), text))
	}
	return append(lines, s.janitor()...)
}
