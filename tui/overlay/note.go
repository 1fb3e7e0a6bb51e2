package overlay

import (
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/widget"
)

// Note says what is too long for a line, until a key is pressed.
type Note struct {
	frame
	about request.Note
	since time.Time
	early bool
}

// NewNote says it.
func NewNote(paint *widget.Painter, about request.Note) *Note {
	return &Note{frame: frame{paint: paint}, about: about, since: paint.Now()}
}

// Update ends the note with a key, unless that was typed before it was seen.
func (o *Note) Update(msg tea.Msg) Result {
	if _, ok := msg.(tea.KeyPressMsg); !ok {
		return Result{}
	}
	o.early = o.tooSoon(o.since)
	return Result{Done: !o.early}
}

// View draws the note.
func (o *Note) View() ([]string, *Spot) {
	lines := append(append([]string(nil), o.about.Lines...), "", o.paint.Muted.Render("any key: leave"))
	if o.early {
		lines = append(lines, o.paint.Warn.Render(tooEarly))
	}
	return o.box(o.about.Title, lines), nil
}
