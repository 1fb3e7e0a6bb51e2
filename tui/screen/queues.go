package screen

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/internal/when"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/widget"
)

// QueueList is the screen with all queues, and one of them in detail. One of them can be opened: then
// the rows are its partition keys.
type QueueList struct {
	queueTable
	keys *keyList // of the queue that is open
}

// NewQueues makes the screen.
func NewQueues(kit Kit) *QueueList { return &QueueList{newQueueTable(kit), newKeyList(kit)} }

// SetSize gives the rows what the detail below leaves.
func (s *QueueList) SetSize(cells, lines int) {
	s.base.SetSize(cells, lines)
	const detail = 8 // lines, with the one that parts them
	s.setHeight(headLines, max(lines-headLines-detail, 3))
	s.keys.SetSize(cells, lines)
	s.keys.setHeight(keyListHead, max(lines-keyListHead, 1))
}

// Wants are what the queues are and have done, or the keys of one of them.
func (s *QueueList) Wants() []data.Want {
	if s.keys.queue != "" {
		return append(data.Wants(data.Queues), s.keys.want())
	}
	return data.Wants(data.Queues, data.Minutes, data.Failures, data.Workers)
}

// Update takes the keys of the open queue in, beside what tables take.
func (s *QueueList) Update(msg tea.Msg) tea.Msg {
	switch msg := msg.(type) {
	case data.Answer:
		s.keys.Update(msg)
		return s.queueTable.Update(msg)
	case Back:
		if s.keys.queue != "" {
			s.keys.show("")
			return request.Done{}
		}
		return nil
	}
	if s.keys.queue != "" {
		return s.keys.Update(msg)
	}
	return s.queueTable.Update(msg)
}

// Actions are those of all tables of queues, and to open the keys of one.
func (s *QueueList) Actions() map[string]Action {
	if s.keys.queue != "" {
		return s.keys.actions()
	}
	actions := s.queueTable.Actions()
	actions[command.PartitionKeys] = Action{Disabled: s.noQueue, Run: func() tea.Msg {
		if q := s.selected(); q != nil {
			s.keys.show(q.Name)
		}
		return request.Done{}
	}}
	return actions
}

// opened is the queue whose keys are shown; its zero value when that is not among the queues any more.
func (s *QueueList) opened() (q monitor.Queue) {
	if at := slices.IndexFunc(s.Facts.Queues, func(q monitor.Queue) bool { return q.Name == s.keys.queue }); at >= 0 {
		return s.Facts.Queues[at]
	}
	return q
}

// Selected is the queue that is open, or the one under the cursor.
func (s *QueueList) Selected() Selection {
	if s.keys.queue == "" {
		return s.queueTable.Selected()
	}
	selection := Selection{Noun: "keys", Rows: func() []json.RawMessage { return encoded(s.keys.keys()) }, Keys: s.keys.selected()}
	if q := s.opened(); q.Name != "" {
		selection.Queue = &q
	}
	return selection
}

// View draws the queues, and the selected one in detail.
func (s *QueueList) View() View {
	if !s.Facts.Known(data.Queues) {
		return View{Lines: []string{"", " " + s.waiting(data.Queues)}, Cursor: -1}
	}
	if s.keys.queue != "" {
		return s.keys.view(s.limits(s.opened()))
	}
	lines := s.draw()
	if q := s.selected(); q != nil {
		lines = append(lines, s.Paint.Rule(s.cells, widget.Clean(q.Name)))
		lines = append(lines, s.detail()...)
	}
	return View{Lines: lines, Cursor: s.cursor()}
}

// detail is the selected queue.
func (s *QueueList) detail() []string {
	q := *s.selected()
	r := s.Facts.Rates(q.Name)
	paused := "no"
	if q.PausedAt != nil {
		paused = fmt.Sprintf("since %s by %s", s.Paint.Clock(*q.PausedAt), widget.Clean(format.PausedBy(q)))
	}
	slots := fmt.Sprintf("slots %s, %s in use", format.Number(q.Slots), format.Number(q.Running))
	if q.Slots > 0 && q.Running > q.Slots {
		slots += fmt.Sprintf(": %s in workers that drain, or about to begin", format.Number(q.Running-q.Slots))
	}
	if q.Claimed > 0 {
		slots += fmt.Sprintf("; %s claimed ahead", format.Count(q.Claimed, "job"))
	}
	lines := []string{
		" paused    " + paused,
		fmt.Sprintf(" lease     %s        %s", q.Lease, slots),
	}
	if limits := s.limits(q); limits != "" {
		lines = append(lines, " limits    "+limits)
	}
	if kept := kept(q); kept != "" {
		lines = append(lines, " kept      "+kept)
	}
	lines = append(lines,
		fmt.Sprintf(" last min  %s/s completed   %s/s failed   average run %s, wait %s", format.Rate(r.Completed), format.Rate(r.Failed),
			r.Run(), r.Wait()),
		" 60 min    "+s.Paint.Spark(s.Facts.Series(q.Name, false), 60),
		" failed    "+s.Paint.Spark(s.Facts.Series(q.Name, true), 60),
	)
	var waiting []string
	if left := s.Facts.Left(q.Name); left != "" {
		waiting = append(waiting, fmt.Sprintf("%s jobs, %s", format.Available(q), left))
	}
	if reason := s.Facts.WhyWaiting(q, ""); reason != "" && q.PausedAt == nil { // who paused it stands above
		waiting = append(waiting, widget.Clean(reason))
	}
	if len(waiting) > 0 {
		lines = append(lines, " waiting   "+strings.Join(waiting, "; "))
	}
	return lines
}

// limits are what keeps jobs of a queue from running at once, and from starting, and how
// much of it is used; empty for none.
func (s *QueueList) limits(q monitor.Queue) string {
	var limits []string
	if q.MaxRunning > 0 {
		limits = append(limits, atLimit(q)+" run")
	}
	if q.KeyLimit > 0 {
		limits = append(limits, format.Number(int64(q.KeyLimit))+" of each key")
	}
	if q.KeyOrder != jobq.KeyOrderNone {
		limits = append(limits, "in order ("+string(q.KeyOrder)+")")
	}
	if q.KeySeparator != "" {
		limits = append(limits, widget.Clean(format.KeyGroups(q.KeySeparator)))
	}
	if q.KeyRate != nil {
		limits = append(limits, fmt.Sprintf("%s of each key, burst %s", format.QueueRate(q.KeyRate), format.Number(int64(q.KeyRate.Burst))))
	}
	if q.Rate != nil {
		limits = append(limits, format.QueueRate(q.Rate))
	}
	if q.ThrottledUntil != nil {
		limits = append(limits, "throttled until "+s.Paint.Clock(*q.ThrottledUntil))
	}
	if q.Rate != nil {
		limits = append(limits, "burst "+format.Number(int64(q.Rate.Burst)))
	}
	return strings.Join(limits, ", ")
}

// kept is how long finished jobs of a queue are kept, where it has a retention of its own; else empty.
func kept(q monitor.Queue) string {
	var kept []string
	if q.Retention > 0 {
		kept = append(kept, "finished jobs "+when.FormatDuration(q.Retention))
	}
	if q.FailedRetention > 0 {
		kept = append(kept, "failed and cancelled ones "+when.FormatDuration(q.FailedRetention))
	}
	return strings.Join(kept, ", ")
}

// Told is the list in words.
func (s *QueueList) Told() []string {
	if s.keys.queue != "" {
		return s.keys.told(s.limits(s.opened()))
	}
	return append([]string{format.Count(int64(len(s.Facts.Queues)), "queue")}, s.toldQueues()...)
}
