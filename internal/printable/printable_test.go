package printable_test

import (
	"encoding/json"
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

// JSON keeps its value, and nothing in it drives a terminal.
func TestJSON(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"a": "plain ä 漢 😀"}`:           `{"a": "plain ä 漢 😀"}`,
		"{\n  \"a\": \"\u009b31m\"\n}\n": "{\n  \"a\": \"\\u009b31m\"\n}\n",
		"\"\x7f \u202e \u2028\"":         `"\u007f \u202e \u2028"`,
	} {
		require.Equal(t, want, string(printable.JSON([]byte(text))))
	}
}

// Whatever is in JSON, it means the same afterwards, and no control character
// is left but line ends.
func FuzzJSON(f *testing.F) {
	f.Add("\u009b31m \u202e", "k\u0085")
	f.Fuzz(func(t *testing.T, value, key string) {
		text, err := json.MarshalIndent(map[string]string{key: value}, "", "  ")
		require.NoError(t, err)
		safe := printable.JSON(text)
		var before, after map[string]string
		require.NoError(t, json.Unmarshal(text, &before))
		require.NoError(t, json.Unmarshal(safe, &after))
		require.Equal(t, before, after)
		for _, char := range string(safe) {
			require.True(t, char == '\n' || !unicode.IsControl(char), "%q", char)
		}
	})
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
