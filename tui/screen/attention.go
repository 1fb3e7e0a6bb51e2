package screen

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/widget"
)

// attentionLinesMax is how many lines one thing that needs attention takes at most.
const attentionLinesMax = 3

// attentionLines is what needs attention in so much room. Where not all of it can be
// shown, the last line says how much more there is; where there is room to spare, what
// is too long for a line goes on in the next.
func (s *OverviewPage) attentionLines(all []string, cells, room int) (lines []string) {
	switch {
	case room < 1:
		return nil
	case len(all) > room:
		for _, text := range all[:room-1] {
			lines = append(lines, s.Paint.Fit(text, cells))
		}
		return append(lines, fmt.Sprintf(" %s %d more", s.Paint.More, len(all)-room+1))
	}
	const indent = "   "
	spare := room - len(all)
	for _, text := range all {
		most := min(1+spare, attentionLinesMax)
		wrapped := strings.Split(ansi.Wrap(text, cells-len(indent), " "), "\n")
		if len(wrapped) > most {
			wrapped = append(wrapped[:most-1], s.Paint.Fit(strings.Join(wrapped[most-1:], " "), cells-len(indent)))
		}
		spare -= len(wrapped) - 1
		lines = append(lines, strings.TrimRight(wrapped[0], " "))
		for _, more := range wrapped[1:] {
			lines = append(lines, indent+strings.TrimSpace(more))
		}
	}
	return lines
}

// attention lists what an operator should look at, worst first.
func (s *OverviewPage) attention() []string {
	now := s.Paint.Now()
	var lines []string
	bad := func(format string, args ...any) {
		lines = append(lines, " "+s.Paint.Alarm.Render("!")+" "+fmt.Sprintf(format, args...))
	}
	odd := func(format string, args ...any) {
		lines = append(lines, " "+s.Paint.Warn.Render("~")+" "+fmt.Sprintf(format, args...))
	}
	for _, line := range s.failing() {
		bad("%s", line)
	}
	for _, w := range s.Facts.Workers {
		if silence := now.Sub(w.HeartbeatAt); silence > data.WorkerSilence {
			bad("worker %s has been silent for %s, and holds %s", widget.Clean(w.ID), format.Ago(silence), format.Count(w.Running+w.Claimed, "job"))
		}
	}
	for _, runs := range s.Facts.Silent {
		bad("%s", silentText(runs, now))
	}
	for _, kind := range s.Facts.Kinds {
		if kind.PausedAt != nil {
			odd("kind %s was paused %s by %s", widget.Clean(kind.Name), format.When(*kind.PausedAt, now), widget.Clean(format.By(kind.PausedBy, kind.PauseReason)))
		}
	}
	for _, q := range s.Facts.Queues {
		switch {
		case q.PausedAt != nil:
			odd("%s was paused %s by %s", widget.Clean(q.Name), format.When(*q.PausedAt, now), widget.Clean(format.PausedBy(q)))
		case q.Available == 0:
		case q.Slots == 0:
			bad("%s: %s wait and no worker takes them", widget.Clean(q.Name), waitingJobs(q))
		case q.HeadRunAt != nil && now.Sub(*q.HeadRunAt) > data.WaitTrouble:
			odd("%s: the oldest job has waited for %s%s", widget.Clean(q.Name), format.Ago(now.Sub(*q.HeadRunAt)), s.whyNext(q))
		}
	}
	if s.Facts.Leader == nil && s.Facts.Known(data.Leader) {
		odd("no janitor leads: jobs of workers that have died are not recovered")
	}
	return lines
}

// whyNext is the likely reason why the jobs of a queue wait, if one can be seen.
func (s *OverviewPage) whyNext(q monitor.Queue) string {
	switch reason := s.Facts.WhyWaiting(q, ""); {
	case reason != "":
		return ": " + widget.Clean(reason)
	case q.Held() < q.Slots:
		return ", with slots free: perhaps no worker has its kind"
	}
	return ""
}

// silentText is what is said of runs that have said nothing for long.
func silentText(runs monitor.SilentRuns, now time.Time) string {
	name, silence := widget.Clean(runs.Queue)+"/"+widget.Clean(runs.Kind), format.Ago(now.Sub(runs.Since))
	text := fmt.Sprintf("job %d %s has said nothing for %s", runs.Example, name, silence)
	if runs.Runs > 1 {
		text = fmt.Sprintf("%s runs of %s have said nothing, job %d for %s", format.Number(runs.Runs), name, runs.Example, silence)
	}
	if runs.Usual > 0 {
		text += "; such a run takes " + format.AtMost(runs.Usual) + " on average"
	}
	return text
}

// waitingJobs is how many jobs of the queue wait.
func waitingJobs(q monitor.Queue) string {
	if q.Available == 1 {
		return "1 job"
	}
	return format.Available(q) + " jobs"
}

// failing says of each queue with failures of late how many there were, and which
// error was the most frequent. How many comes from the sums of the queue, and not
// from the errors, of which only the most frequent of all queues are known.
func (s *OverviewPage) failing() (lines []string) {
	span := format.Ago(data.FailuresSpan)
	worst := make(map[string]monitor.Failure, len(s.Facts.Failures.Groups)) // by queue
	for _, f := range slices.Backward(s.Facts.Failures.Groups) {
		if f.Failed > 0 {
			worst[f.Queue] = f
		}
	}
	for _, name := range s.Facts.Failing() {
		line := fmt.Sprintf("%s: %s failed in %s", widget.Clean(name), format.Number(s.Facts.FailedOfLate(name)), span)
		if f, known := worst[name]; known {
			jobs := format.Number(f.Failed)
			if f.Failed >= s.Facts.FailedOfLate(name) {
				jobs = "all"
			}
			line += fmt.Sprintf(", %s of %s: %s", jobs, widget.Clean(f.Kind), s.firstWords(f))
		}
		lines = append(lines, line)
	}
	return lines
}
