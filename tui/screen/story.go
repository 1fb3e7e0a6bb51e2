package screen

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/widget"
)

// Story is a job with its runs and what people did to it.
type Story struct {
	job     *jobq.Job // nil as long as it is not known
	runs    []monitor.Attempt
	actions []monitor.JobAction
	steps   []monitor.Step        // the last ones; only the page of one job has them
	pieces  []monitor.OutputPiece // what its program has written since the last look
	// isOutputElsewhere says that what its program writes cannot be read here, on a standby.
	isOutputElsewhere bool
	// decoded is the job with its args, checkpoint and result decoded, as far as that can be done.
	// Only the page of one job has it, and nothing but these three may be read of it.
	decoded *jobq.Job
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

// loadOutput is loadStory with the durable steps, with what the run under way has written after
// a piece, and with its values decoded.
func loadOutput(ctx context.Context, r data.Reader, id int64, after monitor.OutputPiece, codec jobq.Codec) (any, error) {
	story, err := load(ctx, r, id)
	if err == nil {
		decoded := *story.job
		if codec != nil {
			_ = decoded.Decode(ctx, codec) // what cannot be decoded is shown by the name of its key
		}
		story.decoded = &decoded
		story.steps, err = loadSteps(ctx, r, story.job, codec)
	}
	if err == nil && story.job.State == jobq.StateRunning {
		story.pieces, err = r.Output(ctx, id, after)
		if errors.Is(err, monitor.ErrOutputOnPrimary) {
			story.isOutputElsewhere, err = true, nil
		}
	}
	if err != nil {
		return nil, err
	}
	return story, nil
}

// of says whether it is known, and of this job.
func (s Story) of(id int64) bool { return s.job != nil && s.job.ID == id }

// apply changes the job as a worker says, and says whether a run of it has ended:
// then the database has a record to ask for.
func (s Story) apply(event data.Event, now time.Time) (ended bool) {
	if !s.of(event.ID) {
		return false
	}
	return event.Patch(s.job, now) && event.State != jobq.StateRunning
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
	switch {
	case job.FinishedAt != nil && !s.endIsTold():
		moments = append(moments, moment{*job.FinishedAt, string(job.State)})
	case job.State == jobq.StateScheduled, job.State == jobq.StateAvailable && !slices.ContainsFunc(moments, moment{at: job.RunAt}.isWith):
		moments = append(moments, moment{job.RunAt, "may run"})
	}
	slices.SortStableFunc(moments, func(a, b moment) int { return a.at.Compare(b.at) })
	return moments
}

// isWith says whether two moments are one to the eye.
func (m moment) isWith(other moment) bool { return m.at.Sub(other.at).Abs() < time.Second }

// endIsTold says that the end of a run, or what somebody did to the job, is the end of
// the job as well.
func (s Story) endIsTold() bool {
	job := s.job
	ended := moment{at: *job.FinishedAt}
	return slices.ContainsFunc(s.runs, func(run monitor.Attempt) bool {
		return run.LeaseToken == job.LeaseToken && endsJobAs(run.Outcome) == job.State
	}) || slices.ContainsFunc(s.actions, func(action monitor.JobAction) bool {
		return action.After == job.State && ended.isWith(moment{at: action.At})
	})
}

// endsJobAs is the state of a job that ends with a run of this outcome.
func endsJobAs(outcome jobq.Outcome) jobq.State {
	switch outcome {
	case jobq.OutcomeFailed, jobq.OutcomeTimedOut, jobq.OutcomeLost:
		return jobq.StateFailed
	case jobq.OutcomeCompleted, jobq.OutcomeCancelled, jobq.OutcomeReleased, jobq.OutcomeSnoozed, jobq.OutcomeUnreadable:
	}
	return jobq.State(outcome)
}

// whyWaiting is the likely reason why the job waits, if one can be seen.
func (b *base) whyWaiting(job *jobq.Job) string {
	switch job.State {
	case jobq.StateAvailable:
	case jobq.StateWaiting:
		return "for other jobs: " + b.Key(command.Tree) + " shows them"
	default:
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
	case job.State == jobq.StateRunning && job.StartedAt == nil:
		return state + ", not begun"
	case b.Paint.Absolute:
		return state + " at " + b.Paint.Clock(since) + " UTC"
	case since.After(now):
		return state + ", due " + format.When(since, now)
	case job.State == jobq.StateRunning, job.State == jobq.StateAvailable, job.State == jobq.StateScheduled, job.State == jobq.StateWaiting:
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

// jsonLine shows JSON as it is stored, and an encrypted value by its key.
func jsonLine(raw json.RawMessage) string { return widget.Clean(format.Value(raw)) }

// summary is a job in a few lines, for the preview.
func (b *base) summary(story Story) []string {
	job := story.job
	state := fmt.Sprintf(" state    %s (%s)   queue %s   priority %d", b.Paint.State(job.State).Render(b.stateText(job)), format.AttemptsAndLost(job),
		widget.Clean(job.Queue), job.Priority)
	if job.LeaseExpiresAt != nil {
		state += fmt.Sprintf("   lease %s, ends in %s", widget.Clean(job.LeaseOwner), format.Ago(job.LeaseExpiresAt.Sub(b.Paint.Now())))
	}
	lines := []string{state, " args     " + jsonLine(job.Args)}
	if reason := b.whyWaiting(job); reason != "" {
		lines = append(lines, " waiting  "+b.Paint.Warn.Render(reason))
	}
	var about []string
	if len(job.Tags) > 0 {
		about = append(about, widget.Clean(strings.Join(job.Tags, ",")))
	}
	if len(job.Metadata) > 0 {
		about = append(about, "metadata "+jsonLine(job.Metadata))
	}
	if len(about) > 0 {
		lines = append(lines, " tags     "+strings.Join(about, "   "))
	}
	if len(story.runs) > 0 {
		lines = append(lines, b.runsLine(story.runs))
	}
	if job.Progress != nil && job.State == jobq.StateRunning {
		lines = append(lines, " progress "+b.progress(job.Progress))
	}
	if text := format.LastError(job); text != "" {
		lines = append(lines, " error    "+b.Paint.Error.Render(text))
	}
	return append(lines, b.timelineLine(story))
}

// runsLine is the last runs in one line, the newest first: it is the oldest that
// there may be no room for.
func (b *base) runsLine(runs []monitor.Attempt) string {
	const shown, errorMin = 5, 20
	count := min(len(runs), shown)
	errorCells := max(b.cells/count-30, errorMin)
	var parts []string
	for i, run := range slices.Backward(runs[len(runs)-count:]) {
		text := widget.FirstLine(run.Error)
		parts = append(parts, fmt.Sprintf("#%d %s %s %s", len(runs)-count+i+1, run.Outcome, format.Took(run.FinishedAt.Sub(run.StartedAt)),
			b.Paint.Fit(text, min(widget.Width(text), errorCells))))
	}
	return " runs     " + strings.Join(parts, "   ")
}

// timelineLine is the last moments in one line, as many as there is room for.
func (b *base) timelineLine(story Story) string {
	const title = " timeline "
	between := " " + b.Paint.Theme.Rule + " "
	line, room := "", b.cells-len(title)-widget.Width(b.Paint.More+" ")
	for _, moment := range slices.Backward(story.moments()) {
		word, _, _ := strings.Cut(moment.text, "  ")
		text := b.Paint.Clock(moment.at) + " " + word
		if line != "" {
			text += between
		}
		if widget.Width(text+line) > room {
			return title + b.Paint.More + " " + line
		}
		line = text + line
	}
	return title + line
}
