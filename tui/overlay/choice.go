package overlay

import (
	"fmt"
	"strconv"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/tui/widget"
)

// Item is something to choose.
type Item struct {
	Key  string // that chooses it at once; empty for the number of its place
	Text string
	Then tea.Msg // what the root is to do when it is chosen
}

// Choice is a list of which one is chosen.
type Choice struct {
	frame
	title string
	notes []string // below the list
	hint  string   // what the keys do
	items []Item
	at    int
}

// NewChoice offers the items, with the cursor on the one at this place.
func NewChoice(paint *widget.Painter, title, hint string, items []Item, at int, notes ...string) *Choice {
	return &Choice{frame: frame{paint: paint}, title: title, notes: notes, hint: hint, items: items, at: max(at, 0)}
}

// Update moves the cursor, chooses, or leaves.
func (o *Choice) Update(msg tea.Msg) Result {
	key, ok := msg.(tea.KeyPressMsg)
	if !ok {
		return Result{}
	}
	name := key.String()
	for i, item := range o.items {
		if item.Key == name || item.Key == "" && i < 9 && name == strconv.Itoa(i+1) {
			return Result{true, item.Then}
		}
	}
	switch {
	case name == "down", name == "j":
		o.at = min(o.at+1, max(len(o.items)-1, 0))
	case name == "up", name == "k":
		o.at = max(o.at-1, 0)
	case name == "home", name == "g":
		o.at = 0
	case name == "end", name == "G":
		o.at = max(len(o.items)-1, 0)
	case name == "enter" && len(o.items) > 0:
		return Result{true, o.items[o.at].Then}
	default:
		return Result{Done: true}
	}
	return Result{}
}

// Choose chooses by the number of a line, from 1; false when there is none.
func (o *Choice) Choose(number int) (Result, bool) {
	if number < 1 || number > len(o.items) {
		return Result{}, false
	}
	return Result{true, o.items[number-1].Then}, true
}

// View draws the list, as much of it as there is room for.
func (o *Choice) View() ([]string, *Spot) {
	height := max(o.lines-6-len(o.notes), 3)
	if o.paint.Plain {
		height = len(o.items)
	}
	first := widget.Window(0, o.at, len(o.items), height)
	lines := make([]string, 0, height+3)
	for i := first; i < min(first+height, len(o.items)); i++ {
		lines = append(lines, o.paint.Fit(o.mark(i)+" "+o.items[i].Text, min(o.inner(), o.widest())))
	}
	lines = append(lines, "")
	for _, note := range append(o.notes, o.hint) {
		lines = append(lines, o.paint.Muted.Render(note))
	}
	return o.box(o.title, lines), inBox(0, o.at-first)
}

// widest is how many cells the widest line needs.
func (o *Choice) widest() (cells int) {
	for i := range o.items {
		cells = max(cells, widget.Width(o.mark(i)+" "+o.items[i].Text))
	}
	return cells
}

// mark is the key of a line, if it has one, with the mark of the cursor.
func (o *Choice) mark(i int) string {
	cursor := "  "
	if i == o.at {
		cursor = o.paint.Cursor.Render("> ")
	}
	switch {
	case o.items[i].Key != "":
		return cursor + o.items[i].Key
	case i >= 9 && !o.paint.Plain: // no key has it
		return cursor + " "
	}
	return cursor + fmt.Sprint(i+1)
}
