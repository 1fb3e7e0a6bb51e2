package screen

import (
	"context"
	"encoding/json"
	"slices"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/internal/filter"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/request"
)

// ScheduleList is the screen with the schedules. One of them can be opened: then the
// rows are its latest ticks.
type ScheduleList struct {
	table          // of the schedules
	ticks tickList // of the one that is open
	open  string   // its name; empty for none
}

// scheduleRows are the schedules by their names.
type scheduleRows struct{ *data.Facts }

func (r scheduleRows) Len() int          { return len(r.Schedules) }
func (r scheduleRows) Name(i int) string { return r.Schedules[i].Name }

// tickList are the latest ticks of a schedule, newest first.
type tickList struct {
	table
	of    string // the schedule
	known []monitor.Tick
}

func (l *tickList) Len() int          { return len(l.known) }
func (l *tickList) Name(i int) string { return l.known[i].At.String() }

// NewSchedules makes the screen.
func NewSchedules(kit Kit) *ScheduleList {
	s := &ScheduleList{table: table{base: base{Kit: kit}, rows: scheduleRows{kit.Facts}, panel: data.Schedules}}
	s.ticks.table = table{base: base{Kit: kit}, rows: &s.ticks, panel: data.Ticks}
	return s
}

// SetSize gives the rows what is above and below them leaves.
func (s *ScheduleList) SetSize(cells, lines int) {
	s.base.SetSize(cells, lines)
	s.setHeight(headLines, max(lines-headLines-s.factLines()-1, 1))
	top := s.openLines()
	s.ticks.SetSize(cells, lines)
	s.ticks.setHeight(top, max(lines-top, 1))
}

// Wants are the schedules, and the ticks of the one that is open.
func (s *ScheduleList) Wants() []data.Want {
	wants := data.Wants(data.Schedules)
	if name := s.open; name != "" {
		wants = append(wants, data.Want{Panel: data.Ticks, About: name, Ask: func(ctx context.Context, r data.Reader) (any, error) {
			return r.Ticks(ctx, name, data.TicksMax)
		}})
	}
	return wants
}

// Update takes the ticks of the open schedule in, beside what tables take.
func (s *ScheduleList) Update(msg tea.Msg) tea.Msg {
	switch msg := msg.(type) {
	case data.Answer:
		if ticks, ok := msg.Value.([]monitor.Tick); ok && msg.About == s.open {
			s.ticks.of, s.ticks.known = s.open, ticks
		}
		asked := s.table.Update(msg)
		if msg.Panel == data.Schedules && s.selected() == nil { // somebody has removed it
			s.open = ""
		}
		s.ticks.Update(msg)
		return asked
	case Back:
		if s.open != "" {
			s.open = ""
			return request.Done{}
		}
		return nil
	}
	if s.open != "" {
		return s.ticks.Update(msg)
	}
	return s.table.Update(msg)
}

// selected is the open schedule, or the one under the cursor; nil for none.
func (s *ScheduleList) selected() *monitor.Schedule {
	at := s.at()
	if s.open != "" {
		at = slices.IndexFunc(s.Facts.Schedules, func(schedule monitor.Schedule) bool { return schedule.Name == s.open })
	}
	if at < 0 || at >= len(s.Facts.Schedules) {
		return nil
	}
	return &s.Facts.Schedules[at]
}

// tick is the tick under the cursor; nil when no schedule is open, or it has none.
func (s *ScheduleList) tick() *monitor.Tick {
	if s.open == "" || s.ticks.of != s.open || len(s.ticks.known) == 0 {
		return nil
	}
	return &s.ticks.known[s.ticks.at()]
}

// Actions are the moves, and to open a schedule, or the job of a tick.
func (s *ScheduleList) Actions() map[string]Action {
	if s.open != "" {
		actions := s.ticks.moves()
		actions[command.Open] = Action{Disabled: s.noJob, Run: func() tea.Msg { return request.Job{ID: s.tick().JobID} }}
		return actions
	}
	actions := s.moves()
	actions[command.Open] = Action{Disabled: s.noSchedule, Run: s.show}
	return actions
}

func (s *ScheduleList) noSchedule() string {
	if s.selected() == nil {
		return "there is no schedule"
	}
	return ""
}

// noJob says why the tick under the cursor has no job to open.
func (s *ScheduleList) noJob() string {
	switch tick := s.tick(); {
	case tick == nil:
		return "it has no ticks yet"
	case tick.JobID == 0:
		return "the tick was left out: the job before was unfinished"
	}
	return ""
}

// show opens the schedule under the cursor.
func (s *ScheduleList) show() tea.Msg {
	s.move(0)
	s.open = s.selected().Name
	if s.ticks.of != s.open {
		s.ticks.of, s.ticks.known = "", nil
	}
	return s.ticks.move(-len(s.ticks.known))
}

// Selected is the schedule, and the job of its tick.
func (s *ScheduleList) Selected() Selection {
	selected := Selection{Schedule: s.selected(), Noun: "schedules", Rows: func() []json.RawMessage { return encoded(s.Facts.Schedules) }}
	if s.open != "" {
		selected.Noun, selected.Rows = "ticks", func() []json.RawMessage { return encoded(s.ticks.known) }
	}
	if schedule := selected.Schedule; schedule != nil {
		jobs := filter.Term{Field: "meta.schedule", Op: "=", Values: []filter.Value{{Text: schedule.Name}}}
		selected.Match = jobs.String()
	}
	return selected
}
