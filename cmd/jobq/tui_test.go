package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/tui/command"
)

// terminal is a real one, in tmux, with a shell in it.
type terminal struct {
	*testing.T
	socket string
}

func openTerminal(t *testing.T, cells, lines int) *terminal {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("tmux is not there; CI installs it")
	}
	term := &terminal{t, filepath.Join(t.TempDir(), "tmux")}
	term.tmux("-f", "/dev/null", "new-session", "-d", "-x", strconv.Itoa(cells), "-y", strconv.Itoa(lines),
		"env", "PS1=ready> ", "TERM=screen-256color", "LC_ALL=C.UTF-8", asCommand+"=1", "bash", "--norc", "--noprofile")
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the screen:\n%s", term.screen())
		}
		term.tmux("kill-server")
	})
	term.await("ready>")
	return term
}

func (term *terminal) tmux(args ...string) string {
	term.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, "tmux", append([]string{"-S", term.socket}, args...)...).CombinedOutput()
	require.NoError(term, err, "tmux %v: %s", args, out)
	return string(out)
}

// run types the jobq command into the shell.
func (term *terminal) run(args ...string) {
	term.Helper()
	term.text(os.Args[0] + " '" + strings.Join(args, "' '") + "'")
	term.keys("Enter")
}

func (term *terminal) text(text string) { term.tmux("send-keys", "-l", text) }

// press gives commands of the UI, with the keys that the product has for them.
func (term *terminal) press(commands ...string) {
	for _, id := range commands {
		key := command.Key(id)
		if name, named := map[string]string{"enter": "Enter", "esc": "Escape", "space": "Space", "tab": "Tab"}[key]; named {
			key = name
		}
		term.keys(strings.Replace(key, "ctrl+", "C-", 1))
	}
}

// keys presses keys by their names in tmux.
func (term *terminal) keys(names ...string) {
	term.tmux(append([]string{"send-keys"}, names...)...)
}

func (term *terminal) screen() string { return term.tmux("capture-pane", "-p") }

// await waits until the text is on the screen, and returns the screen.
func (term *terminal) await(text string) (screen string) {
	term.Helper()
	require.Eventually(term, func() bool {
		screen = term.screen()
		return strings.Contains(screen, text)
	}, patience, 20*time.Millisecond, "no %q on the screen", text)
	return screen
}

// state is what a program may leave behind: another screen, no cursor, mouse
// reports, keys of another kind.
func (term *terminal) state() string {
	return term.tmux("display", "-p", "#{alternate_on} #{cursor_flag} #{mouse_any_flag} #{keypad_flag} #{keypad_cursor_flag}")
}

// answer presses a key until the question has gone: one that has just come up
// hears no keys for a moment.
func (term *terminal) answer(key string) {
	term.Helper()
	require.Eventually(term, func() bool {
		term.keys(key)
		return !strings.Contains(term.screen(), "y yes")
	}, patience, 50*time.Millisecond, "the question stays")
}

// pid is the process that the shell runs.
func (term *terminal) pid() int {
	term.Helper()
	shell := strings.TrimSpace(term.tmux("display", "-p", "#{pane_pid}"))
	children, err := os.ReadFile("/proc/" + shell + "/task/" + shell + "/children")
	require.NoError(term, err)
	pid, err := strconv.Atoi(strings.Fields(string(children))[0])
	require.NoError(term, err)
	return pid
}

