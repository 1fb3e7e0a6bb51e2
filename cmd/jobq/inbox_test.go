package main

import (
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

// The SQL of inbox takes what is inserted to the schema that was said, for the kinds that
// were said, whatever these are called, until it is removed. bench/inbox tests what becomes of
// jobs, with the clients of the other queues.
func TestInboxCommand(t *testing.T) {
	t.Parallel()
	url := pgtest.EmptyURL(t)
	pool := pgtest.Connect(t, url)
	_, _, code := invoke(t, "", "migrate", "up", "--database-url", url, "--schema", "work")
	require.Zero(t, code)
	execute := func(script string) error {
		_, err := pool.Exec(t.Context(), script, pgx.QueryExecModeSimpleProtocol)
		return err
	}
	require.NoError(t, execute("create schema old"))
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler), Schema: "old"})
	require.NoError(t, err)
	_, err = migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil)
	require.NoError(t, err)

	inbox := func(args ...string) string {
		out, stderr, code := invoke(t, "", append([]string{"inbox", "river", "--schema", "work", "--from", "old"}, args...)...)
		require.Zero(t, code, stderr)
		return out
	}
	insert := func(kind string) (waiting, left int) {
		_, err := pool.Exec(t.Context(), "insert into old.river_job (kind, args) values ($1, '{}')", kind)
		require.NoError(t, err)
		return query[int](t, pool, "select count(*) from work.pending"), query[int](t, pool, "select count(*) from old.river_job")
	}
	const hostile = `jobq.it's {from} $inbox$ \`
	for _, step := range []struct {
		args          []string // of the command, if it is run
		kind          string
		waiting, left int
	}{
		{[]string{"--kind", hostile, "--kind", "b"}, hostile, 1, 0},
		{nil, "b", 2, 0},
		{nil, "jobq.it", 2, 1},
		{[]string{"--kind", "c"}, "b", 2, 2},
		{[]string{"--unique-keys"}, "b", 3, 2},
		{[]string{"--remove"}, "b", 3, 3},
		{[]string{"--remove"}, "b", 3, 4},
	} {
		if step.args != nil {
			require.NoError(t, execute(inbox(step.args...)), step.args)
		}
		waiting, left := insert(step.kind)
		require.Equal(t, []int{step.waiting, step.left}, []int{waiting, left}, "%v %s", step.args, step.kind)
	}

	// A table of another version is refused when the inbox is made, and not when somebody inserts.
	require.NoError(t, execute("alter table old.river_job drop column unique_states"))
	require.ErrorContains(t, execute(inbox()), `column "unique_states" does not exist`)

	// So is a jobq that is not there.
	out, _, code := invoke(t, "", "inbox", "river", "--schema", "elsewhere", "--from", "old")
	require.Zero(t, code)
	require.ErrorContains(t, execute(out), `cannot add jobs to jobq in the schema "elsewhere"`)

	for want, args := range map[string][]string{
		"inboxes are for graphile-worker, pg-boss, river": {"sidekiq"},
		"use letters, digits, _ and -":                    {"river", "--from", "a b"},
		"--from is empty":                                 {"river", "--from", ""},
		"leave out --kind":                                {"river", "--remove", "--kind", "a"},
	} {
		_, stderr, code := invoke(t, "", append([]string{"inbox"}, args...)...)
		require.Equal(t, exitUsage, code, args)
		require.Contains(t, stderr, want)
	}
}
