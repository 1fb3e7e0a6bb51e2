package tui

import (
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/tui/widget"
)

// helpOverlay lists the commands; typing narrows the list, enter runs the
// first one.
type helpOverlay struct {
	search string
	at     int
}

func (m *Model) openHelp() tea.Cmd {
	m.overlay = &helpOverlay{}
	return nil
}

// matching are the commands of the screen, then the others, that the search finds.
func (o *helpOverlay) matching(m *Model) []*command {
	s := m.screen
	var here, elsewhere []*command
	for _, c := range m.env.commands {
		if o.search != "" && !strings.Contains(strings.ToLower(c.id+" "+c.help), strings.ToLower(o.search)) {
			continue
		}
		if c.screens == nil || slices.Contains(c.screens, s) {
			here = append(here, c)
		} else {
			elsewhere = append(elsewhere, c)
		}
	}
	return append(here, elsewhere...)
}

func (o *helpOverlay) key(m *Model, msg tea.KeyPressMsg) tea.Cmd {
	found := o.matching(m)
	name := msg.String()
	if o.search == "" && m.hasKey("help", name) {
		name = "esc"
	}
	switch name {
	case "esc":
		m.overlay = nil
	case "down":
		o.at = min(o.at+1, max(len(found)-1, 0))
	case "up":
		o.at = max(o.at-1, 0)
	case "enter":
		m.overlay = nil
		if len(found) == 0 {
			return nil
		}
		c := found[min(o.at, len(found)-1)]
		if c.screens != nil && !slices.Contains(c.screens, m.screen) {
			m.say(c.id + ": not on this screen")
			return nil
		}
		return m.run(c)
	case "backspace":
		o.search, o.at = o.search[:max(len(o.search)-1, 0)], 0
	default:
		if len(msg.Text) == 1 && msg.Text[0] > ' ' && msg.Text[0] <= '~' && len(o.search) < 30 {
			o.search, o.at = o.search+msg.Text, 0
		}
	}
	return nil
}

func (o *helpOverlay) view(m *Model) []string {
	found := o.matching(m)
	height := max(m.height-8, 3)
	offset := widget.Window(0, o.at, len(found), height)
	lines := []string{"search: " + o.search + "_", ""}
	for i := offset; i < min(offset+height, len(found)); i++ {
		c := found[i]
		marks := "  "
		if i == o.at {
			marks = m.paint.Title.Render("> ")
		}
		line := fmt.Sprintf("%-14s %-13s %s", strings.Join(c.keys, " "), c.id, c.help)
		if c.screens != nil && !slices.Contains(c.screens, m.screen) {
			line = m.paint.Muted.Render(line)
		}
		lines = append(lines, m.paint.Fit(marks+line, min(m.width-8, 110)))
	}
	return m.box("Keys", append(lines, m.paint.Muted.Render("type to search   enter: do it   esc: leave")))
}

// copyItem is something to copy.
type copyItem struct{ name, text string }

// copyOverlay offers texts for the clipboard.
type copyOverlay struct {
	items []copyItem
	at    int
}

func (m *Model) openCopy() tea.Cmd {
	m.overlay = &copyOverlay{items: m.copyItems()}
	return nil
}

func (o *copyOverlay) choices(*Model) (at *int, count int) { return &o.at, len(o.items) }

func (o *copyOverlay) key(m *Model, msg tea.KeyPressMsg) tea.Cmd {
	chosen, leave := pick(m, o, msg.String())
	if leave {
		m.overlay = nil
	}
	if chosen {
		return o.copy(m)
	}
	return nil
}

// copy puts the text on the clipboard, through the terminal, and shows it,
// for terminals that do not let programs do that.
func (o *copyOverlay) copy(m *Model) tea.Cmd {
	m.overlay = nil
	text := o.items[o.at].text
	if m.paint.Plain { // to read, or to copy from there
		m.say(text)
		return nil
	}
	m.say("copied: " + text)
	return tea.SetClipboard(text)
}

func (o *copyOverlay) view(m *Model) []string {
	height := max(m.height-5, 3)
	offset := widget.Window(0, o.at, len(o.items), height)
	lines := make([]string, 0, height+2)
	for i := offset; i < min(offset+height, len(o.items)); i++ {
		lines = append(lines, m.paint.Fit(fmt.Sprintf("%s %-10s %s", m.choice(i, o.at), o.items[i].name, widget.Clean(o.items[i].text)), min(m.width-8, 100)))
	}
	return m.box("Copy", append(lines, "", m.paint.Muted.Render("enter or a number: copy   esc: leave")))
}
