package tui

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/internal/printable"
	"github.com/jobq-dev/jobq/tui/widget"
)

// jobStory is a job with its runs and what people did to it.
type jobStory struct {
	job     *jobq.Job
	runs    []jobq.Attempt
	actions []jobq.JobAction
	pieces  []jobq.OutputPiece // what its program has written since the last look
}

// liveBytesMax is how much of the output of a run under way is kept.
const liveBytesMax = 64 << 10

func loadJob(ctx context.Context, r reader, id int64, after jobq.OutputPiece) (jobStory, error) {
	var story jobStory
	var err error
	if story.job, err = r.Get(ctx, id); err != nil {
		return story, err
	}
	if story.runs, err = r.Attempts(ctx, id); err != nil {
		return story, err
	}
	if story.actions, err = r.JobActions(ctx, id); err != nil || story.job.State != jobq.Running {
		return story, err
	}
	story.pieces, err = r.Output(ctx, id, after)
	return story, err
}

// jobModel is one job in detail.
type jobModel struct {
	id       int64
	story    jobStory
	live     string           // what the run under way has written
	last     jobq.OutputPiece // where that ends
	outputOf int64            // whose output that is
	run      int              // of the runs, from the newest, which may be under way: 0
	output   bool             // full screen
	focused  bool             // moving scrolls the output, and does not choose a run
	scroll   int              // lines of output up from its end
	search   string           // what is looked for in the output
	found    int              // the line of it that was gone to
	follow   bool
}

// take takes the job in, and adds what its program has written to what is
// known of the same run.
func (j *jobModel) take(story jobStory) {
	j.story = story
	for _, piece := range story.pieces {
		if piece.LeaseToken != j.last.LeaseToken {
			j.live = "" // another run
		}
		j.last = piece
		j.live += piece.Content
	}
	if story.job.State == jobq.Running && story.job.LeaseToken != j.last.LeaseToken {
		j.live = "" // a run that has written nothing yet
	}
	j.live = j.live[max(len(j.live)-liveBytesMax, 0):]
}

// under is 1 when a run is under way, which has no record yet.
func (j *jobModel) under() int {
	if j.story.job != nil && j.story.job.State == jobq.Running {
		return 1
	}
	return 0
}

// openJob shows a job in detail.
func (m *Model) openJob(id int64) tea.Cmd {
	if id == 0 {
		return nil
	}
	m.show(screenJob)
	m.job.turnTo(id)
	m.renew(panelJob)
	return nil
}

// turnTo makes another job the one in detail.
func (j *jobModel) turnTo(id int64) {
	if j.id == id {
		return
	}
	story := j.story
	if story.job == nil || story.job.ID != id {
		story = jobStory{}
	}
	*j = jobModel{id: id, story: story, follow: j.follow}
}

// jobHead is the second line of the screen, in place of the tabs.
func (m *Model) jobHead() string {
	job := m.job.story.job
	left := fmt.Sprintf(" Jobs %s %d", m.paint.Cross, m.job.id)
	right := m.keyOf("back") + " back "
	if job != nil {
		left += fmt.Sprintf(" %s/%s", widget.Clean(job.Queue), widget.Clean(job.Kind))
		right = m.paint.State(job.State).Render(strings.ToUpper(format.State(job))) +
			fmt.Sprintf("  attempt %d of %d   ", format.Attempt(job), job.MaxAttempts) + right
	}
	return m.paint.Spread(m.paint.Title.Render(left), right, m.width)
}

func (m *Model) jobBody() []string {
	job := m.job.story.job
	if job == nil {
		if err := m.polls[panelJob].err; err != nil {
			return []string{"", " " + m.paint.Warn.Render(queryProblem(err))}
		}
		return []string{"", " " + m.waiting(panelJob)}
	}
	if m.job.output {
		return append([]string{m.paint.Rule(m.width, m.outputTitle())}, m.outputLines(m.layout().body-1)...)
	}
	var lines []string
	if job.State == jobq.Running {
		lines = m.runningLines(job)
	}
	if m.layout().wide {
		lines = append(lines, m.sideBySide(m.properties(job), m.timeline(m.width/2-3))...)
	} else {
		lines = append(lines, m.paint.Rule(m.width, "Properties"))
		lines = append(lines, m.properties(job)...)
	}
	lines = append(lines, m.attemptLines()...)
	room := m.layout().body - len(lines) - 1
	if room < 2 && !m.layout().wide {
		return lines
	}
	lines = append(lines, m.paint.Rule(m.width, m.outputTitle()))
	return append(lines, m.outputLines(room)...)
}

