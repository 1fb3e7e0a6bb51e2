package tui

import "github.com/jobq-dev/jobq"

// Colours are the terminal's own sixteen, which its owner has chosen to be
// readable on light and dark alike. Bubble Tea drops them where NO_COLOR or
// the terminal says so; what they say, a word or a mark says too.
const (
	sgrReset   = "\x1b[m"
	sgrBold    = "\x1b[1m"
	sgrDim     = "\x1b[2m"
	sgrReverse = "\x1b[7m"
	sgrRed     = "\x1b[31m"
	sgrGreen   = "\x1b[32m"
	sgrYellow  = "\x1b[33m"
	sgrBlue    = "\x1b[34m"
	sgrCyan    = "\x1b[36m"
)

func styled(sgr, text string) string {
	if text == "" {
		return ""
	}
	return sgr + text + sgrReset
}

func bold(text string) string { return styled(sgrBold, text) }
func dim(text string) string  { return styled(sgrDim, text) }
func red(text string) string  { return styled(sgrRed+sgrBold, text) }

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
