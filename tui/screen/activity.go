package screen

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/widget"
)

// activity is what happens, a line for each thing that workers say.
type activity struct{ last []happened }

// happened is one of those lines. Of a job, it has the state, which is styled when it
// is drawn.
type happened struct {
	at          time.Time
	queue, text string
	id          int64 // of a job that reports progress, which takes the place of what it reported before
	state       jobq.State
	word, after string
}

// How many lines are kept, and how many of one message: failures come first.
const (
	activityMax   = 60
	goodLinesMax  = 3
	otherLinesMax = 8
)

// take adds what went wrong job by job, a few others, and the rest as counts.
func (a *activity) take(feed data.Feed, paint *widget.Painter) {
	var lines []happened
	named := make(map[string]ends) // by queue
	for _, event := range feed.Events {
		if event.State == jobq.StateRunning && event.Stage == "" && event.Percent == 0 {
			continue
		}
		failed := event.State != jobq.StateCompleted && event.State != jobq.StateRunning
		if len(lines) >= goodLinesMax && !failed || len(lines) >= otherLinesMax {
			continue
		}
		line := happened{at: feed.At, queue: widget.Clean(event.Queue), text: fmt.Sprintf("/%s %d ", widget.Clean(event.Kind), event.ID)}
		if event.State == jobq.StateRunning {
			a.last = slices.DeleteFunc(a.last, func(h happened) bool { return h.id == event.ID })
			line.id, line.after = event.ID, fmt.Sprintf(" %.0f%% %s", event.Percent, widget.Clean(event.Stage))
			lines = append(lines, line)
			continue
		}
		line.text += paint.Arrow + " "
		line.state, line.after = event.State, " "+format.Took(event.Took)
		line.word = format.State(&jobq.Job{State: event.State, Attempts: event.Attempts})
		named[event.Queue] = plus(named[event.Queue], event)
		lines = append(lines, line)
	}
	for _, queue := range slices.Sorted(maps.Keys(feed.Ended)) {
		if text := restText(feed.Ended[queue], named[queue]); text != "" {
			lines = append(lines, happened{at: feed.At, queue: widget.Clean(queue), text: text})
		}
	}
	a.last = append(lines, a.last...)
	a.last = a.last[:min(len(a.last), activityMax)]
}

// ends are runs that have a line each. Of a job that is tried again the line does not
// say whether its last run failed: it may have been put off, after an earlier failure.
type ends struct {
	data.Ended
	retrying int64
}

// plus counts a run that has ended.
func plus(named ends, event data.Event) ends {
	switch {
	case event.State == jobq.StateCompleted:
		named.Completed++
	case event.State == jobq.StateFailed:
		named.Failed++
	case event.State == jobq.StateScheduled && event.Attempts > 0:
		named.retrying++
	default:
		named.Others++
	}
	return named
}

// restText says how many runs have ended beside those that have a line; empty for none.
//
// Example: 3 runs have failed and 1 was put off. The lines are of one that is failed and
// of one that is tried again, which counts as failed too: "1 more failed, 1 put off".
func restText(all data.Ended, named ends) string {
	completed, failed, others := all.Completed-named.Completed, all.Failed-named.Failed, all.Others-named.Others
	retried := min(named.retrying, max(failed, 0))
	failed, others = failed-retried, others-(named.retrying-retried)
	var parts []string
	more := " more"
	for _, part := range []struct {
		count int64
		word  string
	}{{completed, "completed"}, {failed, "failed"}, {others, "put off or cancelled"}} {
		if part.count > 0 {
			parts = append(parts, format.Number(part.count)+more+" "+part.word)
			more = ""
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ", ")
}

// lines are as many as there is room for. A queue's name gives way to what happened.
func (a *activity) lines(b base, cells, room int) []string {
	if len(a.last) == 0 {
		return []string{b.Paint.Muted.Render(b.noActivity())}
	}
	lines := make([]string, min(len(a.last), room))
	for i := range lines {
		h := a.last[i]
		const clockCells, queueMin = 9, 8
		left := max(cells-clockCells-widget.Width(h.text+h.word+h.after), queueMin)
		lines[i] = b.Paint.Muted.Render(h.at.UTC().Format("15:04:05")) + " " + b.Paint.Fit(h.queue, min(widget.Width(h.queue), left)) +
			h.text + b.Paint.State(h.state).Render(h.word) + h.after
	}
	return lines
}

// noActivity says why there is none.
func (b *base) noActivity() string {
	switch {
	case b.Facts.Live:
		return "nothing has finished since this screen was opened"
	case b.Facts.WhyNotLive != "":
		return widget.Clean(b.Facts.WhyNotLive)
	}
	return "no live events yet: the database is asked again and again"
}
