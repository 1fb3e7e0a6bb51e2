package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/sql/migrations"
)

// migrate goes up, down and says where it is; other commands say what to run
// before, and refuse a database that is too new.
func TestMigrateCommands(t *testing.T) {
	t.Parallel()
	url := pgtest.EmptyURL(t)
	for _, schema := range []string{"jobq", "other"} {
		flags := []string{"--database-url", url, "--schema", schema}
		_, stderr, code := invoke(t, "", append(flags, "list")...)
		require.Equal(t, exitError, code)
		require.Contains(t, stderr, "jobq migrate up")
		out, _, code := invoke(t, "", append(flags, "migrate", "up")...)
		require.Zero(t, code)
		require.Contains(t, out, "applied 001 initial")
		out, _, code = invoke(t, "", append(flags, "migrate", "status", "--json")...)
		require.Zero(t, code)
		var status struct{ Current, Latest int }
		require.NoError(t, json.Unmarshal([]byte(out), &status))
		require.Equal(t, migrations.Latest(), status.Current)
		_, _, code = invoke(t, "", append(flags, "migrate", "down")...)
		require.Equal(t, exitUsage, code, "it wants --yes")
		_, _, code = invoke(t, "", append(flags, "migrate", "down", "--yes", "--target", "-1")...)
		require.Zero(t, code)
	}
	out, _, code := invoke(t, "", "migrate", "sql", "--schema", "other")
	require.Zero(t, code)
	require.Contains(t, out, `create table "other".pending`)

	url = pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	latest := migrations.Latest()
	const migrated = "insert into jobq.jobq_migration (version, compatible_from) values ($1, $2)"
	_, err := pool.Exec(context.Background(), migrated, latest+1, latest)
	require.NoError(t, err)
	for args, want := range map[string]string{"status": "A later jobq has changed the tables. This one works with them.", "up": "nothing to do"} {
		out, _, code := invoke(t, "", "migrate", args, "--database-url", url)
		require.Zero(t, code)
		require.Contains(t, out, want)
	}
	_, err = pool.Exec(context.Background(), migrated, 999, 999)
	require.NoError(t, err)
	for _, args := range [][]string{{"list"}, {"migrate", "up"}, {"worker", "--run", "a=b"}} {
		_, stderr, code := invoke(t, "", append(args, "--database-url", url)...)
		require.Equal(t, exitError, code, args)
		require.Contains(t, stderr, "newer than this jobq", args)
	}
}

// enqueue takes args inline, from a file, and many from standard input, and
// says which line was wrong.
func TestEnqueueCommand(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	enqueue := func(input string, args ...string) (string, string, int) {
		return invoke(t, input, append([]string{"enqueue", "--database-url", url}, args...)...)
	}
	out, _, code := enqueue("", "hello", `{"a":1}`, "--queue", "q", "--priority", "-5", "--max-attempts", "3", "--tag", "x", "--unique-key", "u")
	require.Zero(t, code)
	require.Equal(t, "1\n", out)
	out, _, code = enqueue("", "hello", "--unique-key", "u", "--json")
	require.Zero(t, code)
	require.JSONEq(t, `{"id": 1, "duplicate": true}`, out)

	file := filepath.Join(t.TempDir(), "args.json")
	require.NoError(t, os.WriteFile(file, []byte(" {\"b\": 2}\n"), 0o600))
	_, _, code = enqueue("", "hello", "@"+file, "--delay", "1h")
	require.Zero(t, code)
	require.JSONEq(t, `{"b": 2}`, query[string](t, pool, "select args::text from jobq.job where state = 'scheduled'"))

	var lines strings.Builder
	for i := range 2500 {
		fmt.Fprintf(&lines, "{\"n\": %d}\n", i)
	}
	out, _, code = enqueue(lines.String(), "many", "-")
	require.Zero(t, code)
	require.Equal(t, 2500, strings.Count(out, "\n"))
	require.Equal(t, 2500, query[int](t, pool, "select count(*) from jobq.job where kind = 'many'"))

	_, _, code = enqueue(`{"kind": "whole", "queue": "w", "priority": 3, "args": {"x": 1}, "run_at": "2030-01-01T00:00:00Z"}`+"\n", "--ndjson")
	require.Zero(t, code)
	require.Equal(t, 1, query[int](t, pool, "select count(*) from jobq.job where kind = 'whole' and queue = 'w' and priority = 3 and state = 'scheduled'"))

	for _, test := range []struct {
		input string
		args  []string
		want  string
	}{
		{"", []string{"hello", "{"}, "args are not JSON"},
		{"", []string{}, "usage"},
		{"", []string{"hello", "{}", "extra"}, "usage"},
		{"", []string{"hello", "--run-at", "tomorow"}, "--run-at"},
		{"", []string{"hello", `{"a":"\u0000"}`}, "NUL"},
		{"", []string{strings.Repeat("k", 129)}, "kind must be 1 to 128 characters"},
		{"{}\n{}\nnonsense\n", []string{"hello", "-"}, "line 3"},
		{`{"kind": "k", "quue": "q"}` + "\n", []string{"--ndjson"}, "quue"},
	} {
		_, stderr, code := enqueue(test.input, test.args...)
		require.Equal(t, exitUsage, code, test.args)
		require.Contains(t, stderr, test.want)
	}
}

