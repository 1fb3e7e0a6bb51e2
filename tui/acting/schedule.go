package acting

import (
	"context"
	"fmt"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/screen"
	"github.com/jobq-dev/jobq/tui/widget"
)

// noSchedule says that there is no schedule to act on.
func noSchedule(schedule *monitor.Schedule) func() string {
	return func() string {
		if schedule == nil {
			return "no schedule is selected"
		}
		return ""
	}
}

// pauseScheduleAction pauses a schedule, after asking for a reason, or lets it go on.
func (p *Part) pauseScheduleAction(schedule monitor.Schedule) screen.Action {
	if schedule.PausedAt != nil {
		return screen.Action{Title: command.Resume, Run: func() tea.Msg {
			return p.askedSchedule(command.Resume, schedule.Name, p.changeSchedule(command.Resume, schedule.Name, func(ctx context.Context, w Writer) (int64, error) {
				return w.ResumeSchedule(ctx, schedule.Name)
			}))
		}}
	}
	return screen.Action{Run: func() tea.Msg {
		return request.Prompt{
			Title:  "Pause schedule " + widget.Clean(schedule.Name),
			Note:   "Type the reason, which everybody sees, or nothing.",
			Accept: func(text string) (tea.Msg, error) { return pauseSchedule{schedule.Name, text}, nil },
		}
	}}
}

// pauseSchedule pauses a schedule for a reason.
type pauseSchedule struct{ name, reason string }

func (p *Part) pauseScheduleNow(msg pauseSchedule) tea.Msg {
	return p.askedSchedule(command.Pause, msg.name, p.changeSchedule(command.Pause, msg.name, func(ctx context.Context, w Writer) (int64, error) {
		return w.PauseSchedule(ctx, msg.name, msg.reason)
	}))
}

// runAction adds the job of a schedule now.
func (p *Part) runAction(schedule *monitor.Schedule) screen.Action {
	return screen.Action{Disabled: noSchedule(schedule), Run: func() tea.Msg {
		name := schedule.Name
		return p.askedSchedule(command.RunNow, name, p.change(command.RunNow, timeout, func(ctx context.Context, w Writer) tea.Msg {
			id, err := w.RunSchedule(ctx, name)
			return scheduleActed{name: name, verb: command.RunNow, jobID: id, err: err}
		}))
	}}
}

// removeAction asks whether to remove a schedule.
func (p *Part) removeAction(schedule *monitor.Schedule) screen.Action {
	return screen.Action{Disabled: noSchedule(schedule), Run: func() tea.Msg {
		name := schedule.Name
		ask := request.Ask{
			Title: "remove schedule " + widget.Clean(name),
			Details: []string{
				"effect    it fires no more; jobs that it has added stay",
				p.Key(command.Undo) + " brings it back; what it misses until then is not made up for",
			},
			Yes: p.changeSchedule(command.Remove, name, func(ctx context.Context, w Writer) (int64, error) { return w.RemoveSchedule(ctx, name) }),
		}
		if p.Place().Confirm {
			ask.Typed = request.Typed{Text: command.Remove, Effect: "remove it"}
		}
		return ask
	}}
}

// changeSchedule changes a schedule apart from the UI.
func (p *Part) changeSchedule(verb, name string, change func(context.Context, Writer) (auditID int64, err error)) request.Change {
	return p.change(verb, timeout, func(ctx context.Context, w Writer) tea.Msg {
		id, err := change(ctx, w)
		return scheduleActed{name: name, verb: verb, auditID: id, err: err}
	})
}

// askedSchedule is the change, or the question before it where that is asked for.
func (p *Part) askedSchedule(verb, name string, change request.Change) tea.Msg {
	if !p.Place().Confirm {
		return change
	}
	return request.Ask{Title: fmt.Sprintf("%s schedule %s", verb, widget.Clean(name)), Yes: change}
}

// scheduleActed is what came of an action on a schedule.
type scheduleActed struct {
	name, verb string
	auditID    int64 // 0 when it was so already, and of a run
	jobID      int64 // of a run
	err        error
}

func (p *Part) scheduleChanged(msg scheduleActed) tea.Msg {
	name := widget.Clean(msg.name)
	text := fmt.Sprintf("%sd schedule %s", msg.verb, name)
	switch {
	case msg.err != nil:
		text = msg.verb + ": " + screen.ShortError(msg.err)
	case msg.verb == command.RunNow:
		p.lastAudit = 0 // it is the job that can be cancelled
		text = fmt.Sprintf("schedule %s has added job %d", name, msg.jobID)
	case msg.auditID == 0:
		text = fmt.Sprintf("%s: schedule %s was so already", msg.verb, name)
	default:
		p.lastAudit = msg.auditID
		text += p.undoHint()
	}
	return request.All{request.Tell{Text: text}, request.Renew{Panels: []data.Panel{data.Schedules, data.Ticks}}}
}
