package screen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/internal/printable"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/widget"
)

// live is what the run under way has written.
type live struct {
	text string
	last monitor.OutputPiece // where that ends
}

// liveBytesMax is how much of it is kept.
const liveBytesMax = 64 << 10

// take adds what was written, and says how many lines at the beginning had to go
// for it.
func (l *live) take(story Story) (gone int) {
	for _, piece := range story.pieces {
		if piece.LeaseToken != l.last.LeaseToken {
			l.text = "" // another run
		}
		l.last = piece
		l.text += piece.Content
	}
	if story.job.State == jobq.StateRunning && story.job.LeaseToken != l.last.LeaseToken {
		l.text = "" // a run that has written nothing yet
	}
	if over := len(l.text) - liveBytesMax; over > 0 {
		if end := strings.IndexByte(l.text[over:], '\n'); end >= 0 {
			over += end + 1 // whole lines
		}
		gone = strings.Count(l.text[:over], "\n")
		l.text = l.text[over:]
	}
	return gone
}

// outputText is the selected run's error and output, line by line, or nil.
func (s *JobPage) outputText() []string {
	run := s.selectedRun()
	content := s.live.text
	switch {
	case run == nil && s.story.running() == 1 && s.story.isOutputElsewhere:
		content = monitor.ErrOutputOnPrimary.Error()
	case run == nil && (s.story.running() == 0 || content == ""):
		return nil
	case run != nil:
		content = textOf(*run)
	}
	return strings.Split(strings.TrimRight(printable.Text(content), "\n"), "\n")
}

// textOf is the error of a run and what it has written. The error of a program ends
// with its last words, and begins with one of their lines: that is in the output, and
// is not shown again.
//
// Example: "exit code 1: no route" with the output "connect\nno route" is
// "exit code 1", "connect" and "no route".
func textOf(run monitor.Attempt) string {
	output := strings.TrimRight(run.Output, "\n")
	summary, rest, _ := strings.Cut(strings.TrimRight(run.Error, "\n"), "\n")
	switch {
	case !strings.Contains(output, rest):
		return strings.TrimRight(strings.TrimRight(run.Error, "\n")+"\n"+output, "\n")
	case rest == "" && output == "":
		return summary
	}
	for line := range strings.SplitSeq(output, "\n") {
		if line = strings.TrimSpace(line); line != "" && (summary == line || strings.HasSuffix(summary, ": "+line)) {
			summary = strings.TrimSuffix(strings.TrimSuffix(summary, line), ": ")
			break
		}
	}
	return strings.Trim(summary+"\n"+output, "\n")
}

// selectedRun is the recorded run under the cursor, or nil.
func (s *JobPage) selectedRun() *monitor.Attempt {
	at := s.runNumber() - 1
	if at < 0 || at >= len(s.story.runs) {
		return nil
	}
	return &s.story.runs[at]
}

// runNumber is the number of the selected run, from 1 for the oldest.
func (s *JobPage) runNumber() int { return len(s.story.runs) - s.runRow() + s.story.running() }

// outputTitle names the run whose output is shown, and says whether what it
// writes will be seen.
func (s *JobPage) outputTitle() string {
	lines := format.Count(int64(len(s.pager.Lines())), "line")
	title := "Output"
	switch {
	case s.selectedRun() != nil:
		title = fmt.Sprintf("Output of run %d, %s", s.runNumber(), lines)
	case s.story.running() == 1 && s.pager.Follows():
		title = "Output  following  " + lines
	case s.story.running() == 1:
		title = fmt.Sprintf("Output  %s, %s goes to the end and follows", lines, s.Key(command.End))
	}
	if s.focused && !s.output {
		title = "> " + title
	}
	return title
}

// outputLines are the lines of the output that can be seen.
func (s *JobPage) outputLines() []string {
	if len(s.pager.Lines()) == 0 {
		return []string{" " + s.Paint.Muted.Render("no output yet")}
	}
	return s.pager.View(func(i int, line string) string {
		line = widget.Clean(line)
		switch {
		case s.search == "" || !matches(line, s.search):
			return " " + line
		case i == s.found:
			return s.Paint.Cursor.Render(">") + s.Paint.Match.Render(line)
		}
		return s.Paint.Match.Render(" " + line)
	})
}

func matches(line, search string) bool {
	return strings.Contains(strings.ToLower(line), strings.ToLower(search))
}

// nextMatch is the line after another one that has the text, or the one before
// it, and round at the ends: its place among the matches, and how many there are.
func nextMatch(lines []string, search string, found, by int) (place, count, line int) {
	var at []int
	for i, line := range lines {
		if matches(line, search) {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return 0, 0, -1
	}
	place, exact := slices.BinarySearch(at, found)
	switch {
	case by < 0:
		place--
	case exact:
		place++
	}
	place = (place + len(at)) % len(at)
	return place, len(at), at[place]
}
