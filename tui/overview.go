package tui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/tui/widget"
)

// totals are the counts of all queues together.
type totals struct {
	available, scheduled, retrying, running, slots, failed, cancelled int64
	completed, recentFailed                                           int64 // within the hour
	head                                                              *time.Time
	headQueue                                                         string
}

func (m *Model) totals() (t totals) {
	for _, q := range m.queues {
		t.available += q.Available
		t.scheduled += q.Scheduled
		t.retrying += q.Retrying
		t.running += q.Running
		t.slots += q.Slots
		t.failed += q.Failed
		t.cancelled += q.Cancelled
		if q.HeadRunAt != nil && (t.head == nil || q.HeadRunAt.Before(*t.head)) {
			t.head, t.headQueue = q.HeadRunAt, q.Name
		}
	}
	for _, minute := range m.minutes {
		t.completed += minute.Completed
		t.recentFailed += minute.Failed
	}
	return t
}

func (m *Model) overviewBody() []string {
	if m.polls[panelQueues].at.IsZero() {
		return []string{"", " " + m.waiting(panelQueues)}
	}
	lines := append(m.overviewHead(), m.queueTable(m.overviewQueues(), "trouble first")...)
	attention := m.attention()
	if m.layout().wide {
		lines = append(lines, "", m.paint.Rule(m.width, fmt.Sprintf("Needs attention %d", len(attention)), "Live activity"))
		room := max(m.layout().body-len(lines), 0)
		live := make([]string, 0, room)
		for _, a := range m.activity[:min(len(m.activity), room)] {
			live = append(live, m.activityLine(a))
		}
		if len(live) == 0 {
			live = append(live, m.noActivity())
		}
		attention = append(attention, make([]string, room)...)[:room]
		return append(lines, m.paint.Columns(attention, live, m.width)...)
	}
	lines = append(lines, m.paint.Rule(m.width, fmt.Sprintf("Needs attention %d", len(attention))))
	lines = append(lines, attention[:min(len(attention), 3)]...)
	lines = append(lines, m.paint.Rule(m.width, "Activity"))
	if len(m.activity) == 0 {
		lines = append(lines, " "+m.noActivity())
	}
	for _, a := range m.activity {
		lines = append(lines, " "+m.activityLine(a))
	}
	return lines
}

// overviewHead is what stands above the queues.
func (m *Model) overviewHead() []string {
	if !m.layout().wide {
		return m.tilesNarrow()
	}
	return slices.Concat(m.tiles(), []string{""}, m.chart(), []string{""})
}

// overviewQueues is how many queues the overview has room for.
func (m *Model) overviewQueues() int {
	if m.layout().wide {
		return max(m.layout().body-20, 3)
	}
	return max(m.layout().body-11, 3)
}

func (m *Model) waiting(p panel) string {
	if err := m.polls[p].err; err != nil {
		return m.paint.Warn.Render(queryProblem(err))
	}
	return m.paint.Muted.Render("asking the database " + m.paint.More)
}

