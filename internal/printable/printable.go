// Package printable makes text from anywhere safe to show: args, errors and
// output come from producers and programs, and must not be able to drive an
// operator's terminal or forge lines of a log.
package printable

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
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

// JSON is a JSON text that is safe to show and has the same value: control
// characters, and those that reorder text, become escapes such as \u009b. They
// can only be within strings; those below U+0020 are escaped there already.
func JSON(text []byte) []byte {
	safe := make([]byte, 0, len(text))
	for _, char := range string(text) {
		if char == 0x7f || isUnsafe(char) {
			safe = fmt.Appendf(safe, `\u%04x`, char)
			continue
		}
		safe = utf8.AppendRune(safe, char)
	}
	return safe
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
		case isUnsafe(char):
			return unicode.ReplacementChar
		}
		return char
	}, strings.ToValidUTF8(text, string(unicode.ReplacementChar)))
}

// isUnsafe is for characters beyond ASCII: C1 controls, of which U+009B begins a
// command as ESC [ does; separators of lines; and what reorders text.
func isUnsafe(char rune) bool {
	return char >= 0x80 && char < 0xa0 || isBidiControl(char) || char == '\u2028' || char == '\u2029'
}

// isBidiControl says whether the character reorders what is around it, which
// can make text look like another (Boucher, Anderson: Trojan Source, 2021).
func isBidiControl(char rune) bool {
	return char == 0x061c || char == 0x200e || char == 0x200f ||
		(char >= 0x202a && char <= 0x202e) || (char >= 0x2066 && char <= 0x2069)
}
