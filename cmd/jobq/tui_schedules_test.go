package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/tui/command"
)

// An operator finds a schedule on its screen, pauses it with a reason, takes that back,
// has its job run now, opens the job of a tick that a janitor has made, and removes the
// schedule, which undo brings back. All of it is in the database.
func TestTUISchedules(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	term := openTerminal(t, 120, 35)
	term.run("tui", "--database-url", url)
	term.await("● live")
	term.press(command.Schedules)
	term.await("there are no schedules: one adds a job by itself")
	query[int64](t, pool, "select jobq.schedule_set('report', 'report', cron => '0 9 * * mon', time_zone => 'Europe/Berlin')")
	query[int64](t, pool, "select jobq.schedule_set('sync', 'sync', every => '1 s', overlap => 'skip')")
	term.press(command.Refetch)
	screen := term.await("Schedules 2")
	require.Regexp(t, `> report +0 9 \* \* mon Europe/.*Mon \d\d-\d\d 09:00 `, screen)

	const paused = "select coalesce(max(pause_reason), '') from jobq.schedule where name = 'report'"
	term.press(command.Pause)
	term.await("Pause schedule report")
	term.text("books are closed")
	term.keys("Enter")
	term.await("paused schedule report   u undo")
	require.Equal(t, "books are closed", query[string](t, pool, paused))
	term.press(command.Undo)
	eventually(t, pool, 0, "select count(*)::int from jobq.schedule where paused_at is not null")
	term.await("undone")
	term.press(command.RunNow)
	term.await("schedule report has added job ")
	require.Equal(t, 1, query[int](t, pool, "select count(*)::int from jobq.job where kind = 'report'"))

	janitor := startProcess(t, "janitor", "--database-url", url)
	janitor.awaitLog(t, "leader")
	eventually(t, pool, "true", "select (count(job_id) = 1 and count(*) > 1)::text from jobq.schedule_tick where schedule = 'sync'")
	term.press(command.Down, command.Open, command.Refetch)
	term.await("left out: the job before was unfinished")
	id := query[int64](t, pool, "select id from jobq.job where kind = 'sync'")
	term.press(command.End)
	term.await(fmt.Sprintf(" %d available", id))
	term.press(command.Open)
	term.await(fmt.Sprintf("Jobs ▸ %d default/sync", id))
	term.press(command.Back) // one after the other, or they are one key with alt
	term.await("newest first")
	term.press(command.Back)
	term.await("Schedules 2")

	term.press(command.Remove)
	term.await("remove schedule sync")
	term.answer(command.Yes)
	term.await("removed schedule sync   u undo")
	require.Zero(t, query[int](t, pool, "select count(*)::int from jobq.schedule where name = 'sync'"))
	require.Eventually(t, func() bool {
		if strings.Contains(term.screen(), "─ Copy ") { // the answer was pressed once more, after the question had gone
			term.keys("Escape")
		} else {
			term.press(command.Undo)
		}
		return query[int](t, pool, "select count(*)::int from jobq.schedule where name = 'sync'") == 1
	}, patience, 50*time.Millisecond)
	term.await("Schedules 2")
	require.Eventually(t, func() bool { // the first can close what the undo, pressed once more, has asked
		ended := strings.Contains(term.screen(), "\nready>\n")
		if !ended {
			term.keys("C-c")
		}
		return ended
	}, patience, 200*time.Millisecond)
}
