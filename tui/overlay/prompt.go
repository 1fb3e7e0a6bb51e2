package overlay

import (
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/widget"
)

// Prompt is a line of text to type, with what can be meant below it.
type Prompt struct {
	frame
	about   request.Prompt
	field   widget.Field
	problem string
}

// NewPrompt asks for a text.
func NewPrompt(paint *widget.Painter, about request.Prompt) *Prompt {
	return &Prompt{frame: frame{paint: paint}, about: about, field: widget.NewField(about.Text)}
}

// SetSize says how large the screen below is.
func (o *Prompt) SetSize(cells, lines int) {
	o.frame.SetSize(cells, lines)
	o.field.SetWidth(o.inner())
}

// SetText replaces what was typed.
func (o *Prompt) SetText(text string) { o.field.SetText(text) }

// Update takes a key or a paste in.
func (o *Prompt) Update(msg tea.Msg) Result {
	key, isKey := msg.(tea.KeyPressMsg)
	if !isKey {
		o.field.Update(msg)
		return Result{}
	}
	o.problem = ""
	switch key.String() {
	case command.Leave:
		return Result{Done: true}
	case command.Accept:
		then, err := o.about.Accept(strings.TrimSpace(o.field.Text()))
		if err != nil {
			o.problem = widget.Clean(err.Error())
			return Result{}
		}
		return Result{true, then}
	case command.Complete:
		o.complete()
	default:
		o.field.Update(key)
	}
	return Result{}
}

// hints are what can be meant by what is typed.
func (o *Prompt) hints() []string {
	if o.about.Hints == nil {
		return nil
	}
	return o.about.Hints(o.field.Text())
}

func (o *Prompt) complete() {
	text := o.field.Text()
	if hints := o.hints(); len(hints) > 0 {
		word, _, _ := strings.Cut(hints[0], " ")
		o.field.SetText(text[:strings.LastIndexAny(text, " ")+1] + word)
	}
}

// View draws the text and the hints.
func (o *Prompt) View() ([]string, *Spot) {
	lines := []string{o.field.View()}
	if o.problem != "" {
		lines = append(lines, o.paint.Error.Render(o.problem))
	}
	lines = append(lines, "")
	if o.about.Note != "" {
		lines = append(lines, o.about.Note)
	}
	hints := o.hints()
	for _, hint := range hints[:max(min(len(hints), o.lines-9), 0)] {
		lines = append(lines, o.paint.Muted.Render(hint))
	}
	for i := range lines {
		lines[i] = o.paint.Fit(lines[i], o.inner())
	}
	keys := "enter: go   esc: leave"
	if len(hints) > 0 {
		keys = "enter: go   tab: complete   esc: leave"
	}
	lines = append(lines, o.paint.Muted.Render(keys))
	return o.box(o.about.Title, lines), inBox(o.field.Cursor(), 0)
}
