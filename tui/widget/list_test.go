package widget_test

import (
	"fmt"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/tui/widget"
)

// names are rows that are nothing but their names.
type names []string

func (n names) Len() int          { return len(n) }
func (n names) Name(i int) string { return n[i] }

// The cursor stays with its row, whatever comes and goes above it; when the row
// has gone, it is on the one that has taken its place, or on the last one.
func TestListKeepsItsRow(t *testing.T) {
	t.Parallel()
	var l widget.List
	rows := names{"a", "b", "c", "d"}
	l.SetHeight(10, rows)
	l.Move(2, rows)
	at := func(rows names) string { return rows[l.At(rows)] }
	require.Equal(t, "c", at(names{"new", "a", "b", "c", "d"}))
	require.Equal(t, "d", at(names{"a", "b", "d"}))
	require.Equal(t, "b", at(names{"a", "b"}))
	require.Equal(t, 0, l.At(names{}))
	require.Equal(t, "c", at(rows), "it is back")
	l.Move(99, rows)
	require.Equal(t, "d", at(rows))
	l.Move(-99, rows)
	require.Equal(t, "a", at(rows))
}

// Rows on the screen move only when the cursor would leave it.
func TestListScrolls(t *testing.T) {
	t.Parallel()
	var rows names
	for i := range 100 {
		rows = append(rows, fmt.Sprint(i))
	}
	var l widget.List
	l.SetHeight(10, rows)
	shown := func() string {
		first, end := l.Shown(rows)
		return fmt.Sprintf("%d-%d", first, end-1)
	}
	for _, step := range []struct {
		by   int
		want string
	}{{9, "0-9"}, {1, "1-10"}, {-5, "1-10"}, {-5, "0-9"}, {l.Height() * 3, "21-30"}, {-1, "21-30"}, {200, "90-99"}} {
		l.Move(step.by, rows)
		require.Equal(t, step.want, shown(), step.by)
	}
	l.SetHeight(20, rows)
	require.Equal(t, "80-99", shown())
}

// A text is followed at its end and stays where it is read elsewhere, also when
// lines at its beginning go.
func TestPager(t *testing.T) {
	t.Parallel()
	lines := func(from, to int) (text []string) {
		for i := from; i < to; i++ {
			text = append(text, fmt.Sprint(i))
		}
		return text
	}
	p := widget.NewPager(true)
	p.SetSize(20, 3)
	shown := func() string {
		return strings.Join(p.View(func(_ int, line string) string { return line }), " ")
	}
	p.SetLines(lines(0, 10), 0)
	require.Equal(t, "7 8 9", shown())
	p.SetLines(lines(0, 12), 0)
	require.Equal(t, "9 10 11", shown())
	p.Scroll(-4)
	require.False(t, p.Follows())
	p.SetLines(lines(0, 30), 0)
	require.Equal(t, "5 6 7", shown())
	p.SetLines(lines(4, 34), 4)
	require.Equal(t, "5 6 7", shown())
	p.Show(20)
	require.Contains(t, shown(), "24", "line 20 of those that are there")
	p.Top()
	require.Equal(t, "4 5 6", shown())
	p.End()
	require.True(t, p.Follows())
	require.Equal(t, "31 32 33", shown())
	p.SetSize(20, 100)
	require.Len(t, strings.Fields(shown()), 30)
}

// What was typed or pasted is safe to show, and the cursor knows how wide it is.
func TestField(t *testing.T) {
	t.Parallel()
	f := widget.NewField("kind:日本")
	f.SetWidth(40)
	require.Equal(t, 9, f.Cursor())
	f.Update(tea.KeyPressMsg{Code: tea.KeyLeft})
	require.Equal(t, 7, f.Cursor())
	f.Update(tea.PasteMsg{Content: "\x1b]0;x\x07"})
	require.Equal(t, "kind:日␛]0;x␇本", f.Text())
	f.SetText("new")
	require.Equal(t, "new", strings.TrimSpace(f.View()))
	require.Equal(t, 3, f.Cursor())
}
