package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/keyring"
	"github.com/jobq-dev/jobq/worker"
)

// keysFile is a file with a new key for each name.
func keysFile(t *testing.T, names ...string) string {
	t.Helper()
	var lines strings.Builder
	for _, name := range names {
		out, stderr, code := invoke(t, "", "keygen", name)
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
	id, _, _ := strings.Cut(command(exitOK, "enqueue", "greet", `{"name": "plain ann"}`, "--keys-file", keys), "\n")
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
	// A day later, so that no janitor moves it while the test looks, on however busy a machine.
	eventually(t, pool, 1, `with later as (
		update jobq.pending set run_at = statement_timestamp() + interval '1 day' where id = $1 and position is null returning id
	) select count(*)::integer from later`, number)
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

// show has results of steps as plain text only with the file of keys.
func TestShowEncryptedSteps(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	path := keysFile(t, "k1")
	ring, err := keyring.Load(path)
	require.NoError(t, err)
	client, err := jobq.NewClient(pool, &jobq.Config{Codec: ring})
	require.NoError(t, err)
	w, err := worker.New(client, &worker.Config{NoJanitor: true, Logger: slog.New(slog.DiscardHandler), Batch: worker.Batch{ExitWhenEmpty: true}})
	require.NoError(t, err)
	require.NoError(t, worker.HandleRaw(w, "greet", func(ctx context.Context, _ *worker.Job[jobq.RawArgs]) error {
		_, err := jobq.Step(ctx, "charge", func(context.Context) (string, error) { return "plain receipt", nil })
		return err
	}, nil))
	job, err := client.Enqueue(context.Background(), jobq.RawArgs{Name: "greet", JSON: []byte("{}")}, nil)
	require.NoError(t, err)
	require.NoError(t, w.Run(context.Background()))
	show := func(more ...string) string {
		out, stderr, code := invoke(t, "", append([]string{"show", strconv.FormatInt(job.ID, 10), "--database-url", url}, more...)...)
		require.Zero(t, code, stderr)
		return out + stderr
	}
	require.Regexp(t, `charge  done .*  encrypted with key k1`, show())
	require.NotContains(t, show("--json"), "plain receipt")
	require.Regexp(t, `charge  done .*  "plain receipt"`, show("--keys-file", path))
	require.Contains(t, show("--keys-file", path, "--json"), `"plain receipt"`)
	wrong := show("--keys-file", keysFile(t, "k9"))
	require.Contains(t, wrong, `warning: result of step "charge" cannot be decoded`)
	require.Regexp(t, `charge  done .*  encrypted with key k1`, wrong)
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

// An edit by filter, and one of an operator without keys, leaves encrypted args as they are; damaged args can be
// replaced, and args beside a damaged checkpoint edited.
func TestEditEncryptedMany(t *testing.T) {
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
	for range 2 {
		command(exitOK, "enqueue", "greet", `{"n": 1}`, "--keys-file", keys)
	}
	command(exitOK, "enqueue", "greet", `{"n": 1}`)
	said := command(exitOK, "edit", "--filter", "kind:greet", "--args", `{"n": 2}`, "--yes")
	require.Contains(t, said, "1 job, 2 refused")
	require.Contains(t, command(exitConflict, "edit", "1", "2", "--args", `{"n": 2}`), `its args are encrypted with key "k1", and the new ones are plain text`)
	require.Equal(t, "k1 k1 plain", query[string](t, pool, "select string_agg(coalesce(args ->> 'key', 'plain'), ' ' order by id) from jobq.job"))
	require.Equal(t, 2, query[int](t, pool, "select (args ->> 'n')::integer from jobq.job where id = 3"))

	_, err := pool.Exec(t.Context(), `update jobq.pending set checkpoint = '{"$jobq": "enc", "key": "k1", "v": "AAAA"}' where id = 1`)
	require.NoError(t, err)
	edit := func(id string) (*process, error) {
		p := startProcessWith(t, []string{"VISUAL=", "EDITOR=" + editor(t, `sed -i 's/"n": 1/"n": 5/' "$1"`), "TMPDIR=" + t.TempDir()},
			"edit", id, "--keys-file", keys, "--database-url", url)
		return p, p.Wait()
	}
	_, err = edit("1")
	require.NoError(t, err)
	require.Contains(t, command(exitOK, "show", "1", "--keys-file", keys), `{"n":5}`)

	_, err = pool.Exec(t.Context(), `update jobq.pending set args = '{"$jobq": "enc", "key": "k1", "v": "AAAA"}' where id = 2`)
	require.NoError(t, err)
	p, err := edit("2")
	require.Error(t, err)
	require.Contains(t, p.log.String(), "to replace them: jobq edit 2 --args JSON --keys-file FILE")
	command(exitOK, "edit", "2", "--args", `{"n": 6}`, "--keys-file", keys)
	require.Contains(t, command(exitOK, "show", "2", "--keys-file", keys), `{"n":6}`)
	require.Contains(t, command(exitUsage, "edit", "2", "--args", `"\u0000"`, "--keys-file", keys), "NUL")
}

// Keys that are given and empty are refused: values would be stored as plain text.
func TestEmptyKeys(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	_, stderr, code := invoke(t, "", "enqueue", "greet", "--keys-file", "", "--database-url", url)
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "--keys-file is empty")
	for _, empty := range []string{"JOBQ_KEYS=", "JOBQ_KEYS= \n"} {
		for _, args := range [][]string{{"enqueue", "greet"}, {"worker", "--run", "greet=cat"}, {"clone", "1", "--args", "{}"}} {
			p := startProcessWith(t, []string{empty}, append(args, "--database-url", url)...)
			require.Error(t, p.Wait())
			require.Equal(t, exitUsage, p.ProcessState.ExitCode(), p.log.String())
			require.Contains(t, p.log.String(), "JOBQ_KEYS: keyring: there are no keys; unset it to do without keys")
		}
	}
}

// The result that "jobq wait" and "enqueue --wait" print is plain text with keys, and as stored without. How
// the job has ended is known also with the wrong ones.
func TestWaitEncrypted(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	keys, others := keysFile(t, "k1"), keysFile(t, "k9")
	startProcess(t, "worker", "--database-url", url, "--run", `greet=sh -c 'echo "{\"result\": $(cat)}" >&3'`, "--keys-file", keys)
	out, stderr, code := invoke(t, "", "enqueue", "greet", `{"n":1}`, "--wait", "--keys-file", keys, "--database-url", url)
	require.Zero(t, code, stderr)
	require.Equal(t, "{\"n\":1}\n", out)
	out, stderr, code = invoke(t, "", "wait", "1", "--keys-file", keys, "--database-url", url)
	require.Zero(t, code, stderr)
	require.Equal(t, "{\"n\":1}\n", out)
	out, stderr, code = invoke(t, "", "wait", "1", "--database-url", url)
	require.Zero(t, code, stderr)
	require.Contains(t, out, `"key":"k1"`)
	require.Contains(t, stderr, `the result of job 1 is encrypted with key "k1"`)
	out, stderr, code = invoke(t, "", "wait", "1", "--keys-file", others, "--database-url", url)
	require.Equal(t, exitError, code)
	require.Empty(t, out)
	require.Contains(t, stderr, "result cannot be decoded")
	out, _, code = invoke(t, "", "wait", "1", "--json", "--keys-file", others, "--database-url", url)
	require.Equal(t, exitError, code)
	require.Contains(t, out, `"state":"completed"`)
}

// A new key is one line that a file of keys can have, different each time.
func TestKeysNew(t *testing.T) {
	t.Parallel()
	first, _, code := invoke(t, "", "keygen")
	require.Zero(t, code)
	second, _, _ := invoke(t, "", "keygen")
	require.Regexp(t, `^k\d{4}-\d{2}-\d{2}:[A-Za-z0-9+/]{43}=\n$`, first)
	require.NotEqual(t, first, second)
	_, stderr, code := invoke(t, "", "keygen", "a b")
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "the name of a key must be")
}
