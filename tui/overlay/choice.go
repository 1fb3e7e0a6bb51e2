package overlay

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/widget"
)

// Choice is a list of which one is chosen.
type Choice struct {
	frame
	about request.Choose
}

// NewChoice offers the items.
func NewChoice(paint *widget.Painter, choose request.Choose) *Choice {
	choose.At = max(choose.At, 0)
	return &Choice{frame{paint: paint}, choose}
}

// Update moves the cursor, chooses, or leaves.
func (o *Choice) Update(msg tea.Msg) Result {
	key, ok := msg.(tea.KeyPressMsg)
	if !ok {
		return Result{}
	}
	name := key.String()
	for i, item := range o.about.Items {
		if item.Key == name || item.Key == "" && i < 9 && name == strconv.Itoa(i+1) {
			return Result{true, item.Then}
		}
	}
	switch {
	case name == "down", name == "j":
		o.about.At = min(o.about.At+1, max(len(o.about.Items)-1, 0))
	case name == "up", name == "k":
		o.about.At = max(o.about.At-1, 0)
	case name == "home", name == "g":
		o.about.At = 0
	case name == "end", name == "G":
		o.about.At = max(len(o.about.Items)-1, 0)
	case name == command.Accept && len(o.about.Items) > 0:
		return Result{true, o.about.Items[o.about.At].Then}
	default:
		return Result{Done: true}
	}
	return Result{}
}

// Choose chooses by the number of a line, from 1; false when there is none.
func (o *Choice) Choose(number int) (Result, bool) {
	if number < 1 || number > len(o.about.Items) {
		return Result{}, false
	}
	return Result{true, o.about.Items[number-1].Then}, true
}

// View draws the list, as much of it as there is room for.
func (o *Choice) View() ([]string, *Spot) {
	notes := strings.Split(ansi.Wrap(strings.Join(append(slices.Clone(o.about.Notes), o.about.Hint), "\n"), o.inner(), " "), "\n")
	height := max(o.lines-5-len(notes), 3)
	if o.paint.Plain {
		height = len(o.about.Items)
	}
	first := widget.Window(0, o.about.At, len(o.about.Items), height)
	lines := make([]string, 0, height+3)
	for i := first; i < min(first+height, len(o.about.Items)); i++ {
		lines = append(lines, o.paint.Fit(o.mark(i)+" "+o.about.Items[i].Text, min(o.inner(), o.widest())))
	}
	lines = append(lines, "")
	for _, note := range notes {
		lines = append(lines, o.paint.Muted.Render(note))
	}
	return o.box(o.about.Title, lines), inBox(0, o.about.At-first)
}

// widest is how many cells the widest line needs.
func (o *Choice) widest() (cells int) {
	for i := range o.about.Items {
		cells = max(cells, widget.Width(o.mark(i)+" "+o.about.Items[i].Text))
	}
	return cells
}

// mark is the key of a line, if it has one, with the mark of the cursor.
func (o *Choice) mark(i int) string {
	cursor := "  "
	if i == o.about.At {
		cursor = o.paint.Cursor.Render("> ")
	}
	switch {
	case o.about.Items[i].Key != "":
		return cursor + o.about.Items[i].Key
	case i >= 9 && !o.paint.Plain: // no key has it
		return cursor + " "
	}
	return cursor + fmt.Sprint(i+1)
}
