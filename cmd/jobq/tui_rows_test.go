package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/tui/command"
)

// Text from jobs drives nobody's terminal: kinds, args, errors and output with
// escape sequences, bidi controls and a line of 1 MiB are shown as text, at
// every screen that has them.
func TestTUIHostileText(t *testing.T) {
	t.Parallel()
	const hostile = "\x1b[2J\x1b]0;pwned\x07\x1b[?1049l\u009b31m\u202edlrow\u2066"
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	script := filepath.Join(t.TempDir(), "hostile")
	require.NoError(t, os.WriteFile(script, []byte(`#!/bin/sh
printf '%s\n' '`+hostile+`' >&2
head -c 1048576 /dev/zero | tr '\0' x >&2
printf '\n%s last words\n' '`+hostile+`' >&2
exit 1
`), 0o700))
	w := startProcess(t, "worker", "--database-url", url, "--run", "hostile="+script)
	w.awaitLog(t, "worker started")
	id := query[int64](t, pool, "select jobq.enqueue('hostile', jsonb_build_object('text', $1::text || repeat('x', 1000000)), queue => 'default', max_attempts => 1, tags => array[$1])", hostile)
	eventually(t, pool, "failed", "select state::text from jobq.job where id = $1", id)
	waits := query[int64](t, pool, "select jobq.enqueue($1, queue => $1)", hostile)

	term := openTerminal(t, 80, 24)
	term.run("tui", "--database-url", url)
	term.await("● live")
	for _, step := range []struct{ command, want string }{
		{command.Overview, "activity"},              // its queue is on the overview
		{command.Jobs, fmt.Sprint(waits)},           // its kind is in the list
		{command.Queues, "NAME"},                    // its queue
		{command.Open, "attempt 1 of 1"},            // its args, tags and error
		{command.Output, "last words"},              // its output
		{command.Job, fmt.Sprint("Jobs ▸ ", waits)}, // its kind in a headline
	} {
		switch step.command {
		case command.Open, command.Job:
			term.press(command.Palette)
			term.await("Command")
			term.text(fmt.Sprintf("job %d", map[string]int64{command.Open: id, command.Job: waits}[step.command]))
			term.keys("Enter")
		default:
			term.press(step.command)
		}
		screen := term.await(step.want)
		require.Contains(t, screen, "jobq", "nothing has cleared the screen")
		require.Contains(t, term.await("␛[2J"), "␛]0;pwned", "and what was meant to can be seen")
		for _, char := range []string{"\x1b", "\u202e", "\u2066", "\u009b"} {
			require.NotContains(t, screen, char, step.command)
		}
		for _, line := range strings.Split(screen, "\n") {
			require.LessOrEqual(t, len([]rune(line)), 80, step.command)
		}
		require.NotContains(t, term.tmux("display", "-p", "#{pane_title}"), "pwned")
		require.Equal(t, "1\n", term.tmux("display", "-p", "#{alternate_on}"))
	}
	term.keys("C-c")
	term.await("\nready>\n")
}

// A job that goes away under the cursor is shown as gone, is nobody's target
// any more, and its detail says what happened.
func TestTUIVanishedJob(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	ids := makeFailed(t, url, "email", 2)
	term := openTerminal(t, 120, 35)
	term.run("tui", "--database-url", url, "--open", "jobs")
	term.await("1-2 of 2")
	term.await(fmt.Sprintf("> %12d", ids[1]))
	require.True(t, query[bool](t, pool, "select jobq.delete_job($1)", ids[1]))
	term.await("→ deleted")
	term.press(command.Requeue)
	term.await("requeue: no job is selected")
	term.press(command.Down, command.Open)
	term.await(fmt.Sprintf("▸ %d email/SendInvoice", ids[0])) // its detail, and not the preview beside the list
	require.True(t, query[bool](t, pool, "select jobq.delete_job($1)", ids[0]))
	term.await("it was deleted, or retention has removed it")
	term.press(command.Requeue)
	term.await(fmt.Sprintf("requeue job %d: no such job", ids[0]))
	require.Zero(t, query[int](t, pool, "select count(*)::int from jobq.job"))
}

// A key acts on what its operator saw: when the job has changed between the
// screen and the write, it is left alone, and the screen says what it is now.
func TestTUIChangedMeanwhile(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	id := makeFailed(t, url, "email", 1)[0]
	term := openTerminal(t, 120, 35)
	term.run("tui", "--database-url", url, "--open", "jobs")
	term.await("1-1 of 1")
	term.press(command.Freeze)
	term.await("frozen")
	require.Equal(t, "available", query[string](t, pool, "select jobq.requeue($1)::text", id))
	before := query[string](t, pool, "select p::text from jobq.pending p where id = $1", id)
	require.NotContains(t, term.screen(), "available", "the screen still shows what was")
	term.press(command.Delete)
	term.await(fmt.Sprintf("delete job %d, failed", id))
	term.answer(command.Yes)
	term.await(fmt.Sprintf("delete job %d: it has changed meanwhile, and is available now", id))
	require.Equal(t, before, query[string](t, pool, "select p::text from jobq.pending p where id = $1", id))
}

// A filter that would look at too much gives up after its time, says what is
// searched and how to be faster, and the UI stays usable. A lock stands
// for the ten million rows of `make bench-tui`: the query runs into its limit.
func TestTUIFilterGivesUp(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := pgtest.URL(t)
	makeFailed(t, url, "email", 3)
	conn, err := pgx.Connect(ctx, url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(ctx) })
	term := openTerminal(t, 120, 35)
	term.run("tui", "--database-url", url, "--open", "jobs")
	term.await("1-3 of 3")
	_, err = conn.Exec(ctx, "begin")
	require.NoError(t, err)
	require.NoError(t, pgtest.LockHistory(ctx, conn))
	term.press(command.Filter)
	term.await("Filter")
	term.text("kind:nosuch")
	term.keys("Enter")
	term.await("searching the newest 400,000 jobs first: name a state or a queue to be faster")
	_, err = conn.Exec(ctx, "rollback")
	require.NoError(t, err)
	term.press(command.Refetch)
	screen := term.await("no job matches")
	require.NotContains(t, screen, "search", "all jobs were searched")
	term.press(command.Back)
	term.await("1-3 of 3")
}

// A binary that does not fit the tables says so in one line, and which of the
// two to change; the terminal stays as it was.
func TestTUISchemaVersions(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change, want string
	}{
		"newer": {"insert into jobq.jobq_migration (version, compatible_from) select max(version) + 1, max(version) + 1 from jobq.jobq_migration", "upgrade jobq"},
		"older": {"delete from jobq.jobq_migration where version = (select max(version) from jobq.jobq_migration)", "jobq migrate up"},
		"none":  {"drop schema jobq cascade", "jobq migrate up"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := pgtest.URL(t)
			_, err := pgtest.Connect(t, url).Exec(context.Background(), test.change)
			require.NoError(t, err)
			term := openTerminal(t, 120, 35)
			term.run("tui", "--database-url", url)
			screen := term.await(test.want)
			require.Equal(t, "0\n", term.tmux("display", "-p", "#{alternate_on}"))
			require.Equal(t, 1, strings.Count(screen, "\njobq: "), screen)
		})
	}
}
