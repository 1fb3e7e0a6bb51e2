package screen

import (
	"fmt"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/widget"
)

// table is a screen with a list of rows of which one is selected.
type table struct {
	base
	list  widget.List
	rows  widget.Rows
	panel data.Panel // that the rows come from
	top   int        // the line of the first row
}

// setHeight sets how many rows can be seen.
func (t *table) setHeight(top, height int) {
	t.top = top
	t.list.SetHeight(height, t.rows)
}

func (t *table) at() int { return t.list.At(t.rows) }

func (t *table) move(by int) tea.Msg {
	t.list.Move(by, t.rows)
	return nil
}

func (t *table) moves() map[string]Action {
	return moves(t.move, t.move, t.list.Height,
		func() tea.Msg { return t.move(-t.rows.Len()) }, func() tea.Msg { return t.move(t.rows.Len()) })
}

// Update takes what all tables take in the same way.
func (t *table) Update(msg tea.Msg) tea.Msg {
	switch msg := msg.(type) {
	case Scroll:
		return t.move(msg.By)
	case Click:
		first, end := t.list.Shown(t.rows)
		if row := first + msg.Line - t.top; msg.Line >= t.top && row < end {
			return t.move(row - t.at())
		}
	case Pick:
		if msg.Row < 1 || msg.Row > t.rows.Len() {
			return noRow(msg.Row)
		}
		return t.move(msg.Row - 1 - t.at())
	case data.Answer:
		if msg.Panel == t.panel && msg.Err == nil {
			t.list.Move(0, t.rows) // what a key acts on stays the row that it was shown on
		}
	}
	return nil
}

// position is how many rows there are, and which of them can be seen if not all:
// "7", "12-20 of 40".
func (t *table) position() string {
	first, end := t.list.Shown(t.rows)
	count := format.Number(t.rows.Len())
	if end-first >= t.rows.Len() {
		return count
	}
	return fmt.Sprintf("%s-%s of %s", format.Number(first+1), format.Number(end), count)
}

// cursor is the line of the selected row.
func (t *table) cursor() int {
	if t.rows.Len() == 0 {
		return -1
	}
	first, _ := t.list.Shown(t.rows)
	return t.top + t.at() - first
}

// marks are what stands before a row.
func (t *table) marks(selected bool) string {
	if selected {
		return t.Paint.Cursor.Render("> ")
	}
	return "  "
}
