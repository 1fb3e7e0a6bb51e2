package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/monitor"
)

// The keys of a queue are listed in pages and in orders, as a table and as JSON; a queue that nobody
// knows is told from one without keys.
func TestQueuesKeys(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	command := func(want int, line string) (out, notes string) {
		t.Helper()
		out, notes, code := invoke(t, "", append(strings.Fields(line), "--database-url", url)...)
		require.Equal(t, want, code, "%s: %s", line, notes)
		return out, notes
	}
	_, notes := command(exitNotFound, "queues keys default")
	require.Contains(t, notes, `no queue "default" is known`)
	command(exitOK, "enqueue export")
	out, notes := command(exitOK, "queues keys default")
	require.Empty(t, out)
	require.Equal(t, "no such key has a job that is available or runs, or is paused or has a weight\n", notes)
	for _, key := range []string{"a", "b", "b", "b", "c", "c"} {
		command(exitOK, "enqueue export --partition-key "+key)
	}
	_, err := pool.Exec(context.Background(), "update jobq.pending set run_at = now() - interval '90 minutes', created_at = now() - interval '90 minutes' where partition_key = 'c'")
	require.NoError(t, err)

	out, notes = command(exitOK, "queues keys default")
	require.Empty(t, notes)
	require.Regexp(t, `^KEY +STATE +AVAILABLE +RUNNING +OLDEST +WEIGHT +WAITS FOR +PAUSED\na +ready +1 +0 +\w+ +\nb +ready +3 +0 +\w+ +\nc +ready +2 +0 +1h +\n$`, out)
	out, notes = command(exitOK, "queues keys default --limit 2")
	require.NotContains(t, out, "c ")
	require.Equal(t, "2 keys looked at; those behind them: jobq queues keys default --after b\n", notes)
	_, notes = command(exitOK, "queues keys default --limit 2 --sort running")
	require.Equal(t, "1 key more: --limit shows more\n", notes)
	listed := func(line string) (keys []string) {
		out, _ := command(exitOK, line)
		var page monitor.Keys
		require.NoError(t, json.Unmarshal([]byte(out), &page))
		for _, key := range page.Keys {
			keys = append(keys, key.Key)
		}
		return keys
	}
	require.Equal(t, []string{"c"}, listed("queues keys default --after b --json"))
	require.Equal(t, []string{"b", "c", "a"}, listed("queues keys default --sort available --json"))
	require.Equal(t, []string{"c", "a"}, listed("queues keys default --sort oldest --limit 2 --json"))

	command(exitOK, "queues set default key_limit=1 key_order=stop")
	_, err = pool.Exec(context.Background(), `
		with held as (update jobq.pending set position = null, run_at = now() + interval '90 minutes', attempts = 1 where id = 2)
		insert into jobq.lane_head (queue, key, job_id, lease_id) values ('default', 'a', 2, 1)`)
	require.NoError(t, err)
	command(exitOK, "enqueue export --partition-key a")
	out, _ = command(exitOK, "queues keys default --limit 1")
	require.Regexp(t, `\na +held +1 +0 +\w+ +job 2 waits for its retry in 1h +\n$`, out)

	_, notes = command(exitUsage, "queues keys default --sort size")
	require.Contains(t, notes, `--sort must be key, available, running or oldest, not "size"`)
	_, notes = command(exitUsage, "queues keys default --limit 0")
	require.Contains(t, notes, "--limit must be 1 to 1000, not 0")
}

