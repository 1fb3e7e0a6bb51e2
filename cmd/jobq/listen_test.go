package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/internal/settings"
	"github.com/jobq-dev/jobq/tui/command"
)

// Behind a pooler in transaction mode, a worker with a listen URL is woken by
// notifications, and the terminal UI is live. A listen URL to another database is an error
// of all who listen, and of nobody else.
func TestListenURL(t *testing.T) {
	t.Parallel()
	direct, elsewhere := pgtest.URL(t), pgtest.URL(t)
	pool := pgtest.Connect(t, direct)
	pooled := pgtest.StartPgBouncer(t, direct, map[string]string{"pool_mode": "transaction"}).URL(t, direct)

	worker := startProcessWith(t, []string{"JOBQ_LISTEN_URL=" + direct}, "worker", "--database-url", pooled, "--run", "good=true", "--poll", "1h")
	eventually(t, pool, true, `select exists (select from pg_locks l join pg_stat_activity a using (pid)
		where l.locktype = 'advisory' and l.objsubid = 2 and a.application_name = 'jobq-listen' and a.datname = current_database())`) // its presence
	for range 2 {
		out, stderr, code := invoke(t, "", "enqueue", "good", "--wait", "--json", "--database-url", pooled, "--listen-url", direct)
		require.Equal(t, exitOK, code, stderr)
		require.Contains(t, out, `"state":"completed"`)
	}
	require.NotContains(t, worker.log.String(), "give jobq a direct connection")

	term := openTerminal(t, 120, 35)
	term.run("tui", "--database-url", pooled, "--listen-url", direct)
	term.await("● live")
	term.press(command.Quit)
	term.await("\nready>\n")

	for _, args := range []string{"wait 1", "enqueue good --wait", "worker --run good=true", "tui --print overview"} {
		_, stderr, code := invoke(t, "", append(strings.Fields(args), "--database-url", pooled, "--listen-url", elsewhere)...)
		require.Equal(t, exitError, code, args)
		require.Contains(t, stderr, "does not lead to the pool's database", args)
		_, stderr, code = invoke(t, "", append(strings.Fields(args), "--database-url", pooled, "--listen-url", "http://db")...)
		require.Equal(t, exitUsage, code, "%s: %s", args, stderr)
	}
	for _, args := range []string{"list", "enqueue good"} {
		_, stderr, code := invoke(t, "", append(strings.Fields(args), "--database-url", pooled, "--listen-url", elsewhere)...)
		require.Equal(t, exitOK, code, stderr)
	}
	_, stderr, code := invoke(t, "", "doctor", "--database-url", pooled, "--listen-url", elsewhere)
	require.Equal(t, exitCritical, code, stderr)
}

// Which listen URL is meant: the flag's, or the one that belongs to the database.
func TestWhichListenURL(t *testing.T) { // not parallel: it is about the environment
	t.Setenv("JOBQ_LISTEN_URL", "environment")
	context := settings.Context{DatabaseURL: "postgres://db-1/app", ListenURL: "context"}
	for name, test := range map[string]struct {
		app     app
		context *settings.Context
		want    string
	}{
		"environment":                    {app{}, nil, "environment"},
		"database by a flag":             {app{databaseURL: "postgres://db-2/app"}, nil, "environment"},
		"flag":                           {app{listenURL: "flag"}, nil, "flag"},
		"context":                        {app{}, &context, "context"},
		"context without one":            {app{}, &settings.Context{DatabaseURL: "postgres://db-1/app"}, ""},
		"flag beside a context":          {app{listenURL: "flag"}, &context, "flag"},
		"context as a label of database": {app{databaseURL: "postgres://db-2/app"}, &context, "environment"},
	} {
		if test.context != nil {
			test.app.enter("prod", *test.context, false)
		}
		require.Equal(t, test.want, test.app.listenAddress(), name)
	}
}