// The commands that read and act do so, with the documented exit codes.
func TestJobCommands(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	flags := []string{"--database-url", url}
	command := func(args ...string) (string, string, int) { return invoke(t, "", append(args, flags...)...) }
	for range 3 {
		_, _, code := command("enqueue", "hello", `{"evil": "\u001b[31m"}`)
		require.Zero(t, code)
	}
	out, _, code := command("list", "--state", "available", "--limit", "2")
	require.Zero(t, code)
	require.Equal(t, 3, strings.Count(out, "\n"))
	out, _, code = command("list", "--before", "2", "--json")
	require.Zero(t, code)
	var page struct{ Jobs []struct{ ID int64 } }
	require.NoError(t, json.Unmarshal([]byte(out), &page))
	require.Len(t, page.Jobs, 1)

	out, _, code = command("show", "1")
	require.Zero(t, code)
	require.Contains(t, out, "available")
	require.NotContains(t, out, "\x1b")
	out, _, code = command("cancel", "1", "2")
	require.Zero(t, code)
	require.Equal(t, "1 cancelled\n2 cancelled\n", out)
	out, _, code = command("requeue", "1")
	require.Zero(t, code)
	require.Equal(t, "1 available\n", out)
	_, _, code = command("delete", "2")
	require.Zero(t, code)

	out, stderr, code := command("delete", "2", "1")
	require.Equal(t, exitNotFound, code)
	require.Contains(t, stderr, "no such job")
	require.Equal(t, "1 deleted\n", out, "it goes on after one that fails")
	for want, args := range map[string][]string{
		"job id":          {"show", "x"},
		"state":           {"list", "--state", "sleeping"},
		"limit":           {"list", "--limit", "5000"},
		"--limit must":    {"list", "--limit", "0"},
		"limit must":      {"janitor", "events", "--limit", "-5"},
		"list by id":      {"list", "state:failed", "--sort", "finished", "--before", "2"},
		"audit id":        {"undo", "x"},
		"unknown flag":    {"list", "--nonsense"},
		"unknown command": {"nonsense"},
	} {
		_, stderr, code := command(args...)
		require.Equal(t, exitUsage, code, args)
		require.Contains(t, stderr, want)
	}
	_, _, code = command("show", "12345")
	require.Equal(t, exitNotFound, code)

	pool := pgtest.Connect(t, url)
	err := pgtest.InsertRunning(context.Background(), pool, 1, pgtest.Columns{"id": "77"})
	require.NoError(t, err)
	_, _, code = command("requeue", "77")
	require.Equal(t, exitConflict, code)
	out, _, code = command("cancel", "77")
	require.Zero(t, code)
	require.Equal(t, "77 cancel requested\n", out)
}

// Queues are paused, shown and resumed; stats and workers are there.
func TestQueueCommands(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	command := func(args ...string) string {
		out, stderr, code := invoke(t, "", append(args, "--database-url", url)...)
		require.Zero(t, code, stderr)
		return out
	}
	require.Contains(t, command("queues", "pause", "mail", "--reason", "smtp down", "--new"), "is paused")
	require.Contains(t, command("queues", "pause", "mail"), "is already paused")
	require.Contains(t, command("queues", "list"), "smtp down")
	var queues []struct{ Name, PauseReason string }
	require.NoError(t, json.Unmarshal([]byte(strings.ReplaceAll(command("queues", "list", "--json"), "pause_reason", "PauseReason")), &queues))
	require.Equal(t, "smtp down", queues[0].PauseReason)
	require.Contains(t, command("queues", "resume", "mail"), "is running")
	require.Contains(t, command("stats"), "mail")
	require.Contains(t, command("stats", "--json"), `"queues"`)
	require.Contains(t, command("workers"), "WORKER")
	_, err := pgtest.Connect(t, url).Exec(context.Background(), `insert into jobq.worker (id, pid, hostname, version, queues, kinds, kind_slots) values ('w', 1, 'h', 'v', '{"mail": 4}', '{resize,send}', '{"resize": 2}')`)
	require.NoError(t, err)
	require.Contains(t, command("workers"), "resize=2,send")
}

