package screen

import (
	"fmt"
	"slices"
	"time"

	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/widget"
)

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
			bad("worker %s has been silent for %s, and holds %s", widget.Clean(w.ID), format.Ago(silence), format.Count(w.Running, "job"))
		}
	}
	for _, runs := range s.Facts.Silent {
		bad("%s", silentText(runs, now))
	}
	for _, q := range s.Facts.Queues {
		switch {
		case q.PausedAt != nil:
			odd("%s was paused %s by %s", widget.Clean(q.Name), format.When(*q.PausedAt, now), widget.Clean(format.PausedBy(q)))
		case q.HeadRunAt == nil:
		case q.Slots == 0:
			bad("%s: %s wait and no worker takes them", widget.Clean(q.Name), waitingJobs(q))
		case now.Sub(*q.HeadRunAt) > data.WaitTrouble:
			odd("%s: the next job has waited for %s", widget.Clean(q.Name), format.Ago(now.Sub(*q.HeadRunAt)))
		}
	}
	if s.Facts.Leader == nil && s.Facts.Known(data.Leader) {
		odd("no janitor leads: jobs of workers that have died are not recovered")
	}
	return lines
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
	return format.CappedAt(q.Available, q.AvailableMax) + " jobs"
}

// failing says of each queue with failures of late how many there were, and which
// error was the most frequent. How many comes from the sums of the queue, and not
// from the errors, of which only the most frequent of all queues are known.
func (s *OverviewPage) failing() (lines []string) {
	span := format.Ago(data.FailuresSpan)
	worst := make(map[string]monitor.Failure, len(s.Facts.Failures.Groups)) // by queue
	for _, f := range slices.Backward(s.Facts.Failures.Groups) {
		if f.Jobs > 0 {
			worst[f.Queue] = f
		}
	}
	for _, name := range s.Facts.Failing() {
		line := fmt.Sprintf("%s: %s failed in %s", widget.Clean(name), format.Number(s.Facts.FailedOfLate(name)), span)
		if f, known := worst[name]; known {
			line += fmt.Sprintf(", %s of %s with %q", format.Number(f.Jobs), widget.Clean(f.Kind), widget.Clean(f.Error))
		}
		lines = append(lines, line)
	}
	return lines
}
