package overlay

import (
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/widget"
)

// Help lists the commands; typing narrows the list, enter runs the one under the
// cursor.
type Help struct {
	frame
	about request.Help
	field widget.Field
	at    int
}

// NewHelp lists the commands of the screen before the others.
func NewHelp(paint *widget.Painter, about request.Help) *Help {
	about.Entries = slices.Clone(about.Entries)
	slices.SortStableFunc(about.Entries, func(a, b request.Entry) int {
		switch {
		case a.Here == b.Here:
			return 0
		case a.Here:
			return -1
		}
		return 1
	})
	return &Help{frame: frame{paint: paint}, about: about, field: widget.NewField("")}
}

// SetSize says how large the screen below is.
func (o *Help) SetSize(cells, lines int) {
	o.frame.SetSize(cells, lines)
	o.field.SetWidth(o.inner() - 10)
}

// matching are the commands that the search finds.
func (o *Help) matching() []request.Entry {
	search := strings.ToLower(o.field.Text())
	return slices.DeleteFunc(slices.Clone(o.about.Entries), func(entry request.Entry) bool {
		return !strings.Contains(strings.ToLower(entry.ID+" "+entry.Help), search)
	})
}

// height is how many commands can be seen at once.
func (o *Help) height() int { return max(o.lines-8, 3) }

// Update searches, moves, or runs a command.
func (o *Help) Update(msg tea.Msg) Result {
	found := o.matching()
	last := max(len(found)-1, 0)
	key, isKey := msg.(tea.KeyPressMsg)
	name := key.String()
	switch {
	case !isKey:
		o.field.Update(msg)
	case name == command.Leave, o.field.Text() == "" && slices.Contains(o.about.Keys, name):
		return Result{Done: true}
	case name == "down":
		o.at = min(o.at+1, last)
	case name == "up":
		o.at = max(o.at-1, 0)
	case name == "pgdown":
		o.at = min(o.at+o.height(), last)
	case name == "pgup":
		o.at = max(o.at-o.height(), 0)
	case name == command.Accept && len(found) == 0:
		return Result{Done: true}
	case name == command.Accept:
		return Result{true, request.Command{ID: found[min(o.at, last)].ID}}
	default:
		before := o.field.Text()
		if o.field.Update(key); o.field.Text() != before {
			o.at = 0
		}
	}
	return Result{}
}

// View draws the search and the commands.
func (o *Help) View() ([]string, *Spot) {
	found := o.matching()
	height := o.height()
	first := widget.Window(0, o.at, len(found), height)
	const prompt = "search: "
	lines := []string{prompt + o.field.View(), ""}
	for i := first; i < min(first+height, len(found)); i++ {
		marks := "  "
		if i == o.at {
			marks = o.paint.Cursor.Render("> ")
		}
		line := fmt.Sprintf("%-14s %-13s %s", strings.Join(found[i].Keys, " "), found[i].ID, found[i].Help)
		if !found[i].Here {
			line = o.paint.Muted.Render(line)
		}
		lines = append(lines, o.paint.Fit(marks+line, o.inner()))
	}
	if len(found) == 0 {
		lines = append(lines, "  "+o.paint.Muted.Render("no command has these words"))
	}
	lines = append(lines, o.paint.Muted.Render("type to search   enter: do it   esc: leave"))
	return o.box("Keys", lines), inBox(len(prompt)+o.field.Cursor(), 0)
}
