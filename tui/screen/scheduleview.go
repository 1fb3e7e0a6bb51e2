package screen

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/widget"
)

// nextTicks is how many ticks to come an open schedule shows.
const nextTicks = 5

// low says that there is no room for all facts of a schedule.
func (s *ScheduleList) low() bool { return s.lines < 15 }

// factLines are those of the selected schedule: a line that parts them, and its facts.
func (s *ScheduleList) factLines() int {
	if s.low() {
		return 4
	}
	return 6
}

// openLines are those of an open schedule above its first tick: its facts, its next
// ticks, and the head of the list.
func (s *ScheduleList) openLines() int {
	if s.low() {
		return s.factLines() + 1 + headLines
	}
	return s.factLines() + nextTicks + headLines
}

// View draws the schedules, or the one that is open.
func (s *ScheduleList) View() View {
	if !s.Facts.Known(data.Schedules) {
		return View{Lines: []string{"", " " + s.waiting(data.Schedules)}, Cursor: -1}
	}
	schedule := s.selected()
	switch {
	case schedule == nil:
		return View{Lines: s.none(), Cursor: -1}
	case s.open != "":
		return s.viewOpen(*schedule)
	}
	title := "Schedules " + s.position()
	if len(s.Facts.Schedules) >= data.SchedulesMax {
		title += ", the first ones; `jobq schedules list` has all"
	}
	stateMin := 16
	if s.wide() {
		stateMin = 30 // at the cost of the queue, which the facts below have
	}
	columns := widget.ColumnsFor([]widget.Column{
		widget.Left("NAME", 14, 0).UpTo(20),
		widget.Left("WHEN", 20, 1).UpTo(30),
		widget.Left("KIND", 12, 5).UpTo(24),
		widget.Right("LAST", 5, 4),
		widget.Right("NEXT", 5, 0),
		widget.Left("AT", 16, 3).UpTo(28),
		widget.Left("QUEUE", 10, 6).UpTo(20),
		widget.Left("STATE", 0, 0).UpTo(27),
	}, s.cells-2, stateMin)
	lines := []string{s.Paint.Rule(s.cells, title), s.Paint.Header(columns, s.cells)}
	first, end := s.list.Shown(s.rows)
	for i := first; i < end; i++ {
		lines = append(lines, s.row(columns, s.Facts.Schedules[i], i == s.at()))
	}
	lines = append(lines, s.facts(*schedule)...)
	lines = append(lines, " next      "+format.ScheduleNext(*schedule, s.Paint.Now()))
	return View{Lines: lines, Cursor: s.cursor()}
}

// none is what stands where there are no schedules.
func (s *ScheduleList) none() []string {
	return []string{
		s.Paint.Rule(s.cells, "Schedules 0"), "",
		"  " + s.Paint.Muted.Render("there are no schedules: one adds a job by itself, at times or every so often"), "",
		"  " + s.Paint.Muted.Render("jobq schedules add report --cron '0 9 * * mon' --kind report"),
		"  " + s.Paint.Muted.Render("jobq schedules add sync --every 5m --kind sync"),
	}
}

func (s *ScheduleList) row(columns []widget.Column, schedule monitor.Schedule, selected bool) string {
	now := s.Paint.Now()
	last, next, at := "-", "-", "-"
	if schedule.LastTickAt != nil {
		last = format.Ago(now.Sub(*schedule.LastTickAt))
	}
	if schedule.NextAt != nil {
		next, at = "now", format.InZone(*schedule.NextAt, schedule.TimeZone)
		if in := schedule.NextAt.Sub(now); in >= time.Second {
			next = format.Ago(in)
		}
	}
	if widget.Cells(columns, "AT") < len("Mon 2006-01-02 15:04:05 MST") { // the year and seconds go first
		at = shortTick(schedule)
	}
	return s.Paint.Row(columns, s.cells, s.marks(selected), map[string]string{
		"NAME": widget.Clean(schedule.Name), "WHEN": widget.Clean(format.ScheduleWhen(schedule)), "KIND": widget.Clean(schedule.Kind),
		"QUEUE": widget.Clean(schedule.Queue), "LAST": last, "NEXT": next, "AT": at, "STATE": s.state(schedule),
	})
}

// shortTick is the next tick in few cells, by the clocks of the schedule's zone.
func shortTick(schedule monitor.Schedule) string {
	if schedule.NextAt == nil {
		return "-"
	}
	full := format.InZone(*schedule.NextAt, schedule.TimeZone) // Mon 2006-01-02 15:04:05 MST
	return full[:len("Mon ")] + full[len("Mon 2006-"):len("Mon 2006-01-02 15:04")]
}

// state says whether a schedule works, in the style that this deserves.
func (s *ScheduleList) state(schedule monitor.Schedule) string {
	text := widget.Clean(format.ScheduleState(schedule, s.Paint.Now()))
	switch {
	case schedule.PausedAt != nil:
		return s.Paint.Warn.Render(text)
	case schedule.Error != "", schedule.Late > format.LateMin:
		return s.Paint.Alarm.Render(text)
	case schedule.LastLeftOut:
		return s.Paint.Warn.Render(text)
	}
	return text
}

