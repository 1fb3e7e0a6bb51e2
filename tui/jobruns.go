package tui

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jobq-dev/jobq"
)

// attemptLines are the runs, newest first.
func (m *Model) attemptLines() []string {
	lines := []string{m.rule(m.width, "Attempts")}
	columns := columnsFor([]column{
		{"#", 3, true, 0}, {"OUTCOME", 10, false, 0}, {"STARTED", 11, false, 2}, {"TOOK", 8, true, 0}, {"WORKER", 28, false, 3}, {"ERROR", 0, false, 1},
	}, m.width-2, 12)
	lines = append(lines, m.tableHeader(columns, m.width))
	job, runs := m.job.story.job, m.job.story.runs
	if job.State == jobq.Running && job.StartedAt != nil {
		marks := "  "
		if m.job.run == 0 {
			marks = bold("> ")
		}
		lines = append(lines, m.tableRow(columns, m.width, marks, map[string]string{
			"#": strconv.Itoa(job.Attempts + 1), "OUTCOME": styled(sgrCyan, "running"), "STARTED": m.clock(*job.StartedAt),
			"TOOK": took(m.env.now().Sub(*job.StartedAt)), "WORKER": clean(job.LeaseOwner),
		}))
	}
	if m.job.story.unrecorded() {
		lines = append(lines, m.tableRow(columns, m.width, "  ", map[string]string{
			"#": strconv.Itoa(job.Attempts + 1), "OUTCOME": outcomeText(jobq.OutcomeCompleted), "STARTED": m.clock(*job.StartedAt),
			"TOOK": took(job.FinishedAt.Sub(*job.StartedAt)), "WORKER": clean(job.LeaseOwner),
		}))
	}
	const shown = 6
	first := max(m.job.run-shown+1, 0)
	for i := first; i < min(first+shown, len(runs)); i++ {
		run := runs[len(runs)-1-i]
		marks := "  "
		if i+m.job.under() == m.job.run {
			marks = bold("> ")
		}
		lines = append(lines, m.tableRow(columns, m.width, marks, map[string]string{
			"#": strconv.Itoa(run.Number), "OUTCOME": outcomeText(run.Outcome), "STARTED": m.clock(run.StartedAt),
			"TOOK": took(run.FinishedAt.Sub(run.StartedAt)), "WORKER": clean(run.WorkerID), "ERROR": firstLine(run.Error),
		}))
	}
	if len(runs) == 0 && job.State != jobq.Running && !m.job.story.unrecorded() {
		lines = append(lines, "  "+dim("has not run yet"))
	}
	return lines
}

func outcomeText(outcome jobq.Outcome) string {
	switch outcome {
	case jobq.OutcomeCompleted:
		return styled(sgrGreen, string(outcome))
	case jobq.OutcomeFailed, jobq.OutcomeTimedOut, jobq.OutcomeLost:
		return styled(sgrRed, string(outcome))
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
		moments = append(moments, moment{run.StartedAt, fmt.Sprintf("attempt %d      %s", run.Number, clean(run.WorkerID))})
		text := fmt.Sprintf("%s  %s  %s", run.Outcome, took(run.FinishedAt.Sub(run.StartedAt)), firstLine(run.Error))
		moments = append(moments, moment{run.FinishedAt, text})
	}
	for _, action := range s.actions {
		text := fmt.Sprintf("%s by %s", action.Action, clean(action.Actor))
		if action.After != action.Before {
			text += fmt.Sprintf(": %s, was %s", action.After, action.Before)
		}
		moments = append(moments, moment{action.At, text})
	}
	if job.StartedAt != nil && (job.FinishedAt == nil || s.unrecorded()) {
		moments = append(moments, moment{*job.StartedAt, fmt.Sprintf("attempt %d      %s", job.Attempts+1, clean(job.LeaseOwner))})
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
		lines[i] = m.fit(dim(m.clock(moment.at))+"  "+moment.text, cells)
	}
	return lines
}

// summary is a job in a few lines, for the preview.
func (m *Model) summary(story jobStory) []string {
	job := story.job
	now := m.env.now()
	state := stateWord(job)
	switch {
	case m.look.absolute:
		state += " at " + m.clock(jobSince(job)) + " UTC"
	case job.FinishedAt != nil:
		state += " " + ago(now.Sub(*job.FinishedAt)) + " ago"
	case job.StartedAt != nil:
		state += " for " + ago(now.Sub(*job.StartedAt))
	case job.RunAt.After(now):
		state += ", due in " + ago(job.RunAt.Sub(now))
	default:
		state += " for " + ago(now.Sub(job.RunAt))
	}
	lease := "-"
	if job.LeaseExpiresAt != nil {
		lease = clean(job.LeaseOwner) + ", ends in " + ago(job.LeaseExpiresAt.Sub(now))
	}
	lines := []string{
		fmt.Sprintf(" state    %s (%d/%d)   queue %s   priority %d   lease %s", styled(stateColour(job.State), state), job.Attempts, job.MaxAttempts,
			clean(job.Queue), job.Priority, lease),
		" args     " + jsonLine(job.Args),
	}
	if len(job.Tags) > 0 || len(job.Metadata) > 0 {
		lines = append(lines, fmt.Sprintf(" tags     %s   metadata %s", clean(strings.Join(job.Tags, ",")), jsonLine(job.Metadata)))
	}
	if len(story.runs) > 0 {
		var parts []string
		for _, run := range story.runs[max(len(story.runs)-5, 0):] {
			parts = append(parts, fmt.Sprintf("#%d %s %s %s", run.Number, run.Outcome, took(run.FinishedAt.Sub(run.StartedAt)), m.fit(firstLine(run.Error), min(width(firstLine(run.Error)), 20))))
		}
		lines = append(lines, " attempts "+strings.Join(parts, "   "))
	}
	if job.Progress != nil && job.State == jobq.Running {
		lines = append(lines, " progress "+m.progressText(job.Progress))
	}
	if job.LastError != "" {
		lines = append(lines, " error    "+styled(sgrRed, firstLine(job.LastError)))
	}
	line := " timeline "
	moments := story.moments()
	for i, moment := range moments[max(len(moments)-6, 0):] {
		if i > 0 {
			line += " " + m.env.glyphs.rule + " "
		}
		word, _, _ := strings.Cut(moment.text, "  ")
		line += m.clock(moment.at) + " " + word
	}
	return append(lines, line)
}
