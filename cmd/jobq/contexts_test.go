package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/internal/settings"
)

// writeSettings makes the file that the variable XDG_CONFIG_HOME leads to.
func writeSettings(t *testing.T, content string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(folder, "jobq"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "jobq", "config.yaml"), []byte(content), 0o600))
	return folder
}

// Contexts name databases for every command. Method: two databases with one
// job each, of different kinds, and all ways to say which is meant.
func TestContexts(t *testing.T) { // not parallel: it is about the environment
	here, there := pgtest.URL(t), pgtest.URL(t)
	for url, kind := range map[string]string{here: "near", there: "far"} {
		_, stderr, code := invoke(t, "", "enqueue", kind, "--database-url", url)
		require.Zero(t, code, stderr)
	}
	t.Setenv("XDG_CONFIG_HOME", writeSettings(t, fmt.Sprintf(`
contexts:
  here: {database_url: %q}
  there: {database_url: %q, read_only: true, color: red}
  secret: {database_url: "postgres://app:hunter2@db-1.example.com/app", schema: work}
`, here, there)))
	kind := func(args ...string) string {
		out, stderr, code := invoke(t, "", append([]string{"list", "-o", "csv"}, args...)...)
		require.Zero(t, code, stderr)
		if strings.Contains(out, ",near,") {
			return "near"
		}
		if strings.Contains(out, ",far,") {
			return "far"
		}
		return out
	}
	require.Equal(t, "near", kind("--context", "here"))
	require.Equal(t, "far", kind("--context", "there"))
	require.Equal(t, "near", kind("--context", "there", "--database-url", here), "a URL before a name")
	require.Equal(t, "near", kind("--context", "elsewhere", "--database-url", here), "only a name then")
	t.Setenv("JOBQ_CONTEXT", "there")
	require.Equal(t, "far", kind())
	t.Setenv("DATABASE_URL", here)
	require.Equal(t, "near", kind(), "a URL before a name")
	require.Equal(t, "far", kind("--context", "there"), "flags before the environment")

	_, stderr, code := invoke(t, "", "list", "--context", "prdo")
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, `no context "prdo"; there are here, secret, there`)
	_, stderr, code = invoke(t, "", "cancel", "1", "--context", "there")
	require.Equal(t, exitError, code)
	require.Contains(t, stderr, "read-only transaction")
	_, stderr, code = invoke(t, "", "cancel", "1", "--context", "there", "--database-url", here)
	require.Equal(t, exitError, code, "the context's manners hold")
	require.Contains(t, stderr, "read-only transaction")

	out, _, code := invoke(t, "", "contexts", "--json", "--context", "there")
	require.Zero(t, code)
	var infos []contextInfo
	require.NoError(t, json.Unmarshal([]byte(out), &infos))
	require.Len(t, infos, 3)
	require.Equal(t, contextInfo{Name: "secret", Database: "app@db-1.example.com:5432/app", Schema: "work", Confirm: "type"}, infos[1])
	require.True(t, infos[2].Current && infos[2].Production && infos[2].ReadOnly)
	require.Equal(t, "ask", infos[0].Confirm)
	require.NotContains(t, out, "hunter2")
	out, _, _ = invoke(t, "", "contexts")
	require.Contains(t, out, "secret")
	require.NotContains(t, out, "hunter2")

	t.Setenv("XDG_CONFIG_HOME", writeSettings(t, "keys: {requeue: D}"))
	_, stderr, code = invoke(t, "", "tui", "--print", "overview", "--database-url", here)
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, `"D" is requeue and delete`)
}

// The command lines that the UI offers lead to its database, and never show a
// URL. Method: what stands for one is refused.
func TestCommandFlags(t *testing.T) {
	t.Parallel()
	prod := settings.Context{DatabaseURL: "postgres://db-1/app", Schema: "work"}
	for name, test := range map[string]struct {
		url, context, schema string
		want                 string
	}{
		"environment":    {"", "", "", ""},
		"URL":            {"postgres://ana:hunter2@db-2/app", "", "", "--database-url URL"},
		"context":        {"", "prod", "", "--context prod"},
		"its schema not": {"", "prod", "jobq", "--context prod --schema jobq"},
		"schema":         {"", "", "other", "--schema other"},
		"a label":        {"postgres://ana:hunter2@db-2/app", "prod", "", "--database-url URL --context prod"},
	} {
		a := &app{databaseURL: test.url, schema: cmp.Or(test.schema, "jobq")}
		if test.context != "" {
			a.enter(test.context, prod, test.schema != "")
		}
		require.Equal(t, test.want, strings.Join(a.flags(), " "), name)
	}
	_, _, code := invoke(t, "", "cancel", "1", "--database-url", "URL")
	require.Equal(t, exitUsage, code)
}

