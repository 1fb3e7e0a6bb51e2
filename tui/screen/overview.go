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
	attentionNarrowMin = 8 // of a narrow one, with the titles
	attentionShown     = 2 // of a narrow one, at least
	activityShown      = 2 // of a narrow one, where there is room
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
	return data.Wants(data.Queues, data.Minutes, data.Failures, data.Silent, data.Kinds, data.Workers, data.Leader)
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
	room, half := max(s.lines-len(lines), 0), s.cells/2
	shown := append(s.attentionLines(attention, half, room), make([]string, room)...)[:room]
	return View{Lines: append(lines, s.Paint.Columns(shown, s.activity.lines(s.base, s.cells-half-2, room), s.cells)...), Cursor: s.cursor()}
}

// narrowTail is what stands below so many lines on a narrow screen.
func (s *OverviewPage) narrowTail(above int) []string {
	attention := s.attention()
	lines := []string{s.Paint.Rule(s.cells, fmt.Sprintf("Needs attention %d", len(attention)))}
	lines = append(lines, s.attentionLines(attention, s.cells, max(s.lines-above-2-activityShown, attentionShown))...)
	lines = append(lines, s.Paint.Rule(s.cells, "Live activity"))
	for _, line := range s.activity.lines(s.base, s.cells-1, s.lines) {
		lines = append(lines, " "+line)
	}
	return lines
}

// tileLines and chartLines are how high the parts of the head are.
const (
	tileLines   = 3
	chartLines  = 5
	narrowLines = 2
)

// tiles are the counts, each with a bar in proportion to its logarithm.
func (s *OverviewPage) tiles() []string {
	t := s.Facts.Totals()
	type tile struct {
		title, value string
		size         int64
		cells        int
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
		{"AVAILABLE", s.Paint.Title.Render(t.AvailableText()), t.Available, 13},
		{"SCHEDULED", s.Paint.Title.Render(format.Capped(t.Scheduled)), t.Scheduled, 12},
		{"RUNNING", s.Paint.Title.Render(running), t.Running, 14},
		{"RETRYING", s.Paint.Title.Render(format.Capped(t.Retrying)), t.Retrying, 11},
		{"FAILED", s.failedText(t), t.Failed, 19},
		{"CANCELLED", s.Paint.Title.Render(format.Capped(t.Cancelled)), t.Cancelled, 12},
		{"COMPLETED 1h", s.Paint.Title.Render(format.Number(t.Completed)), t.Completed, 15},
		{"OLDEST", s.Paint.Title.Render(head), -1, 23},
	}
	lines := []string{" ", " ", " "}
	for _, tile := range tiles {
		cells := tile.cells * s.cells / 120 // their sum at that width, with the first cell
		lines[0] += s.Paint.Fit(s.Paint.Muted.Render(tile.title), cells)
		lines[1] += s.Paint.Fit(tile.value, cells-1) + " "
		bar := ""
		if tile.size >= 0 {
			bar = strings.Repeat(string(s.Paint.Bar), min(magnitude(tile.size), 10))
		}
		lines[2] += s.Paint.Fit(s.Paint.Muted.Render(bar), cells)
	}
	return lines
}

// failedText is how many jobs have failed, and how many of them lately: "1,204, 12 in
// 1h".
func (s *OverviewPage) failedText(t data.Totals) string {
	text := format.Capped(t.Failed)
	switch {
	case t.RecentFailed == 0:
		return s.Paint.Title.Render(text)
	case s.narrow():
		return s.Paint.Alarm.Render(text)
	}
	return s.Paint.Alarm.Render(fmt.Sprintf("%s, %s in 1h", text, format.Number(t.RecentFailed)))
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
	if left := s.Facts.Left(""); left != "" {
		title += "   " + left
	}
	average := fmt.Sprintf("average run %s, wait %s ", r.Run(), r.Wait())
	lines := []string{s.Paint.Spread(title, average, s.cells)}
	values, failed := s.Facts.Series("", false), s.Facts.Series("", true)
	if s.cells > doubledFrom { // each minute is two columns
		values, failed = doubled(values), doubled(failed)
	}
	const labelCells = 9
	for i, columns := range s.Paint.Chart(values, chartLines-3) {
		label := ""
		if i == 0 {
			label = format.Rate(float64(max(slices.Max(values), 1))/60) + "/s"
		}
		lines = append(lines, s.Paint.FitRight(label, labelCells)+" |"+columns)
	}
	lines = append(lines, s.Paint.FitRight("0", labelCells)+" +"+strings.Repeat(s.Paint.Theme.Rule, len(values)))
	return append(lines, s.Paint.FitRight("failed", labelCells)+" |"+s.Paint.Spark(failed, len(failed))+s.mostFailed(failed))
}

// doubledFrom is the width above which the chart has two columns for each minute.
const doubledFrom = 160

func doubled(values []int64) (twice []int64) {
	for _, value := range values {
		twice = append(twice, value, value)
	}
	return twice
}

// mostFailed says how many failures the highest column of their chart is.
func (s *OverviewPage) mostFailed(failed []int64) string {
	if most := slices.Max(failed); most > 0 {
		return s.Paint.Alarm.Render(fmt.Sprintf("  at most %s a minute", format.Number(most)))
	}
	return "  none"
}

// narrowHead is the counts and the throughput in two lines.
func (s *OverviewPage) narrowHead() []string {
	t := s.Facts.Totals()
	failed := "fail " + s.failedText(t)
	running := format.Number(t.Running)
	if t.Slots > 0 {
		running = inUse(t.Running, t.Slots) + "/" + format.Number(t.Slots)
	}
	head := "-"
	if t.Head != nil {
		head = format.Ago(s.Paint.Now().Sub(*t.Head))
	}
	first := fmt.Sprintf(" avail %s  sched %s  run %s  retry %s  %s", s.Paint.Title.Render(t.AvailableText()),
		format.Capped(t.Scheduled), s.Paint.Title.Render(running), format.Capped(t.Retrying), failed)
	r := s.Facts.Rates("")
	left := fmt.Sprintf(" done %s/s  fail %s/s  ", format.Rate(r.Completed), format.Rate(r.Failed))
	right := "  oldest " + head
	if !s.narrow() {
		right = fmt.Sprintf("  run %s  wait %s%s", r.Run(), r.Wait(), right)
	}
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
			format.Number(t.RecentFailed), format.Rate(r.Completed), r.Run(), r.Wait()),
	}
	if left := s.Facts.Left(""); left != "" {
		lines = append(lines, "available: "+left)
	}
	attention := s.attention()
	lines = append(lines, fmt.Sprintf("%d need attention", len(attention)))
	return slices.Concat(lines, attention, s.toldQueues())
}
