package screen

import (
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/widget"
)

// OverviewPage answers whether anything is wrong, where, and since when.
type OverviewPage struct {
	queueTable
	activity activity
}

// NewOverview makes the screen.
func NewOverview(kit Kit) *OverviewPage { return &OverviewPage{queueTable: newQueueTable(kit)} }

// What stays for what needs attention and for what happens, however many queues
// there are.
const (
	attentionMin       = 9 // lines of a wide screen, with the two above them
	attentionNarrowMin = 7 // of a narrow one, with the titles
	attentionShown     = 3 // of a narrow one, at least
	activityShown      = 3 // of a narrow one, where there is room
)

// SetSize gives the queues what the parts around them leave.
func (s *OverviewPage) SetSize(cells, lines int) {
	s.base.SetSize(cells, lines)
	head, below := s.headLines(), attentionNarrowMin
	if s.wide() {
		below = attentionMin
	}
	s.setHeight(head+headLines, max(lines-head-headLines-below, 3))
}

// headLines are the lines above the queues.
func (s *OverviewPage) headLines() int {
	if s.wide() {
		return tileLines + 1 + chartLines + 1
	}
	return narrowLines
}

// Wants are what the whole system is and has done.
func (s *OverviewPage) Wants() []data.Want {
	return data.Wants(data.Queues, data.Minutes, data.Failures, data.Silent, data.Workers, data.Leader)
}

// Update takes what workers say in, beside what tables take.
func (s *OverviewPage) Update(msg tea.Msg) tea.Msg {
	switch msg := msg.(type) {
	case data.Feed:
		s.activity.take(msg, s.Paint)
		return nil
	case data.Answer:
		if !s.Facts.Known(data.Failures) { // nor is the order of the queues
			return nil
		}
	}
	return s.queueTable.Update(msg)
}

// View draws the counts, the queues, and what needs attention.
func (s *OverviewPage) View() View {
	if !s.Facts.Known(data.Queues) {
		return View{Lines: []string{"", " " + s.waiting(data.Queues)}, Cursor: -1}
	}
	if !s.wide() {
		lines := slices.Concat(s.narrowHead(), s.draw())
		return View{Lines: append(lines, s.narrowTail(len(lines))...), Cursor: s.cursor()}
	}
	lines := slices.Concat(s.tiles(), []string{""}, s.chart(), []string{""}, s.draw())
	attention := s.attention()
	lines = append(lines, "", s.Paint.Rule(s.cells, fmt.Sprintf("Needs attention %d", len(attention)), "Live activity"))
	room := max(s.lines-len(lines), 0)
	attention = append(s.capped(attention, room), make([]string, room)...)[:room]
	return View{Lines: append(lines, s.Paint.Columns(attention, s.activity.lines(s.base, room), s.cells)...), Cursor: s.cursor()}
}

// capped are as many of the lines as there is room for; the last of them says how
// many more there are.
func (s *OverviewPage) capped(lines []string, room int) []string {
	if len(lines) <= room || room < 1 {
		return lines[:min(len(lines), room)]
	}
	return append(lines[:room-1], fmt.Sprintf(" %s %d more", s.Paint.More, len(lines)-room+1))
}

// narrowTail is what stands below so many lines on a narrow screen.
func (s *OverviewPage) narrowTail(above int) []string {
	attention := s.attention()
	lines := []string{s.Paint.Rule(s.cells, fmt.Sprintf("Needs attention %d", len(attention)))}
	lines = append(lines, s.capped(attention, max(s.lines-above-2-activityShown, attentionShown))...)
	lines = append(lines, s.Paint.Rule(s.cells, "Activity"))
	for _, line := range s.activity.lines(s.base, s.lines) {
		lines = append(lines, " "+line)
	}
	return lines
}

// tileLines and chartLines are how high the parts of the head are.
const (
	tileLines   = 3
	chartLines  = 4
	narrowLines = 2
)

