// Package theme has the styles and characters that the terminal UI is drawn
// with. A theme is made once for the terminal's background and the colours that
// it can show; everything else names a style and never a colour.
//
// Example: on a dark background with 16 colours, Failed is bright red; on a
// terminal without colours it is plain text, since every colour stands beside a
// word or a mark that says the same.
package theme

import (
	"fmt"
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/colorprofile"

	"github.com/jobq-dev/jobq"
)

// Style is a Lip Gloss style for text of one line. Its escape codes are
// rendered once, when the theme is made: a screen has thousands of cells.
type Style struct{ before, after string }

// once renders a style around a mark, to know what to put around any text.
func once(style lipgloss.Style) Style {
	const mark = "\U0010FFFD" // a private character, which no escape code contains
	before, after, _ := strings.Cut(style.Render(mark), mark)
	return Style{before, after}
}

// Render puts the style around the text. Empty text stays empty.
func (s Style) Render(text string) string {
	if text == "" {
		return ""
	}
	return s.before + text + s.after
}

// Theme is a set of styles and characters. It does not change once it is made.
type Theme struct {
	Name string
	Glyphs

	Title     Style // names of things, and what was said last
	Muted     Style // what matters less, and lines between parts
	Cursor    Style // marks the selected row
	Selected  Style // the open tab
	Match     Style // a line that a search has found
	Alarm     Style // asks for attention now
	Error     Style // error texts
	Warn      Style // asks for attention soon
	Good      Style // all is well
	Running   Style // and the other states of jobs
	Completed Style
	Failed    Style
	Cancelled Style
	Scheduled Style
	Available Style

	colours map[string]Style // of the names of contexts
	banners map[string]Style // of the first line of production contexts
	plain   Style
}

// Names are the names of the themes that an operator can choose.
func Names() []string { return []string{"auto", "dark", "light", "mono"} }

// Auto is the theme that suits the background of the terminal.
const Auto = "auto"

// Settings decide how a theme looks.
type Settings struct {
	// Name is one of Names; empty for Auto.
	Name string
	// Background is dark or light, as the terminal has said; empty as long as
	// it has not. Only Auto looks at it.
	Background string
	// Profile is what the terminal can show. The zero value is unknown, for
	// which the sixteen colours are used that each terminal has.
	Profile colorprofile.Profile
	// ASCII draws with ASCII characters only.
	ASCII bool
	// Bare has no styles at all: neither colours nor bold nor reverse.
	Bare bool
}

// New makes a theme. A name that does not exist is an error.
func New(s Settings) (*Theme, error) {
	name := s.Name
	switch name {
	case "", Auto:
		if name = s.Background; name == "" {
			name = Auto
		}
	case "dark", "light", "mono":
	default:
		return nil, fmt.Errorf("no theme %q; there are %s", name, strings.Join(Names(), ", "))
	}
	t := &Theme{Name: name, Glyphs: unicode}
	if s.ASCII {
		t.Glyphs = ascii
	}
	if !s.Bare {
		t.paint(paletteOf(name, s.Profile))
	}
	return t, nil
}

// paint makes the styles of a palette.
func (t *Theme) paint(p palette) {
	base := lipgloss.NewStyle()
	t.Title = once(base.Bold(true))
	t.Cursor = t.Title
	t.Selected = once(base.Reverse(true))
	t.Match = t.Selected
	t.Muted = once(p.muted)
	t.Cancelled = t.Muted
	t.Alarm = once(p.red.Bold(true))
	t.Error, t.Failed = once(p.red), once(p.red)
	t.Warn, t.Available = once(p.yellow), once(p.yellow)
	t.Good, t.Completed = once(p.green), once(p.green)
	t.Running, t.Scheduled = once(p.cyan), once(p.blue)
	t.colours, t.banners = make(map[string]Style), make(map[string]Style)
	for name, style := range map[string]lipgloss.Style{
		"red": p.red, "green": p.green, "yellow": p.yellow, "blue": p.blue, "magenta": p.magenta, "cyan": p.cyan, "": base,
	} {
		t.colours[name] = once(style)
		t.banners[name] = once(style.Reverse(true))
	}
}

// State is the style of a job's state.
func (t *Theme) State(state jobq.State) Style {
	switch state {
	case jobq.StateRunning:
		return t.Running
	case jobq.StateCompleted:
		return t.Completed
	case jobq.StateFailed:
		return t.Failed
	case jobq.StateCancelled:
		return t.Cancelled
	case jobq.StateScheduled, jobq.StateWaiting:
		return t.Scheduled
	case jobq.StateAvailable:
		return t.Available
	}
	return t.plain
}

// Context is the style of the name of a database context that has this colour.
func (t *Theme) Context(colour string) Style { return t.colours[colour] }

// Banner is the style of text on a ground of this colour.
func (t *Theme) Banner(colour string) Style { return t.banners[colour] }
