package acting

import (
	"context"
	"fmt"
	"strconv"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/screen"
)

// Refusal says why an action on what is selected makes no sense, if so. Only of one
// job is its state checked: with many, the answer says it for each.
func Refusal(selected screen.Selection, check func(jobq.State) string) string {
	switch {
	case selected.Counting:
		return "the jobs that match are still being counted"
	case selected.All != nil:
		return ""
	case len(selected.Targets) == 0:
		return "no job is selected"
	case len(selected.Targets) == 1:
		return check(selected.Targets[0].State)
	}
	return ""
}

func noRequeue(state jobq.State) string {
	switch state {
	case jobq.StateRunning:
		return "the job is running: cancel it first, or let it end"
	case jobq.StateAvailable:
		return "the job is available already"
	case jobq.StateWaiting, jobq.StateScheduled, jobq.StateCompleted, jobq.StateFailed, jobq.StateCancelled:
	}
	return ""
}

func noCancel(state jobq.State) string {
	switch state {
	case jobq.StateCompleted, jobq.StateFailed, jobq.StateCancelled:
		return "the job has ended already: it is " + string(state)
	case jobq.StateWaiting, jobq.StateScheduled, jobq.StateAvailable, jobq.StateRunning:
	}
	return ""
}

func noDelete(state jobq.State) string {
	if state == jobq.StateRunning {
		return "the job is running: cancel it first, or let it end"
	}
	return ""
}

// manyMarks is how many jobs an action may be about before it asks for their
// number, and not just for a yes.
const manyMarks = 100

// act does something to the selected jobs, and asks first where that is due:
// not for one job that undo can bring back, with y for what cannot be taken back
// so easily, and with the number of jobs for many, and in production.
func (p *Part) act(action jobq.Action, selected screen.Selection) tea.Msg {
	if selected.All != nil {
		return p.actOnAll(request.ActOnAll{Action: action, Filter: selected.All.Filter, Snapshot: selected.All.Snapshot})
	}
	targets, confirm := selected.Targets, p.Place().Confirm
	// The action itself is on ids, and on what was seen of them.
	run := p.change(string(action), timeout, func(ctx context.Context, w Writer) tea.Msg {
		acted, err := w.Act(ctx, action, targets...)
		return Result{string(action), acted, err}
	})
	who := about{jobs: len(targets)}
	for _, target := range targets {
		if target.State == jobq.StateRunning {
			who.running++
		}
	}
	runs := who.running > 0
	asks := len(targets) > 1 || action == jobq.ActionDelete || runs || confirm
	if !asks {
		return run
	}
	ask := request.Ask{
		Title:   fmt.Sprintf("%s %s", action, format.Count(int64(len(targets)), "job")),
		Details: []string{"effect    " + p.effectOf(action, who), "          " + who.pick("if it has changed meanwhile, nothing is done", "those that have changed meanwhile are left alone")},
		Yes:     run,
	}
	if len(targets) > manyMarks || confirm && (action == jobq.ActionDelete || len(targets) > 1 || runs) {
		ask.Typed = TypedCount(int64(len(targets)), action)
	}
	if len(targets) == 1 {
		ask.Title = fmt.Sprintf("%s job %d, %s", action, targets[0].ID, targets[0].State)
	}
	return ask
}

// TypedCount asks for the number of jobs that the action is about.
func TypedCount(count int64, action jobq.Action) request.Typed {
	effect := string(action) + " them"
	if count == 1 {
		effect = string(action) + " it"
	}
	return request.Typed{Text: strconv.FormatInt(count, 10), Meaning: "the number of jobs", Effect: effect}
}

// about is which jobs an action is about, for the words that speak of them.
type about struct{ jobs, running int }

// anyJobs are those that match a filter: how many of them run is not known.
var anyJobs = about{jobs: 2, running: 1}

// pick is the words for one job, or those for many.
func (a about) pick(one, many string) string {
	if a.jobs == 1 {
		return one
	}
	return many
}

// effectOf says what the action does to the jobs.
func (p *Part) effectOf(action jobq.Action, who about) string {
	undo := p.Key(command.Undo)
	switch action {
	case jobq.ActionRequeue:
		return who.pick("it may run at once, one attempt more is allowed; ", "they may run at once, each is allowed one attempt more; ") + undo + " undoes it"
	case jobq.ActionCancel:
		switch who.running {
		case 0:
			return who.pick("it will not run; ", "they will not run; ") + undo + " undoes it"
		case who.jobs:
			return who.pick("its worker is asked to stop it", "their workers are asked to stop them") + ", which cannot be undone"
		}
		return "those that wait will not run; those that run are asked to stop"
	case jobq.ActionDelete:
		return who.pick("it is removed with its history; "+undo+" brings it back", "they are removed with their history; "+undo+" brings them back")
	case jobq.ActionEdit:
		return who.pick("it is changed as the audit says; ", "they are changed as the audit says; ") + undo + " undoes it"
	case jobq.ActionClone, jobq.ActionPause, jobq.ActionResume, jobq.ActionKindPause, jobq.ActionKindResume, jobq.ActionKindSettings, jobq.ActionKeyPause, jobq.ActionKeyResume, jobq.ActionKeyWeight,
		jobq.ActionDrain, jobq.ActionLost, jobq.ActionSettings, jobq.ActionExport, jobq.ActionUndo,
		jobq.ActionScheduleSet, jobq.ActionSchedulePause, jobq.ActionScheduleResume, jobq.ActionScheduleRemove, jobq.ActionScheduleRun,
		jobq.ActionHostHold, jobq.ActionHostRelease:
	}
	return string(action)
}

// timeout bounds an action on jobs that are named, on a queue or on a worker.
const timeout = 10 * time.Second

// change is a change that is made apart from the UI, within a time. It is made in
// the database that is shown now, however late it is confirmed.
func (p *Part) change(verb string, limit time.Duration, do func(context.Context, Writer) tea.Msg) request.Change {
	writer := p.Place().Writer
	return request.Change{Verb: verb, Do: request.Begin{Run: func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		return do(ctx, writer)
	}}}
}
