package tui

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/tui/widget"
)

// attemptLines are the runs, newest first.
func (m *Model) attemptLines() []string {
	lines := []string{m.paint.Rule(m.width, "Attempts")}
	columns := widget.ColumnsFor([]widget.Column{
		widget.Right("#", 3, 0), widget.Left("OUTCOME", 10, 0), widget.Left("STARTED", 11, 2), widget.Right("TOOK", 8, 0), widget.Left("WORKER", 28, 3), widget.Left("ERROR", 0, 1),
	}, m.width-2, 12)
	lines = append(lines, m.paint.Header(columns, m.width))
	job, runs := m.job.story.job, m.job.story.runs
	if job.State == jobq.Running && job.StartedAt != nil {
		marks := "  "
		if m.job.run == 0 {
			marks = m.paint.Title.Render("> ")
		}
		lines = append(lines, m.paint.Row(columns, m.width, marks, map[string]string{
			"#": strconv.Itoa(job.Attempts + 1), "OUTCOME": m.paint.Running.Render("running"), "STARTED": m.paint.Clock(*job.StartedAt),
			"TOOK": format.Took(m.env.now().Sub(*job.StartedAt)), "WORKER": widget.Clean(job.LeaseOwner),
		}))
	}
	if m.job.story.unrecorded() {
		lines = append(lines, m.paint.Row(columns, m.width, "  ", map[string]string{
			"#": strconv.Itoa(job.Attempts + 1), "OUTCOME": m.outcomeText(jobq.OutcomeCompleted), "STARTED": m.paint.Clock(*job.StartedAt),
			"TOOK": format.Took(job.FinishedAt.Sub(*job.StartedAt)), "WORKER": widget.Clean(job.LeaseOwner),
		}))
	}
	const shown = 6
	first := max(m.job.run-shown+1, 0)
	for i := first; i < min(first+shown, len(runs)); i++ {
		run := runs[len(runs)-1-i]
		marks := "  "
		if i+m.job.under() == m.job.run {
			marks = m.paint.Title.Render("> ")
		}
		lines = append(lines, m.paint.Row(columns, m.width, marks, map[string]string{
			"#": strconv.Itoa(run.Number), "OUTCOME": m.outcomeText(run.Outcome), "STARTED": m.paint.Clock(run.StartedAt),
			"TOOK": format.Took(run.FinishedAt.Sub(run.StartedAt)), "WORKER": widget.Clean(run.WorkerID), "ERROR": widget.FirstLine(run.Error),
		}))
	}
	if len(runs) == 0 && job.State != jobq.Running && !m.job.story.unrecorded() {
		lines = append(lines, "  "+m.paint.Muted.Render("has not run yet"))
	}
	return lines
}

func (m *Model) outcomeText(outcome jobq.Outcome) string {
	switch outcome {
	case jobq.OutcomeCompleted:
		return m.paint.Good.Render(string(outcome))
	case jobq.OutcomeFailed, jobq.OutcomeTimedOut, jobq.OutcomeLost:
		return m.paint.Error.Render(string(outcome))
	case jobq.OutcomeCancelled, jobq.OutcomeReleased, jobq.OutcomeSnoozed:
	}
	return string(outcome)
}

// unrecorded says that the last run succeeded without output: such a run
// leaves no record of its own.
func (s jobStory) unrecorded() bool {
	job := s.job
	return job.State == jobq.Completed && job.StartedAt != nil && job.FinishedAt != nil &&
		!slices.ContainsFunc(s.runs, func(run jobq.Attempt) bool { return run.LeaseToken == job.LeaseToken })
}

// moment is something that happened to a job.
type moment struct {
	at   time.Time
	text string
}

