package tui

import (
	"fmt"
	"strings"

	"github.com/jobq-dev/jobq"
)

// Colours are the terminal's own sixteen, which its owner has chosen to be
// readable. Frames are drawn with these; what they say, a word or a mark says
// too, and a theme may say it in others.
const (
	sgrReset   = "\x1b[m"
	sgrBold    = "\x1b[1m"
	sgrDim     = "\x1b[2m"
	sgrReverse = "\x1b[7m"
	sgrRed     = "\x1b[31m"
	sgrGreen   = "\x1b[32m"
	sgrYellow  = "\x1b[33m"
	sgrBlue    = "\x1b[34m"
	sgrMagenta = "\x1b[35m"
	sgrCyan    = "\x1b[36m"
)

// theme is how a frame's colours are shown. It is applied to a whole frame, at
// one place, so that no part of a screen can forget it.
type theme struct {
	name   string
	paints *strings.Replacer // nil: as drawn
}

// The themes: as drawn, until the terminal has said what its background is;
// bright colours on dark ground; on light ground those that can be read there,
// which yellow, cyan and faint text cannot; and no colours at all.
var (
	themeAsDrawn = theme{name: "auto"}
	themeDark    = theme{"dark", strings.NewReplacer(
		sgrRed, "\x1b[91m", sgrGreen, "\x1b[92m", sgrYellow, "\x1b[93m", sgrBlue, "\x1b[94m", sgrMagenta, "\x1b[95m", sgrCyan, "\x1b[96m")}
	themeLight = theme{"light", strings.NewReplacer(sgrYellow, sgrMagenta, sgrCyan, sgrBlue+sgrBold, sgrDim, "\x1b[90m")}
	themeMono  = theme{"mono", strings.NewReplacer(sgrRed, "", sgrGreen, "", sgrYellow, "", sgrBlue, "", sgrMagenta, "", sgrCyan, "")}
)

// Themes are the names of the themes.
func Themes() []string { return []string{"auto", "dark", "light", "mono"} }

// themeNamed is the theme of that name; auto, or no name, waits for what the
// terminal says.
func themeNamed(name string) (theme, error) {
	for _, t := range []theme{themeAsDrawn, themeDark, themeLight, themeMono} {
		if t.name == name || name == "" && t.name == "auto" {
			return t, nil
		}
	}
	return theme{}, fmt.Errorf("%w: no theme %q; there are %s", ErrInvalid, name, strings.Join(Themes(), ", "))
}

func (t theme) paint(frame string) string {
	if t.paints == nil {
		return frame
	}
	return t.paints.Replace(frame)
}

func styled(sgr, text string) string {
	if text == "" {
		return ""
	}
	return sgr + text + sgrReset
}

func bold(text string) string { return styled(sgrBold, text) }
func dim(text string) string  { return styled(sgrDim, text) }
func red(text string) string  { return styled(sgrRed+sgrBold, text) }

// colorSGR is the colour of a context.
func colorSGR(name string) string {
	return map[string]string{
		"red": sgrRed, "green": sgrGreen, "yellow": sgrYellow, "blue": sgrBlue, "magenta": sgrMagenta, "cyan": sgrCyan,
	}[name]
}

// glyphs are the characters that not every terminal has.
type glyphs struct {
	rule, bar, part, empty, up, live, off, poll, arrow, more, cross, pause, dot string
	spark                                                                       []rune
}

var unicodeGlyphs = glyphs{
	rule: "─", bar: "█", part: "▒", empty: "░", up: "▲", live: "●", off: "○", poll: "●", arrow: "→", more: "…", cross: "▸",
	pause: "‖", dot: "·", spark: []rune("▁▂▃▄▅▆▇█"),
}

var asciiGlyphs = glyphs{
	rule: "-", bar: "#", part: "+", empty: ".", up: "^", live: "*", off: "o", poll: "*", arrow: "->", more: "~", cross: ">",
	pause: "|", dot: ".", spark: []rune("_.-=+*%#"),
}

// stateColour marks a state, beside its word.
func stateColour(state jobq.State) string {
	switch state {
	case jobq.Running:
		return sgrCyan
	case jobq.Completed:
		return sgrGreen
	case jobq.Failed:
		return sgrRed
	case jobq.Cancelled:
		return sgrDim
	case jobq.Scheduled:
		return sgrBlue
	case jobq.Available:
		return sgrYellow
	}
	return ""
}
