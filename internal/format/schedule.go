package format

import (
	"fmt"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/when"
	"github.com/jobq-dev/jobq/monitor"
)

// LateMin is by how much the next tick of a schedule must be past before the schedule
// is called late: what runs needs a moment for it.
const LateMin = time.Minute

// ScheduleWhen says in a few words when a schedule fires.
func ScheduleWhen(s monitor.Schedule) string {
	if s.Cron == "" {
		return "every " + when.FormatDuration(s.Every)
	}
	return s.Cron + " " + s.TimeZone
}

// ScheduleState says whether a schedule works.
func ScheduleState(s monitor.Schedule, now time.Time) string {
	switch {
	case s.PausedAt != nil:
		return fmt.Sprintf("paused %s by %s", When(*s.PausedAt, now), s.PausedBy)
	case s.Error != "":
		return "fails: " + s.Error
	case s.NextAt == nil:
		return "has no ticks"
	case s.Late > LateMin:
		return "late by " + Ago(s.Late) + ": does a janitor run?"
	case s.LastLeftOut:
		return "last tick left out"
	}
	return "ok"
}

// ScheduleNext is the next tick by the clocks of the schedule's time zone.
func ScheduleNext(s monitor.Schedule, now time.Time) string {
	if s.NextAt == nil {
		return "none"
	}
	return InZone(*s.NextAt, s.TimeZone) + ", " + UntilTick(*s.NextAt, now)
}

// UntilTick says how far off a tick is.
func UntilTick(tick, now time.Time) string {
	if !tick.After(now) {
		return "now"
	}
	return "in " + when.FormatDuration(tick.Sub(now).Round(time.Second))
}

// InZone writes a moment as the clocks of a time zone show it, or of UTC where this
// machine does not know the zone.
func InZone(moment time.Time, name string) string {
	zone, err := time.LoadLocation(name)
	if err != nil {
		zone = time.UTC
	}
	return moment.In(zone).Format("Mon 2006-01-02 15:04:05 MST")
}

// ScheduleCatchUp says what becomes of ticks that were missed.
func ScheduleCatchUp(s monitor.Schedule) string {
	switch s.CatchUp {
	case jobq.CatchUpNone:
		return "none"
	case jobq.CatchUpAll:
		return fmt.Sprintf("all, at most %d, within %s", s.CatchUpMax, when.FormatDuration(s.CatchUpWithin))
	default:
		return fmt.Sprintf("%s, within %s", s.CatchUp, when.FormatDuration(s.CatchUpWithin))
	}
}

// TickJob is the job of a tick and its state, in words where there is none.
func TickJob(tick monitor.Tick) (job, state string) {
	switch {
	case tick.JobID == 0:
		return "none", "left out: the job before was unfinished"
	case tick.State == "":
		return fmt.Sprint(tick.JobID), "gone"
	}
	return fmt.Sprint(tick.JobID), string(tick.State)
}
