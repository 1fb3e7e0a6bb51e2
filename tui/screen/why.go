package screen

import (
	"context"
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/charmbracelet/x/ansi"

	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/widget"
)

// reasons is the answer to why a job is not running.
type reasons struct {
	asked *base // by which screen: all of them are told
	id    int64
	found []monitor.Reason
	err   error
}

// askWhy asks the database why a job is not running.
func (b *base) askWhy(id int64) tea.Msg {
	return request.Read{Ask: func(ctx context.Context, r data.Reader) tea.Msg {
		found, err := r.Why(ctx, id)
		return reasons{b, id, found, err}
	}}
}

// whyMargin is what a note has beside its text: the frame and the room around it.
const whyMargin = 8

// tellWhy says it over the screen, each reason with what can be done below it. It
// waits while another overlay is open. What another screen has asked is not for this one.
func (b *base) tellWhy(answer reasons) tea.Msg {
	if answer.asked != b {
		return nil
	}
	if answer.err != nil {
		return request.Tell{Text: "why: " + ShortError(answer.err)}
	}
	var lines []string
	add := func(indent, text string) {
		if b.Paint.Plain {
			lines = append(lines, indent+widget.Clean(text))
			return
		}
		wrapped := ansi.Wrap(widget.Clean(text), max(min(b.cells-whyMargin, widthOfReading)-len(indent), 1), " ,")
		for _, line := range strings.Split(wrapped, "\n") {
			lines = append(lines, indent+line)
		}
	}
	for i, reason := range answer.found {
		if i > 0 {
			lines = append(lines, "")
		}
		says, advice := format.Why(answer.id, reason, b.Paint.Now())
		add("", says)
		if advice != "" {
			add("  ", advice)
		}
	}
	return request.Later{Overlay: request.Note{Title: fmt.Sprintf("Why is job %d not running?", answer.id), Lines: lines}}
}

// widthOfReading is how wide lines of text are at most.
const widthOfReading = 100
