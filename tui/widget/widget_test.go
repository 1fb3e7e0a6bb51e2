package widget_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/tui/theme"
	"github.com/jobq-dev/jobq/tui/widget"
)

func painter(t *testing.T) *widget.Painter {
	t.Helper()
	made, err := theme.New(theme.Settings{Name: "dark"})
	require.NoError(t, err)
	return &widget.Painter{Theme: made, Now: func() time.Time { return time.Date(2026, 11, 21, 14, 2, 31, 0, time.UTC) }}
}

// Lines have exactly the width that was asked for, whatever is in them.
func TestWidths(t *testing.T) {
	t.Parallel()
	p := painter(t)
	for _, text := range []string{"", "short", strings.Repeat("long ", 50), "日本語日本語", p.Alarm.Render("red " + strings.Repeat("x", 80))} {
		for cells := 1; cells < 50; cells++ {
			require.Equal(t, cells, ansi.StringWidth(p.Fit(text, cells)))
			require.Equal(t, cells, ansi.StringWidth(p.FitRight(text, cells)))
			require.Equal(t, cells, ansi.StringWidth(p.Spread(text, "end", cells)))
			require.Equal(t, cells, ansi.StringWidth(p.Rule(cells, "one", text)))
		}
	}
}

// A box leaves all of the screen that it does not cover as it is.
func TestOver(t *testing.T) {
	t.Parallel()
	p := painter(t)
	line := "left " + p.Error.Render("red") + strings.Repeat(" middle", 8) + " right"
	screen := slices.Repeat([]string{p.Fit(line, 70)}, 12)
	box := p.Box("title", []string{"one", "two"}, 40)
	covered, x, y := widget.Over(screen, box, 70)
	require.Len(t, covered, 12)
	for i := range covered {
		want := []rune(ansi.Strip(screen[i]))
		if i >= y && i < y+len(box) {
			copy(want[x:], []rune(ansi.Strip(box[i-y])))
		}
		require.Equal(t, strings.TrimRight(string(want), " "), strings.TrimRight(ansi.Strip(covered[i]), " "))
	}
}

// Columns are dropped in the order of their priorities, and one takes the rest.
func TestColumnsFor(t *testing.T) {
	t.Parallel()
	all := []widget.Column{widget.Right("ID", 10, 0), widget.Left("REST", 0, 0), widget.Left("A", 10, 2), widget.Left("B", 10, 1)}
	titles := func(cells int) (text string) {
		for _, c := range widget.ColumnsFor(all, cells, 5) {
			text += c.Title + " "
		}
		return text
	}
	require.Equal(t, "ID REST A B ", titles(100))
	require.Equal(t, "ID REST B ", titles(30))
	require.Equal(t, "ID REST ", titles(20))
	require.Equal(t, "ID REST ", titles(5))
	require.Equal(t, 60, widget.ColumnsFor(all, 94, 5)[1].Cells)
}

// A progress bar is full at the end, empty at the beginning, and never more.
func TestProgress(t *testing.T) {
	t.Parallel()
	p := painter(t)
	require.Equal(t, "██░░", ansi.Strip(p.Progress(0.5, 4)))
	require.Equal(t, "░░░░", ansi.Strip(p.Progress(-1, 4)))
	require.Equal(t, "████", ansi.Strip(p.Progress(7, 4)))
}

// The rows that are shown move as little as possible.
func TestWindow(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ first, at, count, height, want int }{
		{20, 25, 100, 10, 20}, {20, 30, 100, 10, 21}, {20, 19, 100, 10, 19}, {95, 99, 100, 10, 90}, {0, 0, 0, 10, 0}, {5, 1, 3, 10, 0}, {0, 0, 5, 0, 0},
	} {
		require.Equal(t, test.want, widget.Window(test.first, test.at, test.count, test.height))
	}
}

// Where there is room, columns grow up to their most, and no column that takes what is
// left is narrower for it than it is to be.
func TestColumnsGrow(t *testing.T) {
	t.Parallel()
	all := []widget.Column{widget.Left("NAME", 0, 0).UpTo(20), widget.Right("RUN", 5, 0), widget.Left("CHART", 10, 0).UpTo(60), widget.Left("KIND", 10, 0).UpTo(30)}
	for cells, want := range map[int][4]int{
		40:  {11, 5, 10, 10},
		50:  {20, 5, 11, 10},
		60:  {20, 5, 21, 10},
		120: {21, 5, 60, 30},
	} {
		columns := widget.ColumnsFor(all, cells, 8)
		require.Equal(t, want, [4]int{columns[0].Cells, columns[1].Cells, columns[2].Cells, columns[3].Cells}, cells)
		require.Equal(t, columns[2].Cells, widget.Cells(columns, "CHART"))
	}
	require.Zero(t, widget.Cells(widget.ColumnsFor([]widget.Column{widget.Left("A", 0, 0), widget.Left("B", 20, 1)}, 20, 8), "B"))
	require.Equal(t, 10, all[2].Cells, "the columns that were given are as they were")
}
