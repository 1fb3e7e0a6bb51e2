package tui

import (
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/stretchr/testify/require"
)

// What is beside a dialog stays visible, on both sides of it.
func TestDialogLeavesTheScreen(t *testing.T) {
	t.Parallel()
	runes := func(b *bench) (lines [][]rune) {
		for _, line := range strings.Split(b.plain(), "\n") {
			lines = append(lines, []rune(line+strings.Repeat(" ", b.width-len([]rune(line)))))
		}
		return lines[:b.height]
	}
	for name, keys := range map[string][]string{"question": {Delete}, "choice": {Sort}, "copy": {Copy}, "export": {Export}, "text": {Palette}, "help": {Help}} {
		b := newBench(200, 35)
		b.press(Jobs)
		before := runes(b)
		b.press(keys...)
		covered := 0
		for i, line := range runes(b) {
			if slices.Equal(line, before[i]) {
				continue
			}
			covered++
			begin, end := 0, len(line)-1
			for line[begin] == before[i][begin] {
				begin++
			}
			for line[end] == before[i][end] {
				end--
			}
			require.Contains(t, "┌│└", string(line[begin]), "%s: %q", name, string(line))
			require.Contains(t, "┐│┘", string(line[end]), "%s: %q", name, string(line))
		}
		require.Greater(t, covered, 3, name)
	}
}

// A key that was typed before a question can have been read is no answer, and the
// question says so; the keys of a text that is asked for count at once.
func TestKeyTypedEarly(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.press(Jobs, Delete, Yes)
	require.Empty(t, b.fake.written)
	require.Contains(t, b.plain(), "press it again")
	b.tick(time.Second)
	b.press(Yes)
	require.Len(t, b.fake.written, 1)

	b = newBench(120, 35)
	b.press(Jobs, SelectAll, Requeue, "250", Accept)
	require.Equal(t, []string{"bulk requeue "}, b.fake.written, "what must be typed is no accident")
}

// Text fields have the keys that text fields have, and the terminal's cursor is
// where the next character goes.
func TestFieldKeys(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		keys []string
		want string
	}{
		"left":       {[]string{"kindSend", "left", "left", "left", "left", ":"}, "kind:Send"},
		"right":      {[]string{"kid:x", "home", "right", "right", "n"}, "kind:x"},
		"home":       {[]string{"ind:x", "home", "k"}, "kind:x"},
		"end":        {[]string{"kind:", "home", "end", "x"}, "kind:x"},
		"word left":  {[]string{"kind:x tag:y", "alt+left", "queue:z", "space"}, "kind:x queue:z tag:y"},
		"delete":     {[]string{"kkind:x", "home", "delete"}, "kind:x"},
		"word back":  {[]string{"kind:x tag:y", "ctrl+w", "tag:z"}, "kind:x tag:z"},
		"line back":  {[]string{"nonsense", "ctrl+u", "kind:x"}, "kind:x"},
		"backspace":  {[]string{"kind:xy", "backspace"}, "kind:x"},
		"wide":       {[]string{"kind:日本x", "left", "語"}, "kind:日本語x"},
		"word right": {[]string{"kind: tag:y", "home", "alt+right", "x"}, "kind:x tag:y"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(120, 35)
			b.press(Jobs, Filter)
			b.press(test.keys...)
			b.press(Accept)
			require.Contains(t, b.plain(), " / "+test.want+" ", b.plain())
		})
	}
	b := newBench(120, 35)
	b.press(Jobs, Filter, "kind:", "left", "left")
	b.Update(tea.PasteMsg{Content: "日本\x1b[2J"})
	require.Contains(t, b.plain(), "kin日本␛[2Jd:")
	line := strings.Split(b.plain(), "\n")[b.View().Cursor.Y]
	require.Contains(t, line, "kin日本␛[2Jd:")
	before, _, _ := strings.Cut(line, "d:")
	require.Equal(t, len([]rune(before))+2, b.View().Cursor.X, "two characters are two cells wide")
}
