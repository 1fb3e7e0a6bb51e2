// Package overlay has what lies over a screen and takes its keys: questions,
// choices, text to type, help and progress. An overlay knows neither the root of
// the UI nor a screen; what it is about was given to it, and what it came to is a
// message to the root.
package overlay

import (
	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/widget"
)

// Overlay is something over a screen.
type Overlay interface {
	// SetSize says how large the screen below is.
	SetSize(cells, lines int)
	// Update takes a key, a paste, or a message that is meant for the overlay.
	Update(msg tea.Msg) Result
	// View is the box, and where in it the cursor is. It changes nothing.
	View() (box []string, cursor *Spot)
}

// Result is what came of a message.
type Result struct {
	Done bool    // the overlay is over
	Then tea.Msg // what the root is to do now; nil for nothing
}

// For is the overlay that a request asks for, or nil when it asks for none.
func For(paint *widget.Painter, asked tea.Msg) Overlay {
	switch asked := asked.(type) {
	case request.Ask:
		return NewConfirm(paint, asked)
	case request.Prompt:
		return NewPrompt(paint, asked)
	case request.Choose:
		return NewChoice(paint, asked)
	case request.Note:
		return NewNote(paint, asked)
	case request.Help:
		return NewHelp(paint, asked)
	case request.Progress:
		return NewProgress(paint, asked)
	}
	return nil
}

// Spot is a place in a box, from its first cell.
type Spot struct{ X, Y int }

// The room that boxes leave of a screen, and how wide a line is at most.
const (
	marginCells = 8
	cellsMax    = 110
)

// frame is what all overlays have.
type frame struct {
	paint        *widget.Painter
	cells, lines int
}

func (f *frame) SetSize(cells, lines int) { f.cells, f.lines = cells, lines }

// inner is how wide a line in the box can be.
func (f *frame) inner() int { return min(f.cells-marginCells, cellsMax) }

// box draws lines with a title.
func (f *frame) box(title string, lines []string) []string {
	return f.paint.Box(title, lines, f.cells-2)
}

// inBox is the place in a box of a column of one of its lines.
func inBox(column, line int) *Spot { return &Spot{column + 2, line + 1} }
