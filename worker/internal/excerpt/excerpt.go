// Package excerpt makes texts fit for the database: what it cannot store is
// replaced, and of what is too long a part is kept.
package excerpt

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// ErrorBytesMax bounds what is kept of an error's text.
const ErrorBytesMax = 16 << 10

// Storable is the text as a text column takes it: valid UTF-8, no NUL, and at
// most limit bytes, the end cut off.
func Storable(text string, limit int) string {
	text = valid(text)
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

// Error is the text of an error as a text column takes it. Of a long one the
// beginning and the end are kept.
func Error(text string) string { return Of(valid(text), ErrorBytesMax) }

func valid(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "�"), "\x00", "�")
}

// Of is the text, or its beginning and its end when it has more bytes than the limit. A
// line between them says how much was cut, so the limit must be far above 40 bytes.
func Of(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	const saysBytes = 40
	half := (limit - saysBytes) / 2
	begin, end := half, len(text)-half
	for begin > 0 && !utf8.RuneStart(text[begin]) {
		begin--
	}
	for end < len(text) && !utf8.RuneStart(text[end]) {
		end++
	}
	return fmt.Sprintf("%s\n… %d bytes cut …\n%s", text[:begin], end-begin, text[end:])
}

// End is the text, or its end when it has more bytes than the limit. A line before the end
// says how much was cut, and is not counted.
func End(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	start := len(text) - limit
	for start < len(text) && !utf8.RuneStart(text[start]) {
		start++
	}
	return fmt.Sprintf("… %d bytes cut …\n%s", start, text[start:])
}
