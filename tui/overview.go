package tui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jobq-dev/jobq"
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
		lines = append(lines, "", m.rule(m.width, fmt.Sprintf("Needs attention %d", len(attention)), "Live activity"))
		half := m.width / 2
		room := max(m.layout().body-len(lines), 0)
		for i := range room {
			left, right := "", ""
			if i < len(attention) {
				left = attention[i]
			}
			if i < len(m.activity) {
				right = " " + m.activityLine(m.activity[i])
			} else if i == 0 {
				right = " " + m.noActivity()
			}
			lines = append(lines, m.fit(left, half)+dim("│")+m.fit(right, m.width-half-1))
		}
		return lines
	}
	lines = append(lines, m.rule(m.width, fmt.Sprintf("Needs attention %d", len(attention))))
	lines = append(lines, attention[:min(len(attention), 3)]...)
	lines = append(lines, m.rule(m.width, "Activity"))
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
		return styled(sgrYellow, queryProblem(err))
	}
	return dim("asking the database " + m.env.glyphs.more)
}

// tiles are the counts, each with a bar in proportion to its logarithm.
func (m *Model) tiles() []string {
	t := m.totals()
	type tile struct {
		title, value string
		size         int64
		bad          bool
	}
	running := number(t.running)
	if t.slots > 0 {
		running += "/" + number(t.slots)
	}
	head := "-"
	if t.head != nil {
		head = clean(t.headQueue) + " " + ago(m.env.now().Sub(*t.head))
	}
	tiles := []tile{
		{"AVAILABLE", capped(t.available), t.available, false},
		{"SCHEDULED", capped(t.scheduled), t.scheduled, false},
		{"RUNNING", running, t.running, false},
		{"RETRYING", capped(t.retrying), t.retrying, false},
		{"FAILED", capped(t.failed), t.failed, t.recentFailed > 0},
		{"CANCELLED", capped(t.cancelled), t.cancelled, false},
		{"COMPLETED 1h", number(t.completed), t.completed, false},
		{"OLDEST", head, -1, false},
	}
	const cells = 14
	lines := []string{" ", " ", " "}
	for _, tile := range tiles {
		value := tile.value
		if tile.bad {
			value += " " + m.env.glyphs.up + number(t.recentFailed)
			value = red(value)
		} else {
			value = bold(value)
		}
		lines[0] += m.fit(dim(tile.title), cells)
		lines[1] += m.fit(value, cells)
		bar := ""
		if tile.size >= 0 {
			bar = strings.Repeat(m.env.glyphs.bar, min(magnitude(tile.size), 10))
		}
		lines[2] += m.fit(dim(bar), cells)
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
	failed := "fail " + capped(t.failed)
	if t.recentFailed > 0 {
		failed = red("FAIL " + capped(t.failed) + " " + m.env.glyphs.up + number(t.recentFailed))
	}
	running := number(t.running)
	if t.slots > 0 {
		running += "/" + number(t.slots)
	}
	head := "-"
	if t.head != nil {
		head = ago(m.env.now().Sub(*t.head))
	}
	first := fmt.Sprintf(" avail %s  sched %s  run %s  retry %s  %s  oldest %s", bold(capped(t.available)), capped(t.scheduled),
		bold(running), capped(t.retrying), failed, head)
	r := m.rates("")
	second := fmt.Sprintf(" done %s/s  fail %s/s  %s  run %s  wait %s", rate(r.completed), rate(r.failed),
		m.spark(m.series("", false), max(m.width-48, 8)), took(r.run), took(r.wait))
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

func rate(perSecond float64) string {
	if perSecond >= 100 {
		return number(int64(perSecond))
	}
	return fmt.Sprintf("%.1f", perSecond)
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
	title := fmt.Sprintf(" %s, 60 min   done %s/s   failed %s/s", bold("Throughput"), rate(r.completed), rate(r.failed))
	lines := []string{m.spread(title, fmt.Sprintf("run avg %s   wait avg %s ", took(r.run), took(r.wait)), m.width)}
	values := m.series("", false)
	top := max(slices.Max(values), 1)
	const height = 2
	runes := m.env.glyphs.spark
	for row := range height {
		label := ""
		if row == 0 {
			label = rate(float64(top) / 60)
		}
		line := m.fitRight(label, 8) + " |"
		for _, value := range values {
			level := int(value*int64(height*len(runes))/top) - (height-1-row)*len(runes)
			switch {
			case level >= len(runes):
				line += string(runes[len(runes)-1])
			case level > 0:
				line += string(runes[level-1])
			default:
				line += " "
			}
		}
		lines = append(lines, line)
	}
	return append(lines, m.fitRight("0", 8)+" +"+strings.Repeat(m.env.glyphs.rule, 60)+"  failed: "+m.spark(m.series("", true), 40))
}

func queueColumns() []column {
	return []column{
		{"NAME", 0, false, 0},
		{"SLOTS", 6, true, 5},
		{"RUN", 6, true, 0},
		{"AVAIL", 7, true, 0},
		{"SCHED", 7, true, 4},
		{"RETRY", 6, true, 3},
		{"FAIL", 7, true, 0},
		{"OLD", 6, true, 1},
		{"/s", 8, true, 2},
		{"60 MIN", 16, false, 3},
	}
}

// queueTable lists queues with a cursor.
func (m *Model) queueTable(height int, order string) []string {
	lines := []string{m.rule(m.width, fmt.Sprintf("Queues %d", len(m.queues)), order)}
	columns := columnsFor(queueColumns(), m.width-2, 14)
	lines = append(lines, m.tableHeader(columns, m.width))
	at := m.queueAt()
	offset := window(0, at, len(m.queues), height)
	for i := offset; i < min(offset+height, len(m.queues)); i++ {
		lines = append(lines, m.queueRow(columns, m.queues[i], i == at))
	}
	if len(m.queues) == 0 {
		lines = append(lines, "  "+dim("no queues yet: enqueue a job, or start a worker"))
	}
	return lines
}

func (m *Model) queueRow(columns []column, q jobq.Queue, selected bool) string {
	now := m.env.now()
	name := clean(q.Name)
	if q.PausedAt != nil {
		name += " " + styled(sgrYellow, m.env.glyphs.pause+" PAUSED "+ago(now.Sub(*q.PausedAt)))
	}
	old, failed := "-", capped(q.Failed)
	if q.HeadRunAt != nil {
		wait := now.Sub(*q.HeadRunAt)
		if old = ago(wait); wait > waitTrouble {
			old = red(old + "!")
		}
	}
	if slices.ContainsFunc(m.failures, func(f jobq.Failure) bool { return f.Queue == q.Name }) {
		failed = red(failed + "!")
	}
	marks := "  "
	if selected {
		marks = bold("> ")
	}
	return m.tableRow(columns, m.width, marks, map[string]string{
		"NAME": name, "SLOTS": number(q.Slots), "RUN": number(q.Running), "AVAIL": cappedAt(q.Available, q.AvailableMax), "SCHED": capped(q.Scheduled),
		"RETRY": capped(q.Retrying), "FAIL": failed, "OLD": old, "/s": rate(m.rates(q.Name).completed),
		"60 MIN": m.spark(m.series(q.Name, false), 16),
	})
}

// queueAt is where the cursor's queue is.
func (m *Model) queueAt() int { return m.cursor[screenQueues].in(len(m.queues), m.queueName) }

func (m *Model) queueName(i int) string { return m.queues[i].Name }