// tiles are the counts, each with a bar in proportion to its logarithm.
func (m *Model) tiles() []string {
	t := m.totals()
	type tile struct {
		title, value string
		size         int64
		bad          bool
	}
	running := format.Number(t.running)
	if t.slots > 0 {
		running += "/" + format.Number(t.slots)
	}
	head := "-"
	if t.head != nil {
		head = widget.Clean(t.headQueue) + " " + format.Ago(m.env.now().Sub(*t.head))
	}
	tiles := []tile{
		{"AVAILABLE", format.Capped(t.available), t.available, false},
		{"SCHEDULED", format.Capped(t.scheduled), t.scheduled, false},
		{"RUNNING", running, t.running, false},
		{"RETRYING", format.Capped(t.retrying), t.retrying, false},
		{"FAILED", format.Capped(t.failed), t.failed, t.recentFailed > 0},
		{"CANCELLED", format.Capped(t.cancelled), t.cancelled, false},
		{"COMPLETED 1h", format.Number(t.completed), t.completed, false},
		{"OLDEST", head, -1, false},
	}
	const cells = 14
	lines := []string{" ", " ", " "}
	for _, tile := range tiles {
		value := tile.value
		if tile.bad {
			value += " " + m.paint.Up + format.Number(t.recentFailed)
			value = m.paint.Alarm.Render(value)
		} else {
			value = m.paint.Title.Render(value)
		}
		lines[0] += m.paint.Fit(m.paint.Muted.Render(tile.title), cells)
		lines[1] += m.paint.Fit(value, cells)
		bar := ""
		if tile.size >= 0 {
			bar = strings.Repeat(string(m.paint.Bar), min(magnitude(tile.size), 10))
		}
		lines[2] += m.paint.Fit(m.paint.Muted.Render(bar), cells)
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

func (m *Model) tilesNarrow() []string {
	t := m.totals()
	failed := "fail " + format.Capped(t.failed)
	if t.recentFailed > 0 {
		failed = m.paint.Alarm.Render("FAIL " + format.Capped(t.failed) + " " + m.paint.Up + format.Number(t.recentFailed))
	}
	running := format.Number(t.running)
	if t.slots > 0 {
		running += "/" + format.Number(t.slots)
	}
	head := "-"
	if t.head != nil {
		head = format.Ago(m.env.now().Sub(*t.head))
	}
	first := fmt.Sprintf(" avail %s  sched %s  run %s  retry %s  %s  oldest %s", m.paint.Title.Render(format.Capped(t.available)), format.Capped(t.scheduled),
		m.paint.Title.Render(running), format.Capped(t.retrying), failed, head)
	r := m.rates("")
	second := fmt.Sprintf(" done %s/s  fail %s/s  %s  run %s  wait %s", format.Rate(r.completed), format.Rate(r.failed),
		m.paint.Spark(m.series("", false), max(m.width-48, 8)), format.Took(r.run), format.Took(r.wait))
	return []string{first, second}
}

// rates are what ended a second in the last whole minute, and how long it took.
type rates struct {
	completed, failed float64
	run, wait         time.Duration
}

// rates of a queue, or of all. A minute that has only begun says little, and
// so the current one and the one before count together.
func (m *Model) rates(queue string) (r rates) {
	now := m.env.now()
	from := now.Truncate(time.Minute).Add(-time.Minute)
	var runs, done int64
	var run, wait time.Duration
	for _, minute := range m.minutes {
		if minute.At.Before(from) || queue != "" && minute.Queue != queue {
			continue
		}
		done += minute.Completed
		r.failed += float64(minute.Failed)
		runs += minute.Runs()
		run += minute.RunTime
		wait += minute.WaitTime
	}
	span := now.Sub(from).Seconds()
	r.completed, r.failed = float64(done)/span, r.failed/span
	if runs > 0 {
		r.run = run / time.Duration(runs)
	}
	if done > 0 {
		r.wait = wait / time.Duration(done)
	}
	return r
}

// series is a count for each of the last 60 minutes, oldest first.
func (m *Model) series(queue string, failed bool) []int64 {
	values := make([]int64, 60)
	last := m.env.now().Truncate(time.Minute)
	for _, minute := range m.minutes {
		at := 59 - int(last.Sub(minute.At)/time.Minute)
		if at < 0 || at > 59 || queue != "" && minute.Queue != queue {
			continue
		}
		if failed {
			values[at] += minute.Failed
		} else {
			values[at] += minute.Completed
		}
	}
	return values
}

// chart is the throughput of the last hour, three lines high.
func (m *Model) chart() []string {
	r := m.rates("")
	title := fmt.Sprintf(" %s, 60 min   done %s/s   failed %s/s", m.paint.Title.Render("Throughput"), format.Rate(r.completed), format.Rate(r.failed))
	lines := []string{m.paint.Spread(title, fmt.Sprintf("run avg %s   wait avg %s ", format.Took(r.run), format.Took(r.wait)), m.width)}
	values := m.series("", false)
	for i, columns := range m.paint.Chart(values, 2) {
		label := ""
		if i == 0 {
			label = format.Rate(float64(max(slices.Max(values), 1)) / 60)
		}
		lines = append(lines, m.paint.FitRight(label, 8)+" |"+columns)
	}
	return append(lines, m.paint.FitRight("0", 8)+" +"+strings.Repeat(m.paint.Theme.Rule, 60)+"  failed: "+m.paint.Spark(m.series("", true), 40))
}

func queueColumns() []widget.Column {
	return []widget.Column{
		widget.Left("NAME", 0, 0),
		widget.Right("SLOTS", 6, 5),
		widget.Right("RUN", 6, 0),
		widget.Right("AVAIL", 7, 0),
		widget.Right("SCHED", 7, 4),
		widget.Right("RETRY", 6, 3),
		widget.Right("FAIL", 7, 0),
		widget.Right("OLD", 6, 1),
		widget.Right("/s", 8, 2),
		widget.Left("60 MIN", 16, 3),
	}
}

// queueTable lists queues with a cursor.
func (m *Model) queueTable(height int, order string) []string {
	lines := []string{m.paint.Rule(m.width, fmt.Sprintf("Queues %d", len(m.queues)), order)}
	columns := widget.ColumnsFor(queueColumns(), m.width-2, 14)
	lines = append(lines, m.paint.Header(columns, m.width))
	at := m.queueAt()
	offset := widget.Window(0, at, len(m.queues), height)
	for i := offset; i < min(offset+height, len(m.queues)); i++ {
		lines = append(lines, m.queueRow(columns, m.queues[i], i == at))
	}
	if len(m.queues) == 0 {
		lines = append(lines, "  "+m.paint.Muted.Render("no queues yet: enqueue a job, or start a worker"))
	}
	return lines
}

func (m *Model) queueRow(columns []widget.Column, q jobq.Queue, selected bool) string {
	now := m.env.now()
	name := widget.Clean(q.Name)
	if q.PausedAt != nil {
		name += " " + m.paint.Warn.Render(m.paint.Pause+" PAUSED "+format.Ago(now.Sub(*q.PausedAt)))
	}
	old, failed := "-", format.Capped(q.Failed)
	if q.HeadRunAt != nil {
		wait := now.Sub(*q.HeadRunAt)
		if old = format.Ago(wait); wait > waitTrouble {
			old = m.paint.Alarm.Render(old + "!")
		}
	}
	if slices.ContainsFunc(m.failures, func(f jobq.Failure) bool { return f.Queue == q.Name }) {
		failed = m.paint.Alarm.Render(failed + "!")
	}
	marks := "  "
	if selected {
		marks = m.paint.Title.Render("> ")
	}
	return m.paint.Row(columns, m.width, marks, map[string]string{
		"NAME": name, "SLOTS": format.Number(q.Slots), "RUN": format.Number(q.Running), "AVAIL": format.Capped(q.Available), "SCHED": format.Capped(q.Scheduled),
		"RETRY": format.Capped(q.Retrying), "FAIL": failed, "OLD": old, "/s": format.Rate(m.rates(q.Name).completed),
		"60 MIN": m.paint.Spark(m.series(q.Name, false), 16),
	})
}

// queueAt is where the cursor's queue is.
func (m *Model) queueAt() int { return m.cursor[screenQueues].in(len(m.queues), m.queueName) }

func (m *Model) queueName(i int) string { return m.queues[i].Name }
