package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

// keysFile is a file with a new key for each name.
func keysFile(t *testing.T, names ...string) string {
	t.Helper()
	var lines strings.Builder
	for _, name := range names {
		out, stderr, code := invoke(t, "", "keys", "new", name)
		require.Zero(t, code, stderr)
		lines.WriteString(out)
	}
	path := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.WriteFile(path, []byte(lines.String()), 0o600))
	return path
}

// From the command line alone: jobs are added encrypted, a worker without the key gives them back
// and says why, one with it runs its program with plain args, and show has plain text only with the file of keys.
func TestEncryptedJobs(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	command := func(want int, args ...string) string {
		t.Helper()
		out, stderr, code := invoke(t, "", append(args, "--database-url", url)...)
		require.Equal(t, want, code, stderr)
		return out + stderr
	}
	keys, others := keysFile(t, "k2", "k1"), keysFile(t, "k9")
	id := strings.TrimSpace(command(exitOK, "enqueue", "greet", `{"name": "plain ann"}`, "--keys-file", keys))
	number, err := strconv.ParseInt(id, 10, 64)
	require.NoError(t, err)
	for _, list := range [][]string{{"show", id}, {"list"}, {"list", "--json"}, {"show", id, "--json"}} {
		require.NotContains(t, command(exitOK, list...), "plain ann")
	}
	require.Contains(t, command(exitOK, "show", id), "args         encrypted with key k2\n")
	require.Contains(t, command(exitOK, "show", id, "--keys-file", keys), `args         {"name":"plain ann"}`)
	wrong := command(exitOK, "show", id, "--keys-file", others)
	require.Contains(t, wrong, "encrypted with key k2\n")
	require.Contains(t, wrong, "it is none of the keys here, which are k9")
	require.Contains(t, command(exitUsage, "show", id, "--keys-file", "/does/not/exist"), "--keys-file: keyring: open")

	blind := startProcess(t, "worker", "--database-url", url, "--run", "greet=cat", "--keys-file", others)
	eventually(t, pool, "scheduled", "select state::text from jobq.job where id = $1", number)
	blind.awaitLog(t, "job cannot be decoded, it goes back without using an attempt")
	require.NoError(t, blind.Process.Signal(os.Interrupt))
	require.NoError(t, blind.Wait())
	why := command(exitOK, "why", id)
	require.Contains(t, why, `encrypted with key "k2": it is none of the keys here, which are k9`)
	require.Contains(t, why, "jobq worker --keys-file")
	require.Contains(t, command(exitOK, "list", `err:"none of the keys" state:scheduled`), "greet")
	require.Contains(t, command(exitOK, "show", id), "run 1  unreadable after")

	config := filepath.Join(t.TempDir(), "jobq.yaml")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, "codec: {keys_file: %q}\nkinds: {greet: {command: [sh, -c, 'echo \"{\\\"result\\\": $(cat)}\" >&3']}}\n", keys), 0o600))
	startProcess(t, "worker", "--database-url", url, "--config", config)
	command(exitOK, "requeue", "--filter", `state:scheduled err:"cannot be decoded"`, "--yes") // as docs/encryption.md says
	eventually(t, pool, "completed", "select state::text from jobq.job where id = $1", number)
	require.Zero(t, query[int](t, pool, "select attempts from jobq.job where id = $1", number))
	require.NotContains(t, query[string](t, pool, "select result::text from jobq.job where id = $1", number), "plain")
	require.Contains(t, command(exitOK, "show", id, "--keys-file", keys), `result       {"name":"plain ann"}`)

	content, err := os.ReadFile(keys)
	require.NoError(t, err)
	environment := startProcessWith(t, []string{"JOBQ_KEYS=" + string(content)}, "enqueue", "greet", `{"name": "plain bob"}`, "--database-url", url)
	require.NoError(t, environment.Wait())
	eventually(t, pool, 2, "select count(*)::integer from jobq.job where state = 'completed' and args ->> 'key' = 'k2'")
}

// Args that replace encrypted ones are encrypted as well, or refused; a clone needs no key.
func TestEditEncrypted(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	command := func(want int, args ...string) string {
		t.Helper()
		out, stderr, code := invoke(t, "", append(args, "--database-url", url)...)
		require.Equal(t, want, code, stderr)
		return out + stderr
	}
	keys := keysFile(t, "k1")
	command(exitOK, "enqueue", "greet", `{"n": 1}`, "--keys-file", keys)
	plain := func(id int) string { return command(exitOK, "show", strconv.Itoa(id), "--keys-file", keys) }
	key := func(id int) string {
		return query[string](t, pool, "select coalesce(args ->> 'key', 'plain') from jobq.job where id = $1", id)
	}
	for _, name := range []string{"edit", "clone"} {
		require.Contains(t, command(exitUsage, name, "1", "--args", `{"n": 2}`), `encrypted with key "k1", and new ones would be plain text: give --keys-file`)
	}
	command(exitOK, "edit", "1", "--args", `{"n": 2}`, "--keys-file", keys)
	require.Equal(t, "k1", key(1))
	require.Contains(t, plain(1), `{"n":2}`)
	command(exitOK, "clone", "1")
	require.Contains(t, plain(2), `{"n":2}`)
	command(exitOK, "clone", "1", "--args", `{"n": 3}`, "--keys-file", keys)
	require.Equal(t, "k1", key(3))
	require.Contains(t, plain(3), `{"n":3}`)
	require.Contains(t, command(exitUsage, "edit", "1", "2", "--args", `{"n": 4}`, "--keys-file", keys), "one job at a time")
	command(exitOK, "edit", "1", "--priority", "3")
	require.Equal(t, "k1", key(1))

	edit := startProcessWith(t, []string{"VISUAL=", "EDITOR=" + editor(t, `sed -i 's/"n": 2/"n": 5/' "$1"`), "TMPDIR=" + t.TempDir()},
		"edit", "1", "--keys-file", keys, "--database-url", url)
	require.NoError(t, edit.Wait())
	require.Equal(t, "k1", key(1))
	require.Contains(t, plain(1), `{"n":5}`)
}

// A new key is one line that a file of keys can have, different each time.
func TestKeysNew(t *testing.T) {
	t.Parallel()
	first, _, code := invoke(t, "", "keys", "new")
	require.Zero(t, code)
	second, _, _ := invoke(t, "", "keys", "new")
	require.Regexp(t, `^k\d{4}-\d{2}-\d{2}:[A-Za-z0-9+/]{43}=\n$`, first)
	require.NotEqual(t, first, second)
	_, stderr, code := invoke(t, "", "keys", "new", "a b")
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "the name of a key must be")
}
