package screen

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/widget"
)

// activity is what happens, a line for each thing that workers say.
type activity struct{ last []happened }

// happened is one of those lines: the parts around the state, which is styled
// when it is drawn.
type happened struct {
	at            time.Time
	before, after string
	state         jobq.State
}

// How many lines are kept, and how many of one message: failures come first.
const (
	activityMax   = 40
	goodLinesMax  = 3
	otherLinesMax = 8
)

// take adds what went wrong job by job, a few others, and the rest as counts.
func (a *activity) take(feed data.Feed, paint *widget.Painter) {
	var lines []happened
	named := make(map[string]int64)
	for _, event := range feed.Events {
		if event.State == jobq.StateRunning && event.Stage == "" && event.Percent == 0 {
			continue
		}
		failed := event.State != jobq.StateCompleted && event.State != jobq.StateRunning
		if len(lines) >= goodLinesMax && !failed || len(lines) >= otherLinesMax {
			continue
		}
		name := fmt.Sprintf("%s/%s %d", widget.Clean(event.Queue), widget.Clean(event.Kind), event.ID)
		if event.State == jobq.StateRunning {
			lines = append(lines, happened{at: feed.At, before: fmt.Sprintf("%s  %.0f%% %s", name, event.Percent, widget.Clean(event.Stage))})
			continue
		}
		named[event.Queue]++
		lines = append(lines, happened{feed.At, name + " " + paint.Arrow + " ", " " + format.Took(event.Took), event.State})
	}
	for _, queue := range slices.Sorted(maps.Keys(feed.Ended)) {
		count := feed.Ended[queue]
		rest := count.Completed + count.Failed - named[queue]
		if rest <= 0 {
			continue
		}
		text := fmt.Sprintf("%s %s more finished", widget.Clean(queue), format.Number(rest))
		if count.Failed > 0 {
			text += fmt.Sprintf(", %s failed", format.Number(count.Failed))
		}
		lines = append(lines, happened{at: feed.At, before: text})
	}
	a.last = append(lines, a.last...)
	a.last = a.last[:min(len(a.last), activityMax)]
}

// lines are as many as there is room for.
func (a *activity) lines(b base, room int) []string {
	if len(a.last) == 0 {
		return []string{b.Paint.Muted.Render(b.noActivity())}
	}
	lines := make([]string, min(len(a.last), room))
	for i := range lines {
		h := a.last[i]
		lines[i] = b.Paint.Muted.Render(h.at.UTC().Format("15:04:05")) + " " + h.before + b.Paint.State(h.state).Render(string(h.state)) + h.after
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