// tiles are the counts, each with a bar in proportion to its logarithm.
func (s *OverviewPage) tiles() []string {
	t := s.Facts.Totals()
	type tile struct {
		title, value string
		size         int64
		bad          bool
	}
	running := format.Number(t.Running)
	if t.Slots > 0 {
		running = inUse(t.Running, t.Slots) + "/" + format.Number(t.Slots)
	}
	head := "-"
	if t.Head != nil {
		head = widget.Clean(t.HeadQueue) + " " + format.Ago(s.Paint.Now().Sub(*t.Head))
	}
	tiles := []tile{
		{"AVAILABLE", t.AvailableText(), t.Available, false},
		{"SCHEDULED", format.Capped(t.Scheduled), t.Scheduled, false},
		{"RUNNING", running, t.Running, false},
		{"RETRYING", format.Capped(t.Retrying), t.Retrying, false},
		{"FAILED", format.Capped(t.Failed), t.Failed, t.RecentFailed > 0},
		{"CANCELLED", format.Capped(t.Cancelled), t.Cancelled, false},
		{"COMPLETED 1h", format.Number(t.Completed), t.Completed, false},
		{"OLDEST", head, -1, false},
	}
	const cells = 14
	lines := []string{" ", " ", " "}
	for _, tile := range tiles {
		value := s.Paint.Title.Render(tile.value)
		if tile.bad {
			value = s.Paint.Alarm.Render(tile.value + " " + s.Paint.Up + format.Number(t.RecentFailed))
		}
		lines[0] += s.Paint.Fit(s.Paint.Muted.Render(tile.title), cells)
		lines[1] += s.Paint.Fit(value, cells)
		bar := ""
		if tile.size >= 0 {
			bar = strings.Repeat(string(s.Paint.Bar), min(magnitude(tile.size), 10))
		}
		lines[2] += s.Paint.Fit(s.Paint.Muted.Render(bar), cells)
	}
	return lines
}

// magnitude is about twice the number's decimal logarithm.
func magnitude(n int64) (size int) {
	for limit := int64(1); n >= limit && size < 10; size++ {
		if size%2 == 0 {
			limit *= 3
		} else {
			limit = limit / 3 * 10
		}
	}
	return size
}

// chart is the throughput of the last hour.
func (s *OverviewPage) chart() []string {
	r := s.Facts.Rates("")
	title := fmt.Sprintf(" %s, 60 min   %s/s completed   %s/s failed", s.Paint.Title.Render("Throughput"), format.Rate(r.Completed), format.Rate(r.Failed))
	average := fmt.Sprintf("average run %s, wait %s ", format.AtMost(r.Run), format.Took(r.Wait))
	lines := []string{s.Paint.Spread(title, average, s.cells)}
	values := s.Facts.Series("", false)
	const labelCells = 8
	for i, columns := range s.Paint.Chart(values, chartLines-2) {
		label := ""
		if i == 0 {
			label = format.Rate(float64(max(slices.Max(values), 1)) / 60)
		}
		lines = append(lines, s.Paint.FitRight(label, labelCells)+" |"+columns)
	}
	axis := s.Paint.FitRight("0", labelCells) + " +" + strings.Repeat(s.Paint.Theme.Rule, len(values))
	return append(lines, axis+"  failed: "+s.Paint.Spark(s.Facts.Series("", true), 40))
}

// narrowHead is the counts and the throughput in two lines.
func (s *OverviewPage) narrowHead() []string {
	t := s.Facts.Totals()
	failed := "fail " + format.Capped(t.Failed)
	if t.RecentFailed > 0 {
		failed = s.Paint.Alarm.Render("FAIL " + format.Capped(t.Failed) + " " + s.Paint.Up + format.Number(t.RecentFailed))
	}
	running := format.Number(t.Running)
	if t.Slots > 0 {
		running = inUse(t.Running, t.Slots) + "/" + format.Number(t.Slots)
	}
	head := "-"
	if t.Head != nil {
		head = format.Ago(s.Paint.Now().Sub(*t.Head))
	}
	first := fmt.Sprintf(" avail %s  sched %s  run %s  retry %s  %s  oldest %s", s.Paint.Title.Render(t.AvailableText()),
		format.Capped(t.Scheduled), s.Paint.Title.Render(running), format.Capped(t.Retrying), failed, head)
	r := s.Facts.Rates("")
	left := fmt.Sprintf(" done %s/s  fail %s/s  ", format.Rate(r.Completed), format.Rate(r.Failed))
	right := fmt.Sprintf("  run %s  wait %s", format.AtMost(r.Run), format.Took(r.Wait))
	spark := s.Paint.Spark(s.Facts.Series("", false), max(s.cells-widget.Width(left)-widget.Width(right)-1, 8))
	return []string{first, left + spark + right}
}

// Told is the overview in words.
func (s *OverviewPage) Told() []string {
	t, r := s.Facts.Totals(), s.Facts.Rates("")
	lines := []string{
		"Overview",
		fmt.Sprintf("available %s, scheduled %s, running %s of %s slots, retrying %s, failed %s, cancelled %s", t.AvailableText(),
			format.Capped(t.Scheduled), format.Number(t.Running), format.Number(t.Slots), format.Capped(t.Retrying), format.Capped(t.Failed), format.Capped(t.Cancelled)),
		fmt.Sprintf("in the last hour %s completed and %s failed; now %s a second complete, a run takes %s and waits %s on average", format.Number(t.Completed),
			format.Number(t.RecentFailed), format.Rate(r.Completed), format.AtMost(r.Run), format.Took(r.Wait)),
	}
	attention := s.attention()
	lines = append(lines, fmt.Sprintf("%d need attention", len(attention)))
	return slices.Concat(lines, attention, s.toldQueues())
}
