// Package widget draws the parts that screens and overlays are made of: lines of
// an exact width, tables, boxes, charts, text fields and texts that scroll. It
// knows nothing of jobs' databases, screens or keys of commands.
package widget

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/jobq-dev/jobq/internal/printable"
	"github.com/jobq-dev/jobq/tui/theme"
)

// Painter draws in a theme. All screens and overlays share one; only the root of
// the UI changes it.
type Painter struct {
	*theme.Theme
	// Now is the clock.
	Now func() time.Time
	// Absolute shows times of day and not how long ago they were.
	Absolute bool
	// Plain is for screens that are read aloud: no boxes are drawn.
	Plain bool
}

// cleanBytesMax bounds what is looked at of a text that is shown on one line.
const cleanBytesMax = 4096

// Clean makes a text from the database one line that cannot drive the terminal.
func Clean(text string) string {
	if len(text) > cleanBytesMax {
		text = text[:cleanBytesMax]
	}
	return printable.Line(text)
}

// FirstLine is the first line of a text from the database.
func FirstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return Clean(strings.TrimRight(line, "\r"))
}

// Width is how many cells the text takes. Most text is ASCII without styles, for
// which there is nothing to parse.
func Width(text string) int {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return lipgloss.Width(text)
		}
	}
	return len(text)
}

// Fit cuts or fills the text to exactly that many cells.
func (p *Painter) Fit(text string, cells int) string {
	if cells <= 0 {
		return ""
	}
	have := Width(text)
	if have > cells {
		text = ansi.Truncate(text, cells, p.More)
		have = Width(text) // a wide character may not have fitted
	}
	return text + strings.Repeat(" ", cells-have)
}

// FitRight is Fit with the text at the right end.
func (p *Painter) FitRight(text string, cells int) string {
	have := Width(text)
	if have >= cells {
		return p.Fit(text, cells)
	}
	return strings.Repeat(" ", cells-have) + text
}

// Spread puts one text at each end of a line. The left one gives way.
func (p *Painter) Spread(left, right string, cells int) string {
	room := cells - Width(right)
	if room < 0 {
		return p.Fit(right, cells)
	}
	return p.Fit(left, room) + right
}

// Rule is a line across, with titles in it where they are not empty.
func (p *Painter) Rule(cells int, titles ...string) string {
	if len(titles) == 0 {
		return p.Muted.Render(strings.Repeat(p.Theme.Rule, max(cells, 0)))
	}
	line, used := p.Muted.Render(p.Theme.Rule), 1
	fill := func(to int) {
		if to > used {
			line += p.Muted.Render(strings.Repeat(p.Theme.Rule, to-used))
			used = to
		}
	}
	each := cells / len(titles)
	for i, title := range titles {
		line += " " + p.Title.Render(title) + " "
		used += Width(title) + 2
		fill(each * (i + 1))
	}
	fill(cells)
	return p.Fit(line, cells)
}

// Columns puts two texts side by side, the second beginning in the middle.
func (p *Painter) Columns(left, right []string, cells int) []string {
	half := cells / 2
	side := p.Muted.Render(p.Side) + " "
	lines := make([]string, max(len(left), len(right)))
	for i := range lines {
		l, r := "", ""
		if i < len(left) {
			l = left[i]
		}
		if i < len(right) {
			r = right[i]
		}
		lines[i] = p.Fit(l, half) + side + p.Fit(r, cells-half-2)
	}
	return lines
}

// Clock is a time of day in UTC, and the day when it is another one.
func (p *Painter) Clock(moment time.Time) string {
	moment = moment.UTC()
	if now := p.Now().UTC(); moment.YearDay() != now.YearDay() || moment.Year() != now.Year() {
		return moment.Format("01-02 15:04")
	}
	return moment.Format("15:04:05")
}

// ServerProcess names a process of the server, with its client's address if that is known.
func ServerProcess(pid int, address string) string {
	if address == "" {
		return strconv.Itoa(pid)
	}
	return fmt.Sprintf("%d@%s", pid, Clean(address))
}