// An operator finds a failed job by filter, requeues it, takes that back,
// requeues it again and sees it complete, all in a real terminal with a real
// worker; the audit tells the same story on the screen and as JSON.
func TestTUIStory(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	flag := filepath.Join(t.TempDir(), "mended")
	w := startProcess(t, "worker", "--database-url", url, "--run", "task=sh -c 'test -e "+flag+"'")
	w.awaitLog(t, "worker started")
	id := query[int64](t, pool, "select jobq.enqueue('task', max_attempts => 1)")
	eventually(t, pool, "failed", "select state::text from jobq.job where id = $1", id)
	require.NoError(t, os.WriteFile(flag, nil, 0o600))

	term := openTerminal(t, 120, 35)
	term.run("tui", "--database-url", url, "--context", "staging")
	term.await("Throughput")
	term.press(command.Queues)
	term.await("default")
	term.press(command.Pause)
	term.await("Pause queue default")
	term.text("to look at it")
	term.keys("Enter")
	term.await("paused queue default")
	term.press(command.Jobs)
	term.await("to filter")
	term.press(command.Filter)
	term.await("Filter")
	term.text("state:failed kind:ta*")
	term.keys("Enter")
	term.await("1-1 of 1  last ended first")
	term.press(command.Requeue)
	term.await(fmt.Sprintf("requeue job %d: it is available", id))
	eventually(t, pool, "available", "select state::text from jobq.job where id = $1", id)
	term.press(command.Undo)
	term.await(fmt.Sprintf("undone: job %d is failed now", id))
	eventually(t, pool, "failed", "select state::text from jobq.job where id = $1", id)
	term.keys("Enter")
	term.await("FAILED  attempt 1 of 1")
	term.press(command.Requeue)
	term.await("AVAILABLE")
	term.press(command.Queues)
	term.await("PAUSED")
	term.press(command.Pause)
	term.await("resumed queue default")
	term.press(command.Jobs)
	term.press(command.Palette)
	term.await("Command")
	term.text(fmt.Sprintf("job %d", id))
	term.keys("Enter")
	term.await("COMPLETED")
	term.press(command.Audit)
	screen := term.await("WHAT")
	var entries []monitor.AuditEntry
	out, _, code := invoke(t, "", "audit", "--json", "--database-url", url)
	require.Zero(t, code)
	require.NoError(t, json.Unmarshal([]byte(out), &entries))
	lines := strings.Split(screen, "\n")
	top := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, "WHAT") })
	// column is what a line has under one headline, up to the next.
	column := func(line, from, to string) string {
		begin, end := strings.Index(lines[top], from), 120
		if to != "" {
			end = strings.Index(lines[top], to)
		}
		return strings.TrimSpace(string([]rune(fmt.Sprintf("%-120s", line))[begin:end]))
	}
	var told, shown []string
	for i, entry := range entries {
		require.Equal(t, userAtHost()+" via jobq-tui", entry.Actor)
		told = append(told, fmt.Sprintf("%d %s %s done %d refused %d jobs %v undoes %d undone by %d", entry.ID, entry.Action,
			entry.Target, entry.Done, entry.Refused, entry.JobIDs, entry.Undoes, entry.UndoneBy))
		line := lines[top+1+i]
		require.Contains(t, line, entry.At.UTC().Format("15:04:05"))
		require.Contains(t, column(line, "WHO", "NOTE"), entry.Actor[:min(len(entry.Actor), 24)])
		require.Equal(t, fmt.Sprint(entry.ID), strings.Fields(strings.TrimPrefix(line, ">"))[0])
		counts := strings.Join(strings.Fields(column(line, "ACTION", "WHAT")), " ")
		shown = append(shown, fmt.Sprintf("%d %s %s | %s", entry.ID, counts, column(line, "WHAT", "WHO"), column(line, "NOTE", "")))
	}
	require.Equal(t, []string{
		"5 resume default done 0 refused 0 jobs [] undoes 0 undone by 0",
		fmt.Sprintf("4 requeue  done 1 refused 0 jobs [%d] undoes 0 undone by 0", id),
		fmt.Sprintf("3 undo  done 1 refused 0 jobs [%d] undoes 2 undone by 0", id),
		fmt.Sprintf("2 requeue  done 1 refused 0 jobs [%d] undoes 0 undone by 3", id),
		"1 pause default done 0 refused 0 jobs [] undoes 0 undone by 0",
	}, told, "as JSON")
	require.Equal(t, []string{
		"5 resume default | ",
		fmt.Sprintf("4 requeue 1 0 %d | ", id),
		fmt.Sprintf("3 undo 1 0 %d | undoes requeue 2", id),
		fmt.Sprintf("2 requeue 1 0 %d | undone by 3", id),
		"1 pause default | to look at it",
	}, shown, "on the screen")
	term.press(command.Quit)
	term.await("\nready>\n")
}

// A job can be opened by its permalink, and r in its detail requeues it; the
// screen follows the size of the terminal, however small.
func TestTUIOpenAndResize(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	id := makeFailed(t, url, "email", 1)[0]
	term := openTerminal(t, 120, 35)
	term.run("tui", "--database-url", url, "--open", fmt.Sprintf("job/%d", id))
	term.await("FAILED")
	term.press(command.Requeue)
	eventually(t, pool, "available", "select state::text from jobq.job where id = $1", id)
	term.press(command.Overview)
	term.await("Live activity")
	term.tmux("resize-window", "-x", "80", "-y", "24")
	term.await("─ Live activity ─")
	for _, line := range strings.Split(term.screen(), "\n") {
		require.LessOrEqual(t, len([]rune(line)), 80)
	}
	term.tmux("resize-window", "-x", "40", "-y", "10")
	term.await("stats --watch")
	term.tmux("resize-window", "-x", "120", "-y", "35")
	term.await("Live activity")

	require.NoError(t, syscall.Kill(term.pid(), syscall.SIGTERM))
	term.await("\nready>\n")
	term.text("stty -a | grep -o ' echo ' && echo terminal is sane")
	term.keys("Enter")
	term.await("\nterminal is sane")
}

// When the database dies, the UI says so, keeps what it knows, changes
// nothing, and is live again by itself when the database is back.
func TestTUIDatabaseGoesAway(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := pgtest.OwnServer(t)
	url := server.URL("postgres")
	require.NoError(t, pgtest.Migrate(ctx, url, "jobq"))
	makeFailed(t, url, "email", 3)
	term := openTerminal(t, 120, 35)
	term.run("tui", "--database-url", url, "--open", "jobs")
	term.await("● live")
	term.await("1-3 of 3")
	require.NoError(t, server.Kill())
	term.await("offline")
	term.press(command.Requeue)
	term.await("the database does not answer")
	require.Contains(t, term.screen(), "SendInvoice", "what was known is still there")
	require.NoError(t, server.Relaunch(ctx))
	term.await("● live")
	term.press(command.Requeue)
	term.await("it is available")
}

// A suspended UI holds nothing in the database: its LISTEN is dropped, and it
// is live again when it comes back.
func TestTUISuspend(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	term := openTerminal(t, 80, 24)
	term.run("tui", "--database-url", url)
	term.await("● live")
	const listeners = "select count(*)::int from pg_stat_activity where datname = current_database() and application_name = 'jobq-listen'"
	const holding = "select count(*)::int from pg_stat_activity where datname = current_database() and application_name like 'jobq-%' and (backend_xmin is not null or xact_start is not null)"
	eventually(t, pool, 1, listeners)
	eventually(t, pool, 1, "select count(*)::int from jobq.watcher")
	term.press(command.Suspend)
	term.await("Stopped")
	eventually(t, pool, 0, listeners) // a backend outlives its connection by a moment
	require.Zero(t, query[int](t, pool, holding))
	require.Zero(t, query[int](t, pool, "select count(*)::int from jobq.watcher"), "workers need tell nobody")
	term.text("fg")
	term.keys("Enter")
	term.await("● live")
	eventually(t, pool, 1, listeners)
	term.keys("C-c")
	term.await("\nready>\n")
}