// --confirm says how much is typed, whatever the context says, and changes
// nothing about how it looks.
func TestConfirmFlag(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		flag, context, host string
		settings            settings.Context
		production, typed   bool
	}{
		"local":               {"", "", "localhost", settings.Context{}, false, false},
		"local, type":         {"type", "", "localhost", settings.Context{}, false, true},
		"remote":              {"", "", "db-1", settings.Context{}, false, true},
		"remote, ask":         {"ask", "", "db-1", settings.Context{}, false, false},
		"production":          {"", "eu-prod", "localhost", settings.Context{}, true, true},
		"production, ask":     {"ask", "eu-prod", "db-1", settings.Context{}, true, false},
		"settings type, ask":  {"ask", "billing", "db-1", settings.Context{Confirm: "type"}, true, false},
		"settings ask, type":  {"type", "billing", "db-1", settings.Context{Confirm: "ask"}, false, true},
		"settings ask, again": {"ask", "billing", "db-1", settings.Context{Confirm: "ask"}, false, false},
	} {
		context := (&tuiFlags{confirm: test.flag}).context(test.context, test.settings, "", test.host)
		require.Equal(t, test.production, context.Production, name)
		require.Equal(t, test.typed, context.Confirm, name)
	}
}

// Plain mode needs no terminal. Method: a job that the input leads to.
func TestTUIPlain(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	id := makeFailed(t, url, "email", 1)[0]
	out, stderr, code := invoke(t, "/state:failed\n1\nopen\n", "tui", "--plain", "--database-url", url)
	require.Zero(t, code, stderr)
	require.Contains(t, out, fmt.Sprintf("1 of 1: %d email SendInvoice failed", id))
	require.Contains(t, out, "smtp 421 rate limited")
	require.NotContains(t, out, "\x1b")
}

// In the UI the picker goes to another database, and a production one looks it.
func TestTUIContexts(t *testing.T) {
	t.Parallel()
	here, there := pgtest.URL(t), pgtest.URL(t)
	makeFailed(t, there, "elsewhere", 1)
	folder := writeSettings(t, fmt.Sprintf(`
contexts:
  staging: {database_url: %q}
  billing: {database_url: %q, color: magenta, confirm: type}
keys: {requeue: Q}
`, here, there))
	term := openTerminal(t, 120, 35)
	term.text("export XDG_CONFIG_HOME=" + folder)
	term.keys("Enter")
	term.run("tui", "--context", "staging")
	term.await("no queues yet")
	term.text("@")
	term.await("production")
	term.text("1")
	term.await("jobq billing  local")
	term.await("PRODUCTION")
	term.await("elsewhere")
	term.await("● live")
	term.text("2")
	term.await("1-1 of 1")
	term.text("Q")
	term.await("y yes")
	term.keys("Escape")
	term.await("nothing was done")
	term.text(":ctx staging")
	term.keys("Enter")
	term.await("no queues yet")
	term.await("● live")
	term.keys("C-c")
	term.await("\nready>\n")
}

// A file that every user can write names programs to run, or databases to
// connect to: the one who uses it is warned.
func TestWritableByAll(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", folder) // not parallel: it is about the environment
	require.NoError(t, os.Mkdir(filepath.Join(folder, "jobq"), 0o700))
	settings, config := filepath.Join(folder, "jobq", "config.yaml"), filepath.Join(folder, "jobq.yaml")
	require.NoError(t, os.WriteFile(settings, []byte("contexts: {prod: {database_url: 'postgres://127.0.0.1:1/nothing'}}"), 0o600))
	require.NoError(t, os.WriteFile(config, []byte("kinds: {a: {command: x, user: no-such-user}}"), 0o600))
	for _, mode := range []os.FileMode{0o600, 0o664, 0o646} {
		require.NoError(t, os.Chmod(settings, mode))
		require.NoError(t, os.Chmod(config, mode))
		_, listed, code := invoke(t, "", "contexts")
		require.Zero(t, code, listed)
		_, worked, _ := invoke(t, "", "worker", "--config", config, "--context", "prod")
		if mode&0o002 == 0 {
			require.NotContains(t, listed+worked, "every user")
			continue
		}
		require.Contains(t, listed, "warning: every user of this machine can change "+settings)
		require.Contains(t, worked, `level=WARN msg="every user of this machine can change the config file`)
		require.Contains(t, worked, settings)
	}
}
