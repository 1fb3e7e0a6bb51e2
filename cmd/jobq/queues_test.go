package main

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

// A queue that nobody knows is not said to be paused: the name is likely
// mistyped. What is known is what has settings, jobs or workers, or had jobs of
// late; and --new pauses before the first job.
func TestUnknownQueue(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	query[int64](t, pool, "select jobq.enqueue('a', queue => 'email')")
	query[int](t, pool, `with s as (insert into jobq.stat_delta (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
		values (date_trunc('minute', now()), 'nightly', 'k', 1, 0, 0, 0, 0, 1, 0) returning 1) select count(*)::int from s`)
	command := func(want int, args ...string) string {
		t.Helper()
		out, stderr, code := invoke(t, "", append([]string{"queues", "--database-url", url}, args...)...)
		require.Equal(t, want, code, stderr)
		return out + stderr
	}
	said := command(exitNotFound, "pause", "emial")
	require.Contains(t, said, `no queue "emial" is known`)
	require.Contains(t, said, "did you mean email?")
	require.Contains(t, said, "--new")
	require.Contains(t, command(exitNotFound, "resume", "emial"), "did you mean email?")
	require.Contains(t, command(exitNotFound, "show", "emial"), "did you mean email?")
	require.Contains(t, command(exitNotFound, "pause", "video"), `"jobq queues list" shows those there are`)
	require.Zero(t, query[int](t, pool, "select count(*)::int from jobq.queue where name <> 'email'"), "nothing is left behind")
	require.Contains(t, command(exitOK, "pause", "email"), "queue email is paused; take it back with: jobq undo ")
	require.Contains(t, command(exitOK, "pause", "nightly"), "queue nightly is paused; take it back with: jobq undo ", "it had jobs")
	require.Contains(t, command(exitOK, "pause", "video", "--new"), "queue video is paused; take it back with: jobq undo ")
	require.Equal(t, "queue import is set; take it back with: jobq undo 4\nnote: before this, no queue \"import\" is known: no job, no worker and no settings name it; \"jobq queues list\" shows those there are\n",
		command(exitOK, "set", "import", "lease=1d"))
	require.Equal(t, "queue import is set; take it back with: jobq undo 5\n", command(exitOK, "set", "import", "lease=2d"))
	query[int](t, pool, "with q as (insert into jobq.queue (name) select 'many' || n from generate_series(1, 1000) n returning 1) select count(*)::int from q")
	require.Contains(t, command(exitNotFound, "pause", "zebra"), `no queue "zebra" is known`, "although not all queues are listed")
	require.Contains(t, command(exitOK, "pause", "many999"), "queue many999 is paused; take it back with: jobq undo ", "although it may not be listed")
	shown := command(exitOK, "show", "import")
	require.Regexp(t, `lease +2d\n`, shown)
	require.Regexp(t, `ended jobs kept +7d, as in all queues: jobq settings`, shown)
}

// A queue is paused, resumed and set although the reads of the lists cannot be had,
// here since another session has locked their tables; and a list that has been
// answered is no error because nobody could say why it is empty.
func TestUnknownQueueOnBusyDatabase(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	query[int64](t, pool, "select jobq.enqueue('a', queue => 'email')")
	tx, err := pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(ctx)) }()
	_, err = tx.Exec(ctx, "lock table jobq.stat in access exclusive mode")
	require.NoError(t, err)
	require.NoError(t, pgtest.LockHistory(ctx, tx))
	impatient := url + "&lock_timeout=200ms"
	if !strings.Contains(url, "?") {
		impatient = url + "?lock_timeout=200ms"
	}
	for _, args := range []string{"queues pause email", "queues resume email", "queues set import lease=1d", "list --state scheduled --queue emial"} {
		_, stderr, code := invoke(t, "", append(strings.Fields(args), "--database-url", impatient)...)
		require.Zero(t, code, "%s: %s", args, stderr)
		require.NotContains(t, stderr, "timeout", args)
	}
	_, stderr, code := invoke(t, "", "queues", "pause", "emial", "--database-url", impatient)
	require.Equal(t, exitError, code, "whether it is known, nobody can say: %s", stderr)
}
