package printable_test

import (
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/printable"
)

// What could drive a terminal, forge a line or hide text becomes visible.
func TestPrintable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain ä 漢":          "plain ä 漢",
		"\x1b[31mred\x1b[0m": "␛[31mred␛[0m",
		"a\x00b\x7fc":        "a␀b␡c",
		"one\ntwo\tthree":    "one␊two␉three",
		"bad \xff utf-8":     "bad � utf-8",
		"c1 \u009b31m":       "c1 �31m",
		"bidi \u202e txt":    "bidi � txt",
		"line\u2028sep":      "line�sep",
	} {
		require.Equal(t, want, printable.Line(text))
	}
	require.Equal(t, "one\ntwo\t␛", printable.Text("one\ntwo\t\x1b"))
	require.Equal(t, "first␍", printable.FirstLine("first\r\nsecond"))
}

// Whatever comes in, nothing comes out that a terminal would obey.
func FuzzLine(f *testing.F) {
	f.Add("\x1b]0;title\x07")
	f.Fuzz(func(t *testing.T, text string) {
		line := printable.Line(text)
		require.True(t, utf8.ValidString(line))
		for _, char := range line {
			require.False(t, unicode.IsControl(char), "%q", char)
		}
	})
}
