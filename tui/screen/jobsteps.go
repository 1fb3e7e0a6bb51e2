package screen

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/widget"
)

const (
	// StepsMax is how many steps of a job are read, the last ones: `jobq show` has all.
	StepsMax = 100
	// stepsShown is how many of them are on the page at once.
	stepsShown = 6
)

// loadSteps asks for the last durable steps of a job, with their results decoded as far as
// that can be done.
func loadSteps(ctx context.Context, r data.Reader, job *jobq.Job, codec jobq.Codec) ([]monitor.Step, error) {
	steps, err := r.LastSteps(ctx, job.ID, StepsMax)
	if err != nil || codec == nil {
		return steps, err
	}
	for i := range steps {
		_ = steps[i].Decode(ctx, codec, job) // what cannot be decoded is shown by the name of its key
	}
	return steps, nil
}

// stepLines are the last steps, in the order in which the job came to them; none for a
// job without steps.
func (s *JobPage) stepLines() []string {
	all := s.story.steps
	if len(all) == 0 {
		return nil
	}
	title := "Steps " + strconv.Itoa(len(all))
	if len(all) > stepsShown {
		title = fmt.Sprintf("Steps, the last %d; jobq show %d lists all", stepsShown, s.id)
	}
	columns := widget.ColumnsFor([]widget.Column{
		widget.Right("#", 3, 2), widget.Left("NAME", 16, 0).UpTo(32), widget.Left("TYPE", 5, 3), widget.Left("STARTED", 11, 4), widget.Right("TOOK", 8, 1),
		widget.Left("STATE", 0, 0).UpTo(48),
	}, s.cells-2, 24)
	lines := []string{s.Paint.Rule(s.cells, title), s.Paint.Header(columns, s.cells)}
	for _, step := range all[max(len(all)-stepsShown, 0):] {
		ended := s.Paint.Now()
		if step.FinishedAt != nil {
			ended = *step.FinishedAt
		}
		lines = append(lines, s.Paint.Row(columns, s.cells, "  ", map[string]string{
			"#": strconv.Itoa(step.Number), "NAME": widget.Clean(step.Name), "TYPE": string(step.Type), "STARTED": s.Paint.Clock(step.StartedAt),
			"TOOK": format.Took(ended.Sub(step.StartedAt)), "STATE": s.stepState(step),
		}))
	}
	return lines
}

// stepState is what a step has come to, and the beginning of its result.
func (s *JobPage) stepState(step monitor.Step) string {
	text, until := format.StepState(step)
	if until != nil {
		text += " until " + s.Paint.Clock(*until)
	}
	if step.Attempts > 1 {
		text += fmt.Sprintf(", begun %d times", step.Attempts)
	}
	switch {
	case step.FinishedAt == nil:
		text = s.Paint.Scheduled.Render(text)
	case step.TimedOut:
		text = s.Paint.Warn.Render(text)
	default:
		text = s.Paint.Completed.Render(text)
	}
	if result := format.StepResult(step); result != "" {
		text += "  " + widget.Clean(result)
	}
	return text
}

// toldSteps are the steps in words.
func (s *JobPage) toldSteps() (lines []string) {
	for _, step := range s.story.steps {
		text := fmt.Sprintf("step %d %s: %s", step.Number, step.Name, format.Step(step, s.Paint.Now()))
		if result := format.StepResult(step); result != "" {
			text += "  " + result
		}
		lines = append(lines, widget.Clean(text))
	}
	return lines
}