// facts are what a schedule is: factLines lines, those that matter most first.
func (s *ScheduleList) facts(schedule monitor.Schedule) []string {
	state := s.state(schedule)
	switch {
	case schedule.PausedAt != nil && schedule.PauseReason != "":
		state += ": " + widget.Clean(schedule.PauseReason)
	case schedule.Error != "" && schedule.ErrorAt != nil:
		state += fmt.Sprintf(" (%s, %s in a row)", format.When(*schedule.ErrorAt, s.Paint.Now()), format.Count(schedule.Failures, "failure"))
	}
	last := "none yet"
	if schedule.LastTickAt != nil {
		last = format.InZone(*schedule.LastTickAt, schedule.TimeZone) + ", " + format.When(*schedule.LastTickAt, s.Paint.Now())
	}
	lines := []string{
		s.Paint.Rule(s.cells, widget.Clean(schedule.Name)),
		" state     " + state,
		" when      " + widget.Clean(format.ScheduleWhen(schedule)),
		" adds      " + widget.Clean(fmt.Sprintf("%s to queue %s%s, args %s", schedule.Kind, schedule.Queue, keyOf(schedule), cmp.Or(string(schedule.Args), "of more than 1000 bytes"))),
		" missed    " + widget.Clean(fmt.Sprintf("catch up %s; overlap %s%s", format.ScheduleCatchUp(schedule), schedule.Overlap, sourceOf(schedule))),
		" last tick " + last,
	}
	return lines[:s.factLines()]
}

func keyOf(schedule monitor.Schedule) string {
	if schedule.PartitionKey == "" {
		return ""
	}
	return ", partition key " + schedule.PartitionKey
}

func sourceOf(schedule monitor.Schedule) string {
	if schedule.Source == "" {
		return ""
	}
	return "; declared in " + schedule.Source
}

// viewOpen draws a schedule with its ticks.
func (s *ScheduleList) viewOpen(schedule monitor.Schedule) View {
	now := s.Paint.Now()
	lines := s.facts(schedule)
	next := schedule.After(now, nextTicks)
	for i := range s.openLines() - len(lines) - headLines {
		label, text := "", ""
		if i == 0 {
			label, text = "next", cmp.Or(s.noNext(schedule, next), "none")
		}
		if schedule.PausedAt == nil && i < len(next) {
			text = format.InZone(next[i], schedule.TimeZone) + ", " + format.UntilTick(next[i], now)
		}
		lines = append(lines, fmt.Sprintf(" %-9s %s", label, text))
	}
	columns := widget.ColumnsFor([]widget.Column{
		widget.Left("TICK", 27, 0),
		widget.Right("AGO", 5, 2),
		widget.Right("JOB", 12, 0),
		widget.Left("STATE", 0, 0),
	}, s.cells-2, 10)
	lines = append(lines, s.Paint.Rule(s.cells, "Ticks "+s.ticks.position(), "newest first"), s.Paint.Header(columns, s.cells))
	switch {
	case s.ticks.of != s.open:
		return View{Lines: append(lines, "  "+s.waiting(data.Ticks)), Cursor: -1}
	case len(s.ticks.known) == 0:
		return View{Lines: append(lines, "  "+s.Paint.Muted.Render("none in the last 7 days")), Cursor: -1}
	}
	first, end := s.ticks.list.Shown(&s.ticks)
	for i := first; i < end; i++ {
		tick := s.ticks.known[i]
		job, state := format.TickJob(tick)
		lines = append(lines, s.Paint.Row(columns, s.cells, s.marks(i == s.ticks.at()), map[string]string{
			"TICK": format.InZone(tick.At, schedule.TimeZone), "AGO": format.Ago(now.Sub(tick.At)), "JOB": job, "STATE": state,
		}))
	}
	return View{Lines: lines, Cursor: s.ticks.cursor()}
}

// noNext says why no tick is to come, where one would.
func (s *ScheduleList) noNext(schedule monitor.Schedule, next []time.Time) string {
	if schedule.PausedAt != nil && len(next) > 0 {
		return "none while it is paused, else " + format.InZone(next[0], schedule.TimeZone)
	}
	return ""
}

// Told is the list, or the open schedule, in words.
func (s *ScheduleList) Told() []string {
	schedule := s.selected()
	if s.open != "" && schedule != nil {
		lines := []string{s.told(*schedule), "next: " + strings.Join(s.toldNext(*schedule), "; ")}
		for i, tick := range s.ticks.known {
			job, state := format.TickJob(tick)
			lines = append(lines, toldRow(i, len(s.ticks.known), i == s.ticks.at(), fmt.Sprintf("%s, job %s, %s", format.InZone(tick.At, schedule.TimeZone), job, state)))
		}
		return lines
	}
	lines := []string{format.Count(len(s.Facts.Schedules), "schedule")}
	for i, one := range s.Facts.Schedules {
		lines = append(lines, toldRow(i, len(s.Facts.Schedules), i == s.at(), s.told(one)))
	}
	return lines
}

func (s *ScheduleList) told(schedule monitor.Schedule) string {
	now := s.Paint.Now()
	return widget.Clean(fmt.Sprintf("%s, %s, %s in queue %s%s, next tick %s, %s", schedule.Name, format.ScheduleWhen(schedule), schedule.Kind, schedule.Queue, keyOf(schedule),
		format.ScheduleNext(schedule, now), format.ScheduleState(schedule, now)))
}

func (s *ScheduleList) toldNext(schedule monitor.Schedule) []string {
	if schedule.PausedAt != nil {
		return []string{"none while it is paused"}
	}
	var next []string
	for _, tick := range schedule.After(s.Paint.Now(), nextTicks) {
		next = append(next, format.InZone(tick, schedule.TimeZone))
	}
	return next
}
