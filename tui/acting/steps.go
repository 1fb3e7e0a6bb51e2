package acting

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/screen"
	"github.com/jobq-dev/jobq/tui/widget"
)

// fromStepAction lets the job that is shown run again, and do a durable step again with
// all those after it.
func (p *Part) fromStepAction(selected screen.Selection) screen.Action {
	return screen.Action{
		Disabled: func() string {
			if len(selected.Targets) == 1 && len(selected.Steps) == 0 {
				return "the job has no durable steps"
			}
			return Refusal(selected, noFromStep)
		},
		Run: func() tea.Msg { return p.chooseStep(selected.Targets[0], selected.Steps) },
	}
}

// noFromStep is noRequeue, but that a job which is available already can do a step again.
func noFromStep(state jobq.State) string {
	if state == jobq.StateAvailable {
		return ""
	}
	return noRequeue(state)
}

// stepChosen is a step that the job is to do again: the first of again, which are all that
// it came to from there on.
type stepChosen struct {
	target operator.Target
	again  []monitor.Step
}

// chooseStep asks from which step on.
func (p *Part) chooseStep(target operator.Target, steps []monitor.Step) tea.Msg {
	choose := request.Choose{
		Title: fmt.Sprintf("Requeue job %d from a step", target.ID), Hint: "enter or a number: this step and those after it   esc: leave", At: len(steps) - 1,
	}
	for i, step := range steps {
		state, _ := format.StepState(step)
		choose.Items = append(choose.Items, request.Item{
			Text: widget.Clean(fmt.Sprintf("%-24s %s", step.Name, state)), Then: stepChosen{target, steps[i:]},
		})
	}
	if len(steps) == screen.StepsMax {
		choose.Notes = []string{"There may be earlier ones: " + p.Place().Program.Line(fmt.Sprintf("requeue %d --from-step NAME", target.ID))}
	}
	return choose
}

// askFromStep asks whether to do that, and says what is forgotten.
func (p *Part) askFromStep(chosen stepChosen) tea.Msg {
	id, name, place := chosen.target.ID, chosen.again[0].Name, p.Place()
	undone := p.Key(command.Undo) + " brings the job back, but not that"
	if chosen.target.State == jobq.StateAvailable {
		undone = "that cannot be undone" // and the job stays as it is
	}
	details := []string{
		"effect    it may run at once, and does again: " + namesOf(chosen.again, func(monitor.Step) bool { return true }),
		"forgotten what these steps have stored; " + undone,
	}
	waits := func(step monitor.Step) bool { return step.Type == monitor.StepEvent && step.FinishedAt == nil }
	if kept := namesOf(chosen.again, waits); kept != "" {
		details = append(details, "kept      the wait for the event "+kept+", with its timeout")
	}
	details = append(details,
		"          if the job has changed meanwhile, nothing is done",
		"as a command   "+widget.Clean(place.Program.Line(fmt.Sprintf("requeue %d --from-step %s", id, format.ShellWord(name)))))
	ask := request.Ask{
		Title: fmt.Sprintf("requeue job %d, %s, from step %s", id, chosen.target.State, widget.Clean(name)), Details: details,
		Yes: p.change(command.RequeueFromStep, timeout, func(ctx context.Context, w Writer) tea.Msg {
			acted, again, err := w.RequeueFromStep(ctx, chosen.target, name)
			return fromStep{Result{command.Requeue, acted, err}, again}
		}),
	}
	if place.Confirm {
		ask.Typed = request.Typed{Text: strconv.Itoa(len(chosen.again)), Meaning: "the number of steps", Effect: "do them again"}
	}
	return ask
}

// namesMax is how many steps a question names.
const namesMax = 8

// namesOf are the names of those of the steps that are meant, the first ones.
func namesOf(steps []monitor.Step, isMeant func(monitor.Step) bool) string {
	var names []string
	count := 0
	for _, step := range steps {
		if !isMeant(step) {
			continue
		}
		if count++; count <= namesMax {
			names = append(names, widget.Clean(step.Name))
		}
	}
	text := strings.Join(names, ", ")
	if count > namesMax {
		text += fmt.Sprintf(" and %d more", count-namesMax)
	}
	return text
}

// fromStep is what came of a requeue from a step.
type fromStep struct {
	Result
	again int // how many steps the job does again
}

// Text says what came of it.
func (r fromStep) Text() string {
	if r.Failed() {
		return r.Result.Text()
	}
	return r.Result.Text() + ", and does " + format.Count(r.again, "step") + " again"
}
