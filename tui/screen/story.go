package screen

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/widget"
)

// Story is a job with its runs and what people did to it.
type Story struct {
	job     *jobq.Job // nil as long as it is not known
	runs    []monitor.Attempt
	actions []monitor.JobAction
	pieces  []monitor.OutputPiece // what its program has written since the last look
}

// storyQuestion is which job is asked for.
type storyQuestion struct {
	id     int64
	output bool // what its program writes as well
	asked  int
}

// loadStory asks for a job, without the output of a run under way.
func loadStory(ctx context.Context, r data.Reader, id int64) (any, error) {
	story, err := load(ctx, r, id)
	if err != nil {
		return nil, err
	}
	return story, nil
}

func load(ctx context.Context, r data.Reader, id int64) (story Story, err error) {
	if story.job, err = r.Get(ctx, id); err != nil {
		return story, err
	}
	if story.runs, err = r.Attempts(ctx, id); err != nil {
		return story, err
	}
	story.actions, err = r.JobActions(ctx, id)
	return story, err
}

// loadOutput is loadStory with what the run under way has written after a piece.
func loadOutput(ctx context.Context, r data.Reader, id int64, after monitor.OutputPiece) (any, error) {
	story, err := load(ctx, r, id)
	if err == nil && story.job.State == jobq.StateRunning {
		story.pieces, err = r.Output(ctx, id, after)
	}
	if err != nil {
		return nil, err
	}
	return story, nil
}

// of says whether it is known, and of this job.
func (s Story) of(id int64) bool { return s.job != nil && s.job.ID == id }

// hear changes the job as a worker says, and says whether a run of it has ended:
// then the database has a record to ask for.
func (s Story) hear(event data.Event, now time.Time) (ended bool) {
	if !s.of(event.ID) {
		return false
	}
	event.Patch(s.job, now)
	return event.State != jobq.StateRunning
}

// running is 1 when a run is under way, which has no record yet.
func (s Story) running() int {
	if s.job != nil && s.job.State == jobq.StateRunning {
		return 1
	}
	return 0
}

// unrecorded says that the last run succeeded without output: such a run leaves
// no record of its own.
func (s Story) unrecorded() bool {
	job := s.job
	return job.State == jobq.StateCompleted && job.StartedAt != nil && job.FinishedAt != nil &&
		!slices.ContainsFunc(s.runs, func(run monitor.Attempt) bool { return run.LeaseToken == job.LeaseToken })
}

// moment is something that happened to a job.
type moment struct {
	at   time.Time
	text string // what happened, two spaces, and more about it
}

// moments are all that is known to have happened, oldest first. Runs have the
// numbers of their places: attempts would begin anew after a requeue.
func (s Story) moments() []moment {
	job := s.job
	moments := []moment{{job.CreatedAt, "created"}}
	for i, run := range s.runs {
		moments = append(moments, moment{run.StartedAt, fmt.Sprintf("run %d      %s", i+1, widget.Clean(run.WorkerID))})
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
		moments = append(moments, moment{*job.StartedAt, fmt.Sprintf("run %d      %s", len(s.runs)+1, widget.Clean(job.LeaseOwner))})
	}
	if job.FinishedAt != nil {
		moments = append(moments, moment{*job.FinishedAt, string(job.State)})
	}
	if job.State == jobq.StateScheduled || job.State == jobq.StateAvailable {
		moments = append(moments, moment{job.RunAt, "may run"})
	}
	slices.SortStableFunc(moments, func(a, b moment) int { return a.at.Compare(b.at) })
	return moments
}

// whyWaiting is the likely reason why the job waits, if one can be seen.
func (b *base) whyWaiting(job *jobq.Job) string {
	if job.State != jobq.StateAvailable {
		return ""
	}
	at := slices.IndexFunc(b.Facts.Queues, func(q monitor.Queue) bool { return q.Name == job.Queue })
	if at < 0 {
		return ""
	}
	return widget.Clean(b.Facts.WhyWaiting(b.Facts.Queues[at], job.Kind))
}

