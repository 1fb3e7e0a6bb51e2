package tui

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/printable"
)

// cleanBytesMax bounds what is looked at of a text that is shown on one line.
const cleanBytesMax = 4096

// clean makes a text from the database one line that cannot drive the terminal.
func clean(text string) string {
	if len(text) > cleanBytesMax {
		text = text[:cleanBytesMax]
	}
	return printable.Line(text)
}

// firstLine is the first line of a text from the database.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return clean(strings.TrimRight(line, "\r"))
}

// width is how many cells the text takes.
func width(text string) int {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return ansi.StringWidth(text)
		}
	}
	return len(text)
}

// fit cuts or fills the text to exactly that many cells.
func (m *Model) fit(text string, cells int) string {
	if cells <= 0 {
		return ""
	}
	have := width(text)
	if have > cells {
		text = ansi.Truncate(text, cells, m.env.glyphs.more)
		have = width(text) // a wide character may not have fitted
	}
	return text + strings.Repeat(" ", cells-have)
}

// fitRight is fit with the text at the right end.
func (m *Model) fitRight(text string, cells int) string {
	have := width(text)
	if have >= cells {
		return m.fit(text, cells)
	}
	return strings.Repeat(" ", cells-have) + text
}

// spread puts one text at each end of a line. The left one gives way.
func (m *Model) spread(left, right string, cells int) string {
	room := cells - width(right)
	if room < 0 {
		return m.fit(right, cells)
	}
	return m.fit(left, room) + right
}

// rule is a line across, with titles in it where they are not empty.
func (m *Model) rule(cells int, titles ...string) string {
	g := m.env.glyphs.rule
	if len(titles) == 0 {
		return dim(strings.Repeat(g, max(cells, 0)))
	}
	line := dim(g)
	each := cells / len(titles)
	for i, title := range titles {
		line += " " + bold(title) + " "
		if fill := each*(i+1) - width(line); fill > 0 {
			line += dim(strings.Repeat(g, fill))
		}
	}
	if fill := cells - width(line); fill > 0 {
		line += dim(strings.Repeat(g, fill))
	}
	return m.fit(line, cells)
}

// ago is a span in its largest unit, as short as can be.
func ago(span time.Duration) string {
	switch {
	case span < 0:
		return "0s"
	case span < time.Second:
		return fmt.Sprintf("%dms", span.Milliseconds())
	case span < time.Minute:
		return fmt.Sprintf("%ds", int(span.Seconds()))
	case span < time.Hour:
		return fmt.Sprintf("%dm", int(span.Minutes()))
	case span < 48*time.Hour:
		return fmt.Sprintf("%dh", int(span.Hours()))
	}
	return fmt.Sprintf("%dd", int(span.Hours()/24))
}

// took is a span with the precision that a run's length deserves.
func took(span time.Duration) string {
	switch {
	case span < 0:
		return "0ms"
	case span < time.Second:
		return fmt.Sprintf("%dms", span.Milliseconds())
	case span < time.Minute:
		return fmt.Sprintf("%.1fs", span.Seconds())
	case span < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(span.Minutes()), int(span.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(span.Hours()), int(span.Minutes())%60)
}

// number groups digits.
func number(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// capped says of a count that stops at a limit how sure it is.
func capped(n int64) string {
	if n >= jobq.CountMax {
		return "10k+"
	}
	return number(n)
}

// cappedAt is capped for a count with a limit of its own.
func cappedAt(n, limit int64) string {
	if limit > 0 && limit < jobq.CountMax && n >= limit {
		return number(n) + "+"
	}
	return capped(n)
}

// clock is a time of day in UTC, and the day when it is another one.
func (m *Model) clock(moment time.Time) string {
	moment = moment.UTC()
	if now := m.env.now().UTC(); moment.YearDay() != now.YearDay() || moment.Year() != now.Year() {
		return moment.Format("01-02 15:04")
	}
	return moment.Format("15:04:05")
}

// spark draws a line of values, the highest of which fills a cell. With fewer
// cells than values it keeps the last.
func (m *Model) spark(values []int64, cells int) string {
	values = values[max(len(values)-cells, 0):]
	top := int64(1)
	for _, value := range values {
		top = max(top, value)
	}
	runes := m.env.glyphs.spark
	var line strings.Builder
	for _, value := range values {
		if value <= 0 {
			line.WriteByte(' ')
			continue
		}
		line.WriteRune(runes[int((value*int64(len(runes))-1)/top)])
	}
	return line.String()
}

// bar draws a share of cells.
func (m *Model) bar(share float64, cells int) string {
	full := min(max(int(share*float64(cells)+0.5), 0), cells)
	return strings.Repeat(m.env.glyphs.bar, full) + strings.Repeat(m.env.glyphs.empty, cells-full)
}
