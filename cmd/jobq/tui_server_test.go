package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/tui/command"
)

// A database that is there and does not answer, as one that sleeps: the UI
// says so after its own time limit, changes nothing, and catches up by itself.
func TestTUIDatabaseAsleep(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := pgtest.OwnServer(t)
	require.NoError(t, pgtest.Migrate(ctx, server.URL("postgres"), "jobq"))
	id := makeFailed(t, server.URL("postgres"), "email", 1)[0]
	term := openTerminal(t, 120, 35)
	term.run("tui", "--database-url", server.URL("postgres"), "--open", "jobs")
	term.await("1-1 of 1")
	term.await("● live")

	processes := family(t, server.PID())
	signal := func(sig syscall.Signal) {
		for _, pid := range processes {
			_ = syscall.Kill(pid, sig) // a child may have ended
		}
	}
	signal(syscall.SIGSTOP)
	t.Cleanup(func() { signal(syscall.SIGCONT) })
	term.await("offline")
	term.press(command.Requeue)
	screen := term.await("requeue: the database does not answer")
	require.Contains(t, screen, "SendInvoice", "what was known is still there")
	require.NotContains(t, screen, "● live")
	signal(syscall.SIGCONT)
	term.await("● live")
	term.press(command.Requeue)
	term.await(fmt.Sprintf("requeue job %d: it is available", id))
}

// family is a process and its children.
func family(t *testing.T, pid int) []int {
	t.Helper()
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	require.NoError(t, err)
	pids := []int{pid}
	for _, child := range strings.Fields(string(children)) {
		number, err := strconv.Atoi(child)
		require.NoError(t, err)
		pids = append(pids, number)
	}
	return pids
}

// On a streaming standby, which has no LISTEN and takes no writes, the UI
// polls, shows the jobs, and says why a key does nothing.
func TestTUIReplica(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	primary := pgtest.OwnServer(t)
	require.NoError(t, pgtest.Migrate(ctx, primary.URL("postgres"), "jobq"))
	makeFailed(t, primary.URL("postgres"), "email", 1)
	term := openTerminal(t, 120, 35)
	term.run("tui", "--database-url", pgtest.SocketURL(pgtest.StartStandby(t, primary)), "--open", "jobs")
	screen := term.await("1-1 of 1")
	require.Contains(t, screen, "SendInvoice")
	term.await("● poll: cannot execute LISTEN during recovery")
	require.Contains(t, term.screen(), " RO ")
	term.press(command.Requeue)
	term.await("requeue: the database is read-only: a standby, or told so")
	makeFailed(t, primary.URL("postgres"), "email", 1)
	term.await("of 2")
	client, err := jobq.NewClient(pgtest.Connect(t, primary.URL("postgres")), nil)
	require.NoError(t, err)
	runProgram(t, client, filepath.Join(t.TempDir(), "end"))
	term.await("of 3")
	term.press(command.Top)
	term.press(command.Open)
	term.await("what running programs write can be read on the primary server only")
}

// Behind PgBouncer in transaction mode, where LISTEN is accepted and nothing is
// heard, the UI finds that out, polls, says so, and acts all the same.
func TestTUIPgBouncer(t *testing.T) {
	t.Parallel()
	direct := pgtest.URL(t)
	pool := pgtest.Connect(t, direct)
	id := makeFailed(t, direct, "email", 1)[0]
	term := openTerminal(t, 120, 35)
	pooled := pgtest.StartPgBouncer(t, direct, map[string]string{"pool_mode": "transaction"}).URL(t, direct)
	term.run("tui", "--database-url", pooled, "--open", "jobs")
	term.await("1-1 of 1")
	term.await("● poll: no events, as behind a pooler")
	term.await(" RW ")
	term.press(command.Requeue)
	term.await(fmt.Sprintf("requeue job %d: it is available", id))
	require.Equal(t, "cancelled", query[string](t, pool, "select jobq.cancel($1)::text", id))
	term.await("cancelled") // seen by polling
	term.press(command.Quit)
	term.await("\nready>\n")
}