// Without a database, and with one that is down, the errors say what to do.
func TestNoDatabase(t *testing.T) {
	_, stderr, code := invoke(t, "", "list")
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "jobq dev")
	_, stderr, code = invoke(t, "", "list", "--database-url", "postgres://postgres@127.0.0.1:1/nothing")
	require.Equal(t, exitError, code)
	require.Contains(t, stderr, "connection refused")
	userFile := filepath.Join(t.TempDir(), "jobq.yaml")
	require.NoError(t, os.WriteFile(userFile, []byte("kinds: {a: {command: x, user: no-such-user}}"), 0o600))
	for want, args := range map[string][]string{
		"nothing to run":  {"worker"},
		"KIND='COMMAND":   {"worker", "--run", "x"},
		"no-such-user":    {"worker", "--config", userFile},
		"must be like":    {"worker", "--run-http", "x=example.com"},
		"no such kind":    {"worker", "--run", "x=y", "--ends-itself", "z"},
		"must be sigkill": {"worker", "--run", "x=y", "--lock-lost", "thaw"},
		"quote":           {"worker", "--run", "x='"},
		"NAME=SLOTS":      {"worker", "--run", "x=y", "-q", "a=b"},
		"twice":           {"worker", "--run", "x=y", "--run", "x=z"},
		"--log-format":    {"worker", "--run", "x=y", "--log-format", "xml"},
		"schema name":     {"list", "--schema", `a"b`},
		"mode":            {"janitor", "--mode", "both"},
		"needs a command": {"dev", "--ephemeral"},
	} {
		_, stderr, code := invoke(t, "", append(args, "--database-url", "postgres://127.0.0.1:1/nothing")...)
		require.Equal(t, exitUsage, code, args)
		require.Contains(t, stderr, want, args)
	}
}

// dev --ephemeral runs a command on a fresh database and passes its exit code
// on.
func TestDevEphemeral(t *testing.T) {
	t.Parallel()
	out, stderr, code := invoke(t, "", "dev", "--ephemeral", "--", "sh", "-c", `echo "$DATABASE_URL"; exit 7`)
	require.Equal(t, 7, code, stderr)
	require.Contains(t, out, "postgres://")
	require.Empty(t, stderr)
}

// In dev --ephemeral, whatever jobq reads leads to the fresh database, and not
// to that of the one who runs it.
func TestDevEphemeralEnvironment(t *testing.T) {
	t.Parallel()
	p := startProcessWith(t, []string{"JOBQ_DATABASE_URL=postgres://outer", "JOBQ_SCHEMA=outer"},
		"dev", "--schema", "inner", "--ephemeral", "--", "sh", "-c", `test "$JOBQ_DATABASE_URL" = "$DATABASE_URL" && echo "$JOBQ_SCHEMA $JOBQ_DATABASE_URL"`)
	require.NoError(t, p.Wait())
	require.Contains(t, p.log.String(), "inner postgres://")
	require.NotContains(t, p.log.String(), "outer")
}

// What dev says to type wins over what is set already.
func TestDevExports(t *testing.T) { // not parallel: it is about the environment
	require.Equal(t, "  export DATABASE_URL='u'\n", exports("u"))
	t.Setenv("JOBQ_DATABASE_URL", "postgres://outer")
	require.Contains(t, exports("u"), "JOBQ_DATABASE_URL=\"$DATABASE_URL\"")
}

// A command that is only there for those below it refuses what is none of them.
func TestGroups(t *testing.T) {
	t.Parallel()
	groups := 0
	var walk func(command *cobra.Command)
	walk = func(command *cobra.Command) {
		if command.HasSubCommands() {
			groups++
			_, stderr, code := invoke(t, "", append(strings.Fields(command.CommandPath())[1:], "pasue", "email")...)
			require.Equal(t, exitUsage, code, command.CommandPath())
			require.Contains(t, stderr, "jobq: ", command.CommandPath())
		}
		for _, below := range command.Commands() {
			walk(below)
		}
	}
	walk(newRootCommand(&app{}))
	require.GreaterOrEqual(t, groups, 7)
	for _, name := range []string{"migrate", "bench", "job"} {
		out, _, code := invoke(t, "", name)
		require.Zero(t, code)
		require.Contains(t, out, "\nCommands:\n")
	}
}
