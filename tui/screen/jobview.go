package screen

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/internal/when"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/theme"
	"github.com/jobq-dev/jobq/tui/widget"
)

// head is the second line of the screen, in place of the names of the screens.
func (s *JobPage) head() string {
	job := s.story.job
	left := fmt.Sprintf(" Jobs %s %d", s.Paint.Cross, s.id)
	right := s.Key(command.Back) + " back "
	if job != nil {
		left += fmt.Sprintf(" %s/%s", widget.Clean(job.Queue), widget.Clean(job.Kind))
		right = fmt.Sprintf("%s  attempt %d of %d   %s", s.Paint.State(job.State).Render(strings.ToUpper(format.State(job))),
			format.Attempt(job), job.MaxAttempts, right)
	}
	return s.Paint.Spread(s.Paint.Title.Render(left), right, s.cells)
}

// pageLines is the page above the output, and the line of the newest run in it.
func (s *JobPage) pageLines() (lines []string, runsAt int) {
	job := s.story.job
	if job.State == jobq.StateRunning {
		lines = s.runningLines(job)
	}
	if s.wide() {
		lines = append(lines, s.Paint.Rule(s.cells, "Properties", "Timeline"))
		lines = append(lines, s.Paint.Columns(s.properties(job), s.timeline(s.cells/2-3), s.cells)...)
	} else {
		lines = append(lines, s.Paint.Rule(s.cells, "Properties"))
		lines = append(lines, s.properties(job)...)
	}
	lines = append(lines, s.stepLines()...)
	runs := s.runs()
	return append(lines, runs...), len(lines) + 2
}

// runningLines are how far a run is, and how long its lease holds.
func (s *JobPage) runningLines(job *jobq.Job) []string {
	now := s.Paint.Now()
	var elapsed time.Duration
	if job.StartedAt != nil {
		elapsed = now.Sub(*job.StartedAt)
	}
	progress := fmt.Sprintf(" Progress  none reported   %s elapsed", format.Took(elapsed))
	if p := job.Progress; p != nil {
		left, bar := "", 24
		if p.Percent > 1 && p.Percent < 100 {
			left = "   about " + format.Took(time.Duration(float64(elapsed)*float64(100-p.Percent)/float64(p.Percent))) + " left"
		}
		if !s.wide() {
			bar = 8
		}
		stage := strings.TrimSpace(widget.Clean(p.Stage) + " " + widget.Clean(p.Message))
		progress = fmt.Sprintf(" Progress  %s  %s %.0f%%   %s elapsed%s", stage, s.Paint.Progress(float64(p.Percent)/100, bar), p.Percent, format.Took(elapsed), left)
		progress = s.andIfItFits(progress, fmt.Sprintf("   updated %s ago", format.Ago(now.Sub(p.At))))
	}
	lease := " Lease     " + widget.Clean(job.LeaseOwner)
	if job.LeaseExpiresAt != nil {
		lease += "   ends in " + format.Ago(job.LeaseExpiresAt.Sub(now)) + " unless extended"
	}
	if job.CancelRequestedAt != nil {
		lease += "   " + s.Paint.Warn.Render("asked to stop "+format.When(*job.CancelRequestedAt, now))
	}
	return []string{progress, s.andIfItFits(lease, fmt.Sprintf("   token %d", job.LeaseToken))}
}

// andIfItFits adds to a line what is shown in full or not at all.
func (s *JobPage) andIfItFits(line, more string) string {
	if widget.Width(line+more) > s.cells {
		return line
	}
	return line + more
}

// properties are what the job is.
func (s *JobPage) properties(job *jobq.Job) []string {
	first := fmt.Sprintf(" queue      %s   priority %d", widget.Clean(job.Queue), job.Priority)
	var ends []string
	if job.Attempts > 0 {
		ends = append(ends, format.Count(int64(job.Attempts), "attempt")+" failed")
	}
	if lost := format.Lost(job); lost != "" {
		ends = append(ends, "lost "+lost)
	}
	if job.Crashes > 0 {
		ends = append(ends, fmt.Sprintf("%d crashed", job.Crashes))
	}
	if len(ends) > 0 {
		first += "   " + strings.Join(ends, ", ")
	}
	lines := []string{first, fmt.Sprintf(" created    %s   run at %s", s.Paint.Clock(job.CreatedAt), s.Paint.Clock(job.RunAt))}
	styled := func(name, value string, style theme.Style) {
		if value == "" {
			return
		}
		for _, line := range s.wrapped(value) {
			lines = append(lines, fmt.Sprintf(" %-10s %s", name, style.Render(line)))
			name = ""
		}
	}
	add := func(name, value string) { styled(name, value, theme.Style{}) }
	values := job
	if s.story.decoded != nil { // of the same job
		values = s.story.decoded
	}
	styled("waiting", s.whyWaiting(job), s.Paint.Warn)
	if job.Timeout > 0 {
		add("timeout", when.FormatDuration(job.Timeout))
	}
	add("unique", widget.Clean(job.UniqueKey))
	add("partition", widget.Clean(job.PartitionKey))
	add("tags", widget.Clean(strings.Join(job.Tags, ", ")))
	add("args", jsonLine(values.Args))
	add("metadata", jsonLine(job.Metadata))
	add("checkpoint", jsonLine(values.Checkpoint))
	add("result", jsonLine(values.Result))
	switch {
	case job.LastError == "":
	case job.State == jobq.StateCompleted:
		add("before", "failed with "+widget.FirstLine(job.LastError))
	default:
		styled("error", format.LastError(job), s.Paint.Error)
	}
	return lines
}

