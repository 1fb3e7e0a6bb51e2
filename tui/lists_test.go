package tui

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/monitor"
)

// listed are the jobs that the list shows, by their ids, and the selected one.
func (b *bench) listed(t *testing.T) (ids []int64, selected int64) {
	t.Helper()
	row := regexp.MustCompile(`^([> ])[* ] +(4821\d{4}) `)
	for _, line := range strings.Split(b.plain(), "\n") {
		if found := row.FindStringSubmatch(line); found != nil {
			id, err := strconv.ParseInt(found[2], 10, 64)
			require.NoError(t, err)
			if ids = append(ids, id); found[1] == ">" {
				selected = id
			}
		}
	}
	require.NotEmpty(t, ids, b.plain())
	return ids, selected
}

// A page is what is visible: paging through a list shows every row, at any size.
func TestPageIsWhatIsVisible(t *testing.T) {
	t.Parallel()
	for _, size := range [][2]int{{80, 24}, {120, 35}, {60, 15}, {200, 60}} {
		b := newBench(size[0], size[1])
		b.press(Jobs)
		seen := make(map[int64]bool)
		note := func() {
			ids, _ := b.listed(t)
			for _, id := range ids {
				seen[id] = true
			}
		}
		note()
		for range 60 {
			b.press("pgdown")
			note()
		}
		for _, job := range b.fake.jobs {
			require.True(t, seen[job.ID], "%v: job %d was skipped", size, job.ID)
		}
		clear(seen)
		note()
		for range 60 {
			b.press(PageUp)
			note()
		}
		require.Len(t, seen, len(b.fake.jobs), size)
	}
}

// G goes to the last job, however many pages there are, and g to the first.
func TestGoesToTheEnd(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.press(Jobs, End)
	b.tick(time.Second)
	_, selected := b.listed(t)
	require.Equal(t, b.fake.jobs[len(b.fake.jobs)-1].ID, selected)
	b.press(Top)
	b.tick(time.Second)
	_, selected = b.listed(t)
	require.Equal(t, b.fake.jobs[0].ID, selected)
}

// rowsOf are the lines of a screen that have this text.
func (b *bench) rowsOf(text string) (rows []string, at int) {
	for _, line := range strings.Split(b.plain(), "\n") {
		if strings.Contains(line, text) && strings.Contains("> !", line[:1]) {
			if strings.HasPrefix(line, ">") {
				at = len(rows)
			}
			rows = append(rows, strings.TrimLeft(line, ">! "))
		}
	}
	return rows, at
}

// One row up, or a click on a row, moves the cursor there and leaves the rows
// where they are, on every screen that has a list.
func TestListsDoNotJump(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ screen, text string }{
		"queues": {Queues, "queue-"}, "workers": {Workers, "worker-"}, "audit": {Audit, "delete"}, "schedules": {Schedules, "nightly-"}, "jobs": {Jobs, " Send"}, "overview": {Overview, "queue-"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(120, 35)
			for i := range 80 {
				b.fake.queues = append(b.fake.queues, monitor.Queue{Name: fmt.Sprintf("queue-%02d", i)})
				b.fake.workers = append(b.fake.workers, monitor.Worker{ID: fmt.Sprintf("worker-%02d", i), HeartbeatAt: noon})
				b.fake.schedules = append(b.fake.schedules, monitor.Schedule{Schedule: jobq.Schedule{Name: fmt.Sprintf("nightly-%02d", i), Every: time.Hour}})
				b.fake.audit = append(b.fake.audit, monitor.AuditEntry{ID: int64(100 - i), At: noon, Action: jobq.ActionDelete})
			}
			b.fake.workers, b.fake.queues = b.fake.workers[2:], b.fake.queues[3:]
			b.fake.schedules = b.fake.schedules[5:]
			b.press(test.screen)
			b.tick(time.Minute)
			b.press(Mouse)
			for range 50 {
				b.press(Down)
			}
			before, at := b.rowsOf(test.text)
			require.Greater(t, at, 0)
			b.press(Up)
			after, now := b.rowsOf(test.text)
			require.Equal(t, before, after, "k scrolls")
			require.Equal(t, at-1, now)
			b.Update(tea.MouseClickMsg{X: 5, Y: b.View().Cursor.Y - 1, Button: tea.MouseLeft})
			after, now = b.rowsOf(test.text)
			require.Equal(t, before, after, "a click scrolls")
			require.Equal(t, at-2, now)
		})
	}
}

// Output stays where it is read while more arrives, and the title says that it
// is not followed then; at its end it is followed again.
func TestOutputStaysWhereItIsRead(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	job := b.fake.jobs[0]
	job.State, job.FinishedAt, job.Attempts = jobq.StateRunning, nil, 4
	b.press(Jobs, Open, Output)
	frames := func() (all []string) { return regexp.MustCompile(`frame \d+`).FindAllString(b.plain(), -1) }
	for range 80 {
		b.tick(2 * time.Second)
	}
	require.Contains(t, b.plain(), "following")
	require.Contains(t, frames(), "frame 79")
	b.press(PageUp)
	require.NotContains(t, b.plain(), "following")
	read := frames()
	require.Greater(t, len(read), 20)
	for range 5 {
		b.tick(2 * time.Second)
	}
	require.Equal(t, read, frames())
	b.press(End)
	require.Contains(t, b.plain(), "following")
	b.tick(2 * time.Second)
	require.Contains(t, frames(), "frame 85")
}

// A position never says that there are fewer jobs than it shows.
func TestPositionAndTotal(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.fake.count = new(int64)
	b.press(Jobs)
	require.Regexp(t, `1-16 of 100\+`, b.plain())
	b.fake.jobs = b.fake.jobs[:11]
	b.press(Filter, "kind:Send*", Accept)
	require.Contains(t, b.plain(), "1-11 of 11 ")
	b.fake.count = nil
	b.press(Back)
	b.tick(time.Minute)
	require.Contains(t, b.plain(), "1-11 of 11 ")
}

// esc leaves the output, and not the job.
func TestEscLeavesOutput(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.press(Jobs, Open, Output)
	require.NotContains(t, b.plain(), "Properties")
	b.press(Back)
	require.Contains(t, b.plain(), "Properties")
	b.press(Back)
	require.Contains(t, b.plain(), "1-16 of 250")
}
