package tui

import (
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/tui/screen"
)

// The menu offers what the tab's index has, S turns it around, and the command
// line that is copied says the same.
func TestSort(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.press(Jobs, Filter, "state:failed", Accept, Sort)
	require.Contains(t, b.plain(), "first ended first")
	b.press("3")
	require.Contains(t, b.plain(), "newest first")
	b.press(Reverse)
	require.Contains(t, b.plain(), "oldest first")
	last := b.fake.filters[len(b.fake.filters)-1]
	for _, filter := range b.fake.filters {
		if filter.Limit == 100 {
			last = filter
		}
	}
	require.Equal(t, jobq.Filter{Match: "state:failed", Limit: 100, Sort: jobq.SortNewest, Reverse: true}, last)
	b.press(Copy)
	require.Contains(t, b.plain(), "jobq list state:failed --reverse")
	b.press(Leave, NextTab, Sort)
	require.NotContains(t, b.plain(), "due", "cancelled jobs are not due")
	b.press(Leave, PreviousTab, PreviousTab)
	require.Contains(t, b.jobs().List, "--sort due")
}

// A range follows the cursor, both ways, beside what was marked before.
func TestRange(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.press(Jobs, Mark, Down, Down, Range, Down, Down, Down, Up)
	require.Equal(t, 4, b.marked())
	b.press(Range, Down, Down, Down)
	require.Equal(t, 4, b.marked())
	b.press(Requeue)
	b.tick(time.Second)
	b.press(Yes)
	require.Equal(t, []string{"requeue 48213911:failed/5 48213890:failed/5 48213883:failed/5 48213876:failed/5"}, b.fake.written)
	require.Zero(t, b.marked())
	b.press(Range, Down, Back, Down)
	require.Zero(t, b.marked(), "esc ends the range")
}

// The history goes back and forth through views; what was seen is what comes back.
func TestHistory(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.press(Backward)
	require.Contains(t, b.toast, "no further view")
	b.press(Open) // the queue's jobs
	require.Equal(t, "queue:email", b.match())
	b.press(Queues, Down, Open)
	require.Equal(t, "queue:billing", b.match())
	b.press(Backward, Backward)
	require.Equal(t, "queue:email", b.match())
	require.Equal(t, screen.Jobs, b.at)
	b.press(Backward)
	require.Equal(t, screen.Overview, b.at)
	b.press(Forward, Forward, Forward)
	require.Equal(t, "queue:billing", b.match())
	b.press(Backward, Overview, Forward)
	require.Contains(t, b.toast, "no further view", "another way was taken")
	b.press(Jobs, Open, Back, Workers, Backward, Backward)
	require.Equal(t, screen.Job, b.at)
	require.EqualValues(t, 48213911, b.selected().Cursor)
}

// A search in the output finds lines one after another, and shows them.
func TestSearchOutput(t *testing.T) {
	t.Parallel()
	b := newBench(80, 24)
	job := b.fake.jobs[0]
	job.LastError = strings.Repeat("filler\n", 100) + "needle one\n" + strings.Repeat("filler\n", 100) + "NEEDLE two"
	b.press(Jobs, Open, NextMatch)
	require.Contains(t, b.toast, "there is no search")
	b.press(Filter, "needle", Accept)
	require.Contains(t, b.plain(), ">needle one")
	b.press(NextMatch)
	require.Contains(t, b.plain(), ">NEEDLE two")
	b.press(NextMatch)
	require.Contains(t, b.plain(), ">needle one")
	b.press(PreviousMatch)
	require.Contains(t, b.plain(), "match 2 of 2")
	b.press(Filter, "ctrl+u", "nothing", Accept)
	require.Contains(t, b.toast, "nothing in the output matches")
	b.press(Output, Filter, "ctrl+u", Accept, Output)
	b.press(Panel, Up)
	require.Contains(t, b.plain(), "> Output of run 2")
}

// Times, columns and the mouse are as the operator wants them; a click selects
// the row that it is on, on every screen, and the terminal's cursor is there.
func TestLook(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.press(Jobs, Times)
	require.Contains(t, b.plain(), "14:02:29")
	require.Contains(t, b.plain(), "failed at 14:02:29 UTC")
	b.press(Wide)
	require.Contains(t, b.plain(), "CREATED")
	b.press(Times, Wide, Mouse)
	require.Equal(t, tea.MouseModeCellMotion, b.View().MouseMode)
	for _, screen := range []string{Overview, Jobs, Queues, Workers, Schedules} {
		b.press(screen)
		lines := strings.Split(b.plain(), "\n")
		for _, y := range []int{b.View().Cursor.Y + 1, b.View().Cursor.Y} {
			b.Update(tea.MouseClickMsg{X: 5, Y: y, Button: tea.MouseLeft})
			b.frame()
			now := strings.Split(b.plain(), "\n")
			require.Equal(t, y, b.View().Cursor.Y, screen)
			require.Equal(t, strings.TrimLeft(lines[y], ">! "), strings.TrimLeft(now[y], ">! "), screen)
			require.True(t, strings.HasPrefix(now[y], ">"), now[y])
		}
		b.Update(tea.MouseClickMsg{X: 5, Y: 33, Button: tea.MouseLeft})
		require.Equal(t, lines[b.View().Cursor.Y], strings.Split(b.plain(), "\n")[b.View().Cursor.Y], "not a row")
	}
	b.press(Jobs)
	b.Update(tea.MouseWheelMsg{Button: tea.MouseWheelDown})
	require.Equal(t, b.fake.jobs[3].ID, b.jobs().Cursor)
	b.press(Mouse)
	require.Equal(t, tea.MouseModeNone, b.View().MouseMode)
}