// A partition key is paused and resumed beside the queue, in words and as JSON; a queue that nobody knows, and an empty key, are
// refused.
func TestQueuesPauseOfAKey(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	command := func(want int, args ...string) (out string) {
		t.Helper()
		out, notes, code := invoke(t, "", append(append([]string{"queues"}, args...), "--database-url", url)...)
		require.Equal(t, want, code, "%s: %s", args, notes)
		return out + notes
	}
	require.Contains(t, command(exitNotFound, "pause", "email", "--key", "a"), `no queue "email" is known`)
	require.Contains(t, command(exitNotFound, "resume", "email", "--key", "a"), `no queue "email" is known`)
	pool := pgtest.Connect(t, url)
	query[int64](t, pool, "select jobq.enqueue('a', queue => 'email', partition_key => 'a b')")
	require.Equal(t, "key a b of queue email is paused; take it back with: jobq undo 1\n", command(exitOK, "pause", "email", "--key", "a b", "--reason", "too loud"))
	require.Equal(t, "key a b of queue email is already paused\n", command(exitOK, "pause", "email", "--key", "a b"))
	require.Equal(t, "key c of queue email is paused; no job of it is available; take it back with: jobq undo 2\n", command(exitOK, "pause", "email", "--key", "c"))
	require.Regexp(t, `\na b +paused +1 +0 +\w+ +\w+ ago by .+: too loud\nc +paused +0 +0 +- +\w+ ago by .+\n$`, command(exitOK, "keys", "email"))
	require.Regexp(t, `paused +no\n`, command(exitOK, "show", "email"))
	require.Equal(t, "key c of queue email is running; no job of it is available; take it back with: jobq undo 3\n", command(exitOK, "resume", "email", "--key", "c"))
	require.Equal(t, "key c of queue email is already running; no job of it is available\n", command(exitOK, "resume", "email", "--key", "c"))
	require.JSONEq(t, `{"queue": "email", "key": "a b", "audit_id": 4, "changed": true, "has_jobs": true}`, command(exitOK, "resume", "email", "--key", "a b", "--json"))
	require.JSONEq(t, `{"queue": "email", "key": "a b", "changed": false, "has_jobs": true}`, command(exitOK, "resume", "email", "--key", "a b", "--json"))
	require.JSONEq(t, `{"queue": "email", "audit_id": 5, "changed": true}`, command(exitOK, "pause", "email", "--json"))
	require.JSONEq(t, `{"queue": "email", "audit_id": 6, "changed": true}`, command(exitOK, "resume", "email", "--json"))
	require.JSONEq(t, `{"queue": "new", "key": "a", "audit_id": 7, "changed": true, "has_jobs": false}`, command(exitOK, "pause", "new", "--new", "--key", "a", "--json"))
	for _, verb := range []string{"pause", "resume"} {
		require.Contains(t, command(exitUsage, verb, "email", "--key", ""), "--key is empty")
	}
}

// A partition key gets a weight, which is listed; what cannot be meant is refused, with what to do instead.
func TestQueuesSetKeyWeight(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	command := func(want int, args ...string) (out string) {
		t.Helper()
		out, notes, code := invoke(t, "", append(args, "--database-url", url)...)
		require.Equal(t, want, code, "%s: %s", args, notes)
		return out + notes
	}
	set := func(want int, args ...string) string {
		return command(want, append([]string{"queues", "set", "email"}, args...)...)
	}
	require.Contains(t, set(exitOK, "--key", "c", "weight=2"),
		"key c of queue email is of weight 2; no job of it is available; take it back with: jobq undo 1\nnote: before this, ")
	pool := pgtest.Connect(t, url)
	query[int64](t, pool, "select jobq.enqueue('a', queue => 'email', partition_key => 'a b')")
	require.Equal(t, "key a b of queue email is of weight 3; take it back with: jobq undo 2\n", set(exitOK, "--key", "a b", "weight=3"))
	require.Equal(t, "key a b of queue email is already of weight 3\n", set(exitOK, "--key", "a b", "weight=3"))
	require.Regexp(t, `\na b +ready +1 +0 +\w+ +3 +\nc +idle +0 +0 +- +2 +\n$`, command(exitOK, "queues", "keys", "email"))
	require.Regexp(t, `key_weight +0 +0 +email \{"weight":3,"partition_key":"a b"\}`, command(exitOK, "audit"))
	command(exitOK, "undo", "2")
	require.Contains(t, command(exitOK, "queues", "keys", "email", "--json"), `"weight": 1`)
	set(exitOK, "--key", "c", "weight=1")
	require.NotContains(t, command(exitOK, "queues", "keys", "email"), "c ")
	require.Contains(t, set(exitUsage, "--key", "c", "weight=0"), `weight must be 1 to 100, not "0"; "jobq queues pause email --key" stops the key`)
	require.Contains(t, set(exitUsage, "--key", "c", "weight=101"), `weight must be 1 to 100, not "101"`)
	require.Contains(t, set(exitUsage, "--key", "", "weight=2"), "--key is empty")
	require.Contains(t, set(exitUsage, "weight=2"), "weight needs --key")
	require.Contains(t, set(exitUsage, "--key", "c"), "an argument is missing")
	require.Contains(t, set(exitUsage, "--key", "c", "weight=2", "limit=3"), "limit is about the whole queue: set it in a command of its own, without --key")
}