// valueLinesMax is how many lines a value takes at most: longer ones are copied, or
// shown by the command line.
const valueLinesMax = 6

// wrapped is a value in lines of the width that properties have.
func (s *JobPage) wrapped(value string) []string {
	if s.Paint.Plain {
		return []string{value}
	}
	cells := s.cells - 13
	if s.wide() {
		cells = s.cells/2 - 13
	}
	lines := strings.Split(ansi.Wrap(value, max(cells, 1), " ,"), "\n")
	if len(lines) > valueLinesMax {
		lines = append(lines[:valueLinesMax-1], s.Paint.Fit(strings.Join(lines[valueLinesMax-1:], ""), cells))
	}
	return lines
}

// timeline is the last moments, a line each.
func (s *JobPage) timeline(cells int) []string {
	const shown = 9
	moments := s.story.moments()
	moments = moments[max(len(moments)-shown, 0):]
	lines := make([]string, len(moments))
	for i, moment := range moments {
		lines[i] = s.Paint.Fit(s.Paint.Muted.Render(s.Paint.Clock(moment.at))+"  "+moment.text, cells)
	}
	return lines
}

// runsShown is how many runs are on the page at once.
const runsShown = 6

// runs are the runs, newest first.
func (s *JobPage) runs() []string {
	columns := widget.ColumnsFor([]widget.Column{
		widget.Right("#", 3, 0), widget.Left("OUTCOME", 10, 0), widget.Left("STARTED", 11, 2), widget.Right("TOOK", 8, 0), widget.Left("WORKER", 28, 3),
		widget.Left("ERROR", 0, 1),
	}, s.cells-2, 30)
	lines := []string{s.Paint.Rule(s.cells, "Runs"), s.Paint.Header(columns, s.cells)}
	add := func(selected bool, values map[string]string) {
		marks := "  "
		if selected {
			marks = s.Paint.Cursor.Render("> ")
		}
		lines = append(lines, s.Paint.Row(columns, s.cells, marks, values))
	}
	job, runs := s.story.job, s.story.runs
	last := map[string]string{"#": strconv.Itoa(len(runs) + 1), "WORKER": widget.Clean(job.LeaseOwner)}
	switch {
	case job.StartedAt == nil:
	case job.State == jobq.StateRunning:
		last["OUTCOME"], last["STARTED"], last["TOOK"] = s.Paint.Running.Render("running"), s.Paint.Clock(*job.StartedAt), format.Duration(job, s.Paint.Now())
		add(s.runRow() == 0, last)
	case s.story.unrecorded():
		last["OUTCOME"], last["STARTED"], last["TOOK"] = s.outcome(jobq.OutcomeCompleted), s.Paint.Clock(*job.StartedAt), format.Duration(job, s.Paint.Now())
		add(false, last)
	}
	first := max(s.runRow()-runsShown+1, 0)
	for i := first; i < min(first+runsShown, len(runs)); i++ {
		run := runs[len(runs)-1-i]
		add(i+s.story.running() == s.runRow(), map[string]string{
			"#": strconv.Itoa(len(runs) - i), "OUTCOME": s.outcome(run.Outcome), "STARTED": s.Paint.Clock(run.StartedAt),
			"TOOK": format.Took(run.FinishedAt.Sub(run.StartedAt)), "WORKER": widget.Clean(run.WorkerID), "ERROR": widget.FirstLine(run.Error),
		})
	}
	if len(lines) == headLines {
		lines = append(lines, "  "+s.Paint.Muted.Render("has not run yet"))
	}
	return lines
}

func (s *JobPage) outcome(outcome jobq.Outcome) string {
	switch outcome {
	case jobq.OutcomeCompleted:
		return s.Paint.Completed.Render(string(outcome))
	case jobq.OutcomeFailed, jobq.OutcomeTimedOut, jobq.OutcomeLost:
		return s.Paint.Failed.Render(string(outcome))
	case jobq.OutcomeCancelled, jobq.OutcomeReleased, jobq.OutcomeSnoozed, jobq.OutcomeUnreadable:
	}
	return string(outcome)
}
