package overlay

import (
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/widget"
)

// quiet is how long a key is no answer to a question: it may have been typed
// before the question was seen. The question says so then.
const quiet = 400 * time.Millisecond

// tooSoon says whether a key that comes now may have been typed before the question
// was seen. In plain mode none is: a line is read only after the question was
// written, and a line that was piped in is meant for what is asked by then.
func (f *frame) tooSoon(since time.Time) bool {
	return !f.paint.Plain && f.paint.Now().Sub(since) < quiet
}

// tooEarly is what a question says of a key within that time.
const tooEarly = "A key was typed before this could be read, and was no answer: press it again."

// Confirm asks before something is done.
type Confirm struct {
	frame
	question request.Ask
	field    widget.Field
	since    time.Time
	early    bool // a key came too early
}

// NewConfirm asks the question.
func NewConfirm(paint *widget.Painter, question request.Ask) *Confirm {
	return &Confirm{frame: frame{paint: paint}, question: question, field: widget.NewField(""), since: paint.Now()}
}

// Update takes the answer.
func (o *Confirm) Update(msg tea.Msg) Result {
	key, isKey := msg.(tea.KeyPressMsg)
	switch {
	case isKey && key.String() == command.Leave:
		return o.no()
	case o.question.Typed.Text != "":
		return o.typed(msg)
	case !isKey:
		return Result{}
	case o.tooSoon(o.since):
		o.early = true
		return Result{}
	case strings.ToLower(key.String()) == command.Yes:
		return Result{true, o.question.Yes}
	}
	return o.no()
}

// typed takes a part of what must be typed. Nobody types that before he has read
// the question, and so each key counts at once.
func (o *Confirm) typed(msg tea.Msg) Result {
	if key, ok := msg.(tea.KeyPressMsg); ok && key.String() == command.Accept {
		if o.field.Text() == o.question.Typed.Text {
			return Result{true, o.question.Yes}
		}
		return Result{}
	}
	o.field.Update(msg)
	return Result{}
}

func (o *Confirm) no() Result { return Result{true, request.Tell{Text: "nothing was done"}} }

// SetText replaces what was typed.
func (o *Confirm) SetText(text string) { o.field.SetText(text) }

// details are what the question is about, in full as far as there is room: what is too
// long for a line goes on below it.
func (o *Confirm) details() (lines []string) {
	const indent, answerLines = "          ", 9 // the frame, the title and the answer
	spare := max(o.lines-answerLines-len(o.question.Details), 0)
	if o.paint.Plain {
		return append(lines, o.question.Details...)
	}
	for _, detail := range o.question.Details {
		first, rest, _ := strings.Cut(ansi.Wrap(detail, o.inner(), " "), "\n")
		if rest == "" {
			lines = append(lines, detail)
			continue
		}
		more := strings.Split(ansi.Wrap(strings.ReplaceAll(rest, "\n", " "), o.inner()-len(indent), " "), "\n")
		if len(more) > spare {
			more = append(more[:spare], "")[:spare]
			if spare == 0 {
				first = o.paint.Fit(detail, o.inner())
			} else {
				more[spare-1] += " " + o.paint.More
			}
		}
		spare -= len(more)
		lines = append(lines, first)
		for _, line := range more {
			lines = append(lines, indent+line)
		}
	}
	return lines
}

// View draws the question.
func (o *Confirm) View() ([]string, *Spot) {
	lines := append(o.details(), "")
	typed := o.question.Typed
	if typed.Text == "" {
		lines = append(lines, command.Yes+" yes    any other key: no")
		if o.early {
			lines = append(lines, o.paint.Warn.Render(tooEarly))
		}
		return o.box(o.question.Title, lines), nil
	}
	what := typed.Text
	if typed.Meaning != "" {
		what += ", " + typed.Meaning + ","
	}
	prompt := "and press enter to " + typed.Effect + ": "
	lines = append(lines, "Type "+what, prompt+o.field.View(), "esc: do nothing")
	return o.box(o.question.Title, lines), inBox(widget.Width(prompt)+o.field.Cursor(), len(lines)-2)
}