// stateText is the state of a job and since when it is in it.
func (b *base) stateText(job *jobq.Job) string {
	now, state, since := b.Paint.Now(), format.State(job), format.Since(job)
	switch {
	case b.Paint.Absolute:
		return state + " at " + b.Paint.Clock(since) + " UTC"
	case since.After(now):
		return state + ", due " + format.When(since, now)
	case job.State == jobq.StateRunning, job.State == jobq.StateAvailable, job.State == jobq.StateScheduled:
		return state + " for " + format.Ago(now.Sub(since))
	}
	return state + " " + format.When(since, now)
}

// toldOne is a job in one line of words.
func (b *base) toldOne(job *jobq.Job) string {
	when := format.Age(job, b.Paint.Now())
	switch {
	case b.Paint.Absolute:
		when = b.Paint.Clock(format.Since(job)) + " UTC"
	case !strings.HasPrefix(when, "in "):
		when += " ago"
	}
	text := fmt.Sprintf("%d %s %s %s, attempt %d of %d, %s, %s", job.ID, widget.Clean(job.Queue), widget.Clean(job.Kind), format.State(job),
		format.Attempt(job), job.MaxAttempts, when, format.LastError(job))
	return strings.TrimRight(text, ", ")
}

func (b *base) progress(p *jobq.Progress) string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf("%s %3.0f%% %s %s", b.Paint.Progress(float64(p.Percent)/100, 10), p.Percent, widget.Clean(p.Stage), widget.Clean(p.Message))
}

// jsonLine shows JSON as it is stored, never decoded: numbers keep their digits.
func jsonLine(raw json.RawMessage) string { return widget.Clean(string(raw)) }

// summary is a job in a few lines, for the preview.
func (b *base) summary(story Story) []string {
	job := story.job
	lease := "-"
	if job.LeaseExpiresAt != nil {
		lease = widget.Clean(job.LeaseOwner) + ", ends in " + format.Ago(job.LeaseExpiresAt.Sub(b.Paint.Now()))
	}
	lines := []string{
		fmt.Sprintf(" state    %s (%s)   queue %s   priority %d   lease %s", b.Paint.State(job.State).Render(b.stateText(job)), format.Attempts(job),
			widget.Clean(job.Queue), job.Priority, lease),
		" args     " + jsonLine(job.Args),
	}
	if reason := b.whyWaiting(job); reason != "" {
		lines = append(lines, " waiting  "+b.Paint.Warn.Render(reason))
	}
	if len(job.Tags) > 0 || len(job.Metadata) > 0 {
		lines = append(lines, fmt.Sprintf(" tags     %s   metadata %s", widget.Clean(strings.Join(job.Tags, ",")), jsonLine(job.Metadata)))
	}
	if len(story.runs) > 0 {
		const shown, errorCells = 5, 20
		first := max(len(story.runs)-shown, 0)
		var parts []string
		for i, run := range story.runs[first:] {
			text := widget.FirstLine(run.Error)
			parts = append(parts, fmt.Sprintf("#%d %s %s %s", first+i+1, run.Outcome, format.Took(run.FinishedAt.Sub(run.StartedAt)), b.Paint.Fit(text, min(widget.Width(text), errorCells))))
		}
		lines = append(lines, " runs     "+strings.Join(parts, "   "))
	}
	if job.Progress != nil && job.State == jobq.StateRunning {
		lines = append(lines, " progress "+b.progress(job.Progress))
	}
	if text := format.LastError(job); text != "" {
		lines = append(lines, " error    "+b.Paint.Error.Render(text))
	}
	return append(lines, b.timelineLine(story))
}

// timelineLine is the last moments in one line.
func (b *base) timelineLine(story Story) string {
	const shown = 6
	line := " timeline "
	moments := story.moments()
	for i, moment := range moments[max(len(moments)-shown, 0):] {
		if i > 0 {
			line += " " + b.Paint.Theme.Rule + " "
		}
		word, _, _ := strings.Cut(moment.text, "  ")
		line += b.Paint.Clock(moment.at) + " " + word
	}
	return line
}