// moments are all that is known to have happened, oldest first.
func (s jobStory) moments() []moment {
	job := s.job
	moments := []moment{{job.CreatedAt, "created"}}
	for _, run := range s.runs {
		moments = append(moments, moment{run.StartedAt, fmt.Sprintf("attempt %d      %s", run.Number, widget.Clean(run.WorkerID))})
		text := fmt.Sprintf("%s  %s  %s", run.Outcome, format.Took(run.FinishedAt.Sub(run.StartedAt)), widget.FirstLine(run.Error))
		moments = append(moments, moment{run.FinishedAt, text})
	}
	for _, action := range s.actions {
		text := fmt.Sprintf("%s by %s", action.Action, widget.Clean(action.Actor))
		if action.After != action.Before {
			text += fmt.Sprintf(": %s, was %s", action.After, action.Before)
		}
		moments = append(moments, moment{action.At, text})
	}
	if job.StartedAt != nil && (job.FinishedAt == nil || s.unrecorded()) {
		moments = append(moments, moment{*job.StartedAt, fmt.Sprintf("attempt %d      %s", job.Attempts+1, widget.Clean(job.LeaseOwner))})
	}
	if job.FinishedAt != nil {
		moments = append(moments, moment{*job.FinishedAt, string(job.State)})
	}
	if job.State == jobq.Scheduled || job.State == jobq.Available {
		moments = append(moments, moment{job.RunAt, "may run"})
	}
	slices.SortStableFunc(moments, func(a, b moment) int { return a.at.Compare(b.at) })
	return moments
}

// timeline is the last moments, a line each.
func (m *Model) timeline(cells int) []string {
	moments := m.job.story.moments()
	moments = moments[max(len(moments)-9, 0):]
	lines := make([]string, len(moments))
	for i, moment := range moments {
		lines[i] = m.paint.Fit(m.paint.Muted.Render(m.paint.Clock(moment.at))+"  "+moment.text, cells)
	}
	return lines
}

// summary is a job in a few lines, for the preview.
func (m *Model) summary(story jobStory) []string {
	job := story.job
	now := m.env.now()
	state := format.State(job)
	switch {
	case m.paint.Absolute:
		state += " at " + m.paint.Clock(format.Since(job)) + " UTC"
	case job.FinishedAt != nil:
		state += " " + format.Ago(now.Sub(*job.FinishedAt)) + " ago"
	case job.StartedAt != nil:
		state += " for " + format.Ago(now.Sub(*job.StartedAt))
	case job.RunAt.After(now):
		state += ", due in " + format.Ago(job.RunAt.Sub(now))
	default:
		state += " for " + format.Ago(now.Sub(job.RunAt))
	}
	lease := "-"
	if job.LeaseExpiresAt != nil {
		lease = widget.Clean(job.LeaseOwner) + ", ends in " + format.Ago(job.LeaseExpiresAt.Sub(now))
	}
	lines := []string{
		fmt.Sprintf(" state    %s (%d/%d)   queue %s   priority %d   lease %s", m.paint.State(job.State).Render(state), job.Attempts, job.MaxAttempts,
			widget.Clean(job.Queue), job.Priority, lease),
		" args     " + jsonLine(job.Args),
	}
	if len(job.Tags) > 0 || len(job.Metadata) > 0 {
		lines = append(lines, fmt.Sprintf(" tags     %s   metadata %s", widget.Clean(strings.Join(job.Tags, ",")), jsonLine(job.Metadata)))
	}
	if len(story.runs) > 0 {
		var parts []string
		for _, run := range story.runs[max(len(story.runs)-5, 0):] {
			parts = append(parts, fmt.Sprintf("#%d %s %s %s", run.Number, run.Outcome, format.Took(run.FinishedAt.Sub(run.StartedAt)), m.paint.Fit(widget.FirstLine(run.Error), min(widget.Width(widget.FirstLine(run.Error)), 20))))
		}
		lines = append(lines, " attempts "+strings.Join(parts, "   "))
	}
	if job.Progress != nil && job.State == jobq.Running {
		lines = append(lines, " progress "+m.progressText(job.Progress))
	}
	if job.LastError != "" {
		lines = append(lines, " error    "+m.paint.Error.Render(widget.FirstLine(job.LastError)))
	}
	line := " timeline "
	moments := story.moments()
	for i, moment := range moments[max(len(moments)-6, 0):] {
		if i > 0 {
			line += " " + m.paint.Theme.Rule + " "
		}
		word, _, _ := strings.Cut(moment.text, "  ")
		line += m.paint.Clock(moment.at) + " " + word
	}
	return append(lines, line)
}
