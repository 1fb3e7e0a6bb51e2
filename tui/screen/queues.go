package screen

import (
	"fmt"
	"strings"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/widget"
)

// QueueList is the screen with all queues, and one of them in detail.
type QueueList struct{ queueTable }

// NewQueues makes the screen.
func NewQueues(kit Kit) *QueueList { return &QueueList{newQueueTable(kit)} }

// SetSize gives the rows what the detail below leaves.
func (s *QueueList) SetSize(cells, lines int) {
	s.base.SetSize(cells, lines)
	const detail = 8 // lines, with the one that parts them
	s.setHeight(headLines, max(lines-headLines-detail, 3))
}

// Wants are what the queues are and have done.
func (s *QueueList) Wants() []data.Want {
	return data.Wants(data.Queues, data.Minutes, data.Failures, data.Workers)
}

// View draws the queues, and the selected one in detail.
func (s *QueueList) View() View {
	if !s.Facts.Known(data.Queues) {
		return View{Lines: []string{"", " " + s.waiting(data.Queues)}, Cursor: -1}
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
		slots += fmt.Sprintf(": %s claimed ahead, or in workers that drain", format.Number(q.Running-q.Slots))
	}
	lines := []string{
		" paused    " + paused,
		fmt.Sprintf(" lease     %s        %s", q.Lease, slots),
	}
	if limits := s.limits(q); limits != "" {
		lines = append(lines, " limits    "+limits)
	}
	lines = append(lines,
		fmt.Sprintf(" last min  %s/s completed   %s/s failed   average run %s, wait %s", format.Rate(r.Completed), format.Rate(r.Failed),
			r.Run(), r.Wait()),
		" 60 min    "+s.Paint.Spark(s.Facts.Series(q.Name, false), 60),
		" failed    "+s.Paint.Spark(s.Facts.Series(q.Name, true), 60),
	)
	if reason := s.Facts.WhyWaiting(q, ""); reason != "" && q.PausedAt == nil { // who paused it stands above
		lines = append(lines, " waiting   "+widget.Clean(reason))
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

// Told is the list in words.
func (s *QueueList) Told() []string {
	return append([]string{format.Count(int64(len(s.Facts.Queues)), "queue")}, s.toldQueues()...)
}
