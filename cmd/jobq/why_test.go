package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/tui/command"
)

// The command says why each of several jobs is not running, in words and as JSON, with
// the documented exit codes, and refuses what is no id before it asks the database.
func TestWhyCommand(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	why := func(args ...string) (out, stderr string, code int) {
		return invoke(t, "", append([]string{"why", "--database-url", url}, args...)...)
	}
	paused := query[int64](t, pool, "select jobq.enqueue('send', queue => 'email')")
	_, _, code := invoke(t, "", "queues", "pause", "email", "--reason", "books \x1b[2Jare closed", "--database-url", url)
	require.Equal(t, exitOK, code)
	later := query[int64](t, pool, "select jobq.enqueue('send', queue => 'other', run_at => '2100-01-01 12:00:00Z')")

	out, _, code := why(fmt.Sprint(paused), fmt.Sprint(later))
	require.Equal(t, exitOK, code)
	require.Contains(t, out, fmt.Sprintf("job %d\n  the queue is paused by ", paused))
	require.Contains(t, out, "are closed, for ")
	require.NotContains(t, out, "\x1b")
	require.Contains(t, out, "    -> let it go on: jobq queues resume email\n  no live worker takes jobs from the queue\n")
	require.Contains(t, out, fmt.Sprintf("job %d\n  it is scheduled for 2100-01-01 12:00:00 UTC, in ", later))

	out, _, code = why("--json", fmt.Sprint(paused))
	require.Equal(t, exitOK, code)
	var told []struct {
		ID      int64
		Reasons []struct {
			Reason, Says string
			Facts        struct{ Queue, By, Note string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &told))
	require.Len(t, told, 1)
	require.Equal(t, paused, told[0].ID)
	require.Len(t, told[0].Reasons, 2)
	require.Equal(t, "queue_paused", told[0].Reasons[0].Reason)
	require.Equal(t, "email", told[0].Reasons[0].Facts.Queue)
	require.Equal(t, "no_worker", told[0].Reasons[1].Reason)

	out, stderr, code := why("4711", fmt.Sprint(later))
	require.Equal(t, exitNotFound, code)
	require.Contains(t, out, "job 4711\n  there has never been such a job here: the last id that was given is 2\n")
	require.Contains(t, out, "it is scheduled for 2100", "the others are answered all the same")
	require.Contains(t, stderr, "job 4711")

	for _, args := range [][]string{{}, {"x"}, {"0"}, {"-1"}, {"1", "1e3"}, {"99999999999999999999"}, strings.Fields(strings.Repeat("1 ", whyIDsMax+1))} {
		out, stderr, code := invoke(t, "", append([]string{"why", "--database-url", "postgres://nowhere.invalid/x"}, args...)...)
		require.Equal(t, exitUsage, code, stderr)
		require.Empty(t, out)
		require.NotContains(t, stderr, "nowhere")
	}
}

// A viewer learns which session has a job locked, and that PostgreSQL hides the rest
// from this role; the owner learns what it does. A viewer learns what limits a queue, too.
func TestWhyOfAViewer(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	owner, as := rolesServer(t)
	id := query[int64](t, owner, "select jobq.enqueue('send')")
	tx, err := owner.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(ctx) }()
	_, err = tx.Exec(ctx, "select from jobq.pending where id = $1 for update", id)
	require.NoError(t, err)
	var pid int
	require.NoError(t, tx.QueryRow(ctx, "select pg_backend_pid()").Scan(&pid))
	out, stderr, code := invoke(t, "", "why", fmt.Sprint(id), "--database-url", as("viewer"))
	require.Equal(t, exitOK, code, stderr)
	require.Contains(t, out, fmt.Sprintf("its row is locked, and claims pass it by: pid %d of role postgres; since when and what it does is hidden from this role", pid))
	_, err = owner.Exec(ctx, "grant pg_read_all_stats to jobq_viewer")
	require.NoError(t, err)
	out, stderr, code = invoke(t, "", "why", fmt.Sprint(id), "--database-url", as("viewer"))
	require.Equal(t, exitOK, code, stderr)
	require.Contains(t, out, "idle in transaction, its transaction began ")
	require.Contains(t, out, "select pg_backend_pid()")

	for _, sql := range []string{
		"insert into jobq.queue (name, max_running, rate_jobs, rate_period) values ('default', 1, 1, '1 h')",
		"insert into jobq.throttle (queue, number, step_us, ready_at) values ('default', 1, 3600000000, now() + interval '1 h')",
		"insert into jobq.lease (id, claimed_at, expires_at, owner, queue, job_ids) values (1, now(), now() + interval '1 h', 'w', 'default', '{4711}')",
		"insert into jobq.kind (name, paused_at, paused_by) values ('send', now(), 'ana')",
	} {
		_, err = owner.Exec(ctx, sql)
		require.NoError(t, err)
	}
	out, stderr, code = invoke(t, "", "why", fmt.Sprint(id), "--database-url", as("viewer"))
	require.Equal(t, exitOK, code, stderr)
	for _, part := range []string{
		"  kind send is paused by ana, for ", "    -> let it go on: jobq kinds resume send\n",
		"  the queue is at its limit: 1 of 1 job run, the oldest is job 4711, claimed ", "jobq queues set default limit=N; what the oldest does: jobq why 4711\n",
		"  the queue is at its rate of 1/h: the next job may start at ", "jobq queues set default rate=N/s\n",
	} {
		require.Contains(t, out, part)
	}
}

// In a real terminal, why is asked of a job in the list and on its page, and the answer
// goes with the next key.
func TestTUIWhy(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	id := query[int64](t, pool, "select jobq.enqueue('send', queue => 'email')")
	_, err := pool.Exec(context.Background(), "select jobq.act_queue('ana', 'pause', 'email', 'books are closed')")
	require.NoError(t, err)
	term := openTerminal(t, 100, 30)
	term.run("tui", "--database-url", url, "--open", "jobs")
	title := fmt.Sprintf("Why is job %d not running?", id)
	ask := func() {
		term.press(command.Why)
		require.Contains(t, term.await(title), "the queue is paused by ana: books are closed, for ")
		require.Contains(t, term.screen(), "let it go on: jobq queues resume email")
		require.Eventually(t, func() bool { // a key that comes at once may not have been meant for the note
			term.keys("Escape")
			return !strings.Contains(term.screen(), title)
		}, patience, 50*time.Millisecond)
	}
	term.await("send")
	ask()
	term.press(command.Jobs) // esc may have left the list as well
	term.await("to filter")
	term.press(command.Open)
	term.await("Properties")
	ask()
}