// runningLines are how far a run is, and how long its lease holds.
func (m *Model) runningLines(job *jobq.Job) []string {
	now := m.env.now()
	var elapsed time.Duration
	if job.StartedAt != nil {
		elapsed = now.Sub(*job.StartedAt)
	}
	progress := fmt.Sprintf(" Progress  none reported   %s elapsed", format.Took(elapsed))
	if p := job.Progress; p != nil {
		left := ""
		if p.Percent > 1 && p.Percent < 100 {
			left = "   about " + format.Took(time.Duration(float64(elapsed)*float64(100-p.Percent)/float64(p.Percent))) + " left"
		}
		progress = fmt.Sprintf(" Progress  %s %s  %s %.0f%%   %s elapsed%s   updated %s ago", widget.Clean(p.Stage), widget.Clean(p.Message),
			m.paint.Progress(float64(p.Percent)/100, 24), p.Percent, format.Took(elapsed), left, format.Ago(now.Sub(p.At)))
	}
	lease := " Lease     " + widget.Clean(job.LeaseOwner)
	if job.LeaseExpiresAt != nil {
		lease += "   ends in " + format.Ago(job.LeaseExpiresAt.Sub(now)) + " unless extended"
	}
	lease += fmt.Sprintf("   token %d", job.LeaseToken)
	if job.CancelRequestedAt != nil {
		lease += "   " + m.paint.Warn.Render("asked to stop "+format.Ago(now.Sub(*job.CancelRequestedAt))+" ago")
	}
	return []string{progress, lease}
}

// properties are what the job is. Texts of any length become one line each.
func (m *Model) properties(job *jobq.Job) []string {
	lines := []string{
		fmt.Sprintf(" queue      %s   priority %d   attempts %d/%d, %d crashed", widget.Clean(job.Queue), job.Priority, job.Attempts, job.MaxAttempts, job.Crashes),
		fmt.Sprintf(" created    %s   run at %s", m.paint.Clock(job.CreatedAt), m.paint.Clock(job.RunAt)),
	}
	add := func(name, value string) {
		if value != "" {
			lines = append(lines, fmt.Sprintf(" %-10s %s", name, value))
		}
	}
	if job.Timeout > 0 {
		add("timeout", job.Timeout.String())
	}
	add("unique", widget.Clean(job.UniqueKey))
	add("tags", widget.Clean(strings.Join(job.Tags, ", ")))
	add("args", jsonLine(job.Args))
	add("metadata", jsonLine(job.Metadata))
	add("checkpoint", jsonLine(job.Checkpoint))
	add("result", jsonLine(job.Result))
	if job.LastError != "" {
		add("error", m.paint.Error.Render(widget.FirstLine(job.LastError)))
	}
	return lines
}

// jsonLine shows JSON as it is stored, never decoded: numbers keep their digits.
func jsonLine(raw json.RawMessage) string { return widget.Clean(string(raw)) }

func (m *Model) sideBySide(left, right []string) []string {
	return append([]string{m.paint.Rule(m.width, "Properties", "Timeline")}, m.paint.Columns(left, right, m.width)...)
}

// outputTitle names the run whose output is shown.
func (m *Model) outputTitle() string {
	run := m.selectedRun()
	title := "Output"
	switch {
	case run != nil:
		title = fmt.Sprintf("Output of run %d, %d lines", run.Number, strings.Count(run.Output, "\n"))
	case m.job.under() == 1:
		title = fmt.Sprintf("Output  following  %d lines", strings.Count(m.job.live, "\n"))
	}
	if m.job.focused && !m.job.output {
		title = "> " + title
	}
	return title
}

// outputLines are the last lines of the selected run's error and output.
func (m *Model) outputLines(height int) []string {
	lines := m.outputText()
	switch {
	case height <= 0:
		return nil
	case lines == nil:
		return []string{" " + m.paint.Muted.Render("no output yet")}
	}
	end := max(len(lines)-m.job.scroll, min(height, len(lines)))
	begin := max(end-height, 0)
	shown := make([]string, end-begin)
	for i, line := range lines[begin:end] {
		text := " " + widget.Clean(strings.ReplaceAll(line, "\t", "    "))
		shown[i] = text
		if m.job.search != "" && matches(line, m.job.search) {
			shown[i] = m.paint.Match.Render(shown[i])
			if begin+i == m.job.found {
				shown[i] = m.paint.Cursor.Render(">") + m.paint.Match.Render(strings.TrimPrefix(text, " "))
			}
		}
	}
	return shown
}

// outputText is the selected run's error and output, line by line, or nil.
func (m *Model) outputText() []string {
	run := m.selectedRun()
	content := m.job.live
	switch {
	case run == nil && (m.job.under() == 0 || content == ""):
		return nil
	case run != nil && run.Error != "":
		content = run.Error + "\n" + run.Output
	case run != nil:
		content = run.Output
	}
	return strings.Split(strings.TrimRight(printable.Text(content), "\n"), "\n")
}

// selectedRun is the recorded run under the cursor, or nil.
func (m *Model) selectedRun() *jobq.Attempt {
	runs := m.job.story.runs
	at := len(runs) - 1 - m.job.run + m.job.under()
	if at < 0 || at >= len(runs) {
		return nil
	}
	return &runs[at]
}
