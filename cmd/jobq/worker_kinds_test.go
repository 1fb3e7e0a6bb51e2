package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

// A worker that starts makes the settings of kinds what its file says, and leaves those alone that it does not name. What
// is set is in the audit; what is so already is not set again. The timeout of the kind in this worker is another thing.
func TestKindsOfConfigFile(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	path := filepath.Join(t.TempDir(), "jobq.yaml")
	work := func(content string) (log string, code int) {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		_, log, code = invoke(t, "", "worker", "--database-url", url, "--config", path, "--queue", "none", "--exit-when-empty", "--janitor", "off")
		return log, code
	}
	for i, step := range []struct {
		settings, stored string
		audited          int
	}{
		{"{}", "", 0},
		{"{max_attempts: 3, queue: post}", "mail post 3", 1},
		{"{queue: post, max_attempts: 3}", "mail post 3", 1},
		{"{owner: team-mail}", "mail post 3 team-mail", 2},
		{"{}", "mail post 3 team-mail", 2},
		{"{timeout: 90s, max_attempts: 25, owner: none}", "mail post 00:01:30", 3},
		{"{timeout: 90s, max_attempts: 25, owner: none}", "mail post 00:01:30", 3},
	} {
		log, code := work("kinds: {mail: {command: \"true\", timeout: 7m, settings: " + step.settings + "}}\n")
		require.Zero(t, code, log)
		require.Equal(t, step.stored, query[string](t, pool, "select coalesce(string_agg(concat_ws(' ', name, queue, priority, max_attempts, timeout, owner), ', '), '') from jobq.kind_setting"), i)
		require.Equal(t, step.audited, query[int](t, pool, "select count(*)::integer from jobq.audit where action = 'kind_settings'"), i)
	}
	for content, want := range map[string]string{
		"kinds:\n  mail:\n    command: \"true\"\n    settings: {max_attempt: 3}\n":      "line 4: settings: max_attempt: not known: a kind has queue, priority, max_attempts",
		"kinds:\n  mail:\n    command: \"true\"\n    settings:\n      priority: x\n":    "line 5: settings: priority: must be a whole number",
		"kinds:\n  mail:\n    command: \"true\"\n    settings: {queue: [a]}\n":          "line 4: queue: must be a single value",
		"kinds:\n  mail:\n    command: \"true\"\n    settings: {max_attempts: 40000}\n": path + ": line 4: kinds: mail: settings: ",
		"kinds:\n  mail: {settings: {queue: post}}\n":                                   "one of command, stream and http must say what runs it",
	} {
		log, code := work(content)
		require.Equal(t, exitUsage, code, log)
		require.Contains(t, log, want)
	}
	require.Equal(t, 3, query[int](t, pool, "select count(*)::integer from jobq.audit"))
}

// A worker with the role of workers starts with a file whose settings are stored already; when something is to be set, the
// error says who can.
func TestKindsAsWorkerRole(t *testing.T) {
	t.Parallel()
	_, as := rolesServer(t)
	path := filepath.Join(t.TempDir(), "jobq.yaml")
	require.NoError(t, os.WriteFile(path, []byte("kinds: {mail: {command: \"true\", settings: {max_attempts: 3}}}"), 0o600))
	work := func() (string, int) {
		_, log, code := invoke(t, "", "worker", "--database-url", as("worker"), "--config", path, "--queue", "none", "--exit-when-empty", "--janitor", "off")
		return log, code
	}
	log, code := work()
	require.NotZero(t, code)
	require.Contains(t, log, `set it with "jobq kinds set", or leave settings out of the workers' file`)
	_, stderr, code := invoke(t, "", "kinds", "set", "mail", "max_attempts=3", "--database-url", as("admin"))
	require.Zero(t, code, stderr)
	log, code = work()
	require.Zero(t, code, log)
}
