// Package printable makes text from anywhere safe to show: args, errors and
// output come from producers and programs, and must not be able to drive an
// operator's terminal or forge lines of a log.
package printable

import (
	"strings"
	"unicode"
)

// Line is the text as one line: control characters become visible.
func Line(text string) string { return mapText(text, false) }

// Text keeps line ends and tabs; other control characters become visible.
func Text(text string) string { return mapText(text, true) }

// FirstLine is the first line of the text, as Line shows it.
func FirstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return Line(line)
}

func mapText(text string, lines bool) string {
	return strings.Map(func(char rune) rune {
		switch {
		case lines && (char == '\n' || char == '\t'):
			return char
		case char < ' ':
			return '␀' + char // the block of control pictures follows ASCII
		case char == 0x7f:
			return '␡'
		case char >= 0x80 && char < 0xa0, isBidiControl(char), char == '\u2028', char == '\u2029':
			return unicode.ReplacementChar
		}
		return char
	}, strings.ToValidUTF8(text, string(unicode.ReplacementChar)))
}

// isBidiControl says whether the character reorders what is around it, which
// can make text look like another (Boucher, Anderson: Trojan Source, 2021).
func isBidiControl(char rune) bool {
	return char == 0x061c || char == 0x200e || char == 0x200f ||
		(char >= 0x202a && char <= 0x202e) || (char >= 0x2066 && char <= 0x2069)
}
