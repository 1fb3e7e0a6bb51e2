package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

// The rate of the keys of a queue is set with its burst, shown, taken away and taken back; and what cannot be meant is refused.
func TestKeyRateCommands(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	command := func(want int, line string) string {
		t.Helper()
		out, stderr, code := invoke(t, "", append(strings.Fields(line), "--database-url", url)...)
		require.Equal(t, want, code, "%s: %s", line, stderr)
		return out + stderr
	}
	require.Contains(t, command(exitOK, "queues set mail key_rate=5/s key_rate_burst=2 rate=100/s"), "jobq undo 1")
	require.Regexp(t, `key_rate +5/s\nkey_rate_burst +2\n`, command(exitOK, "queues show mail"))
	require.Regexp(t, `mail .* rate=100/s key_rate=5/s key_rate_burst=2`, command(exitOK, "queues list"))
	require.Contains(t, command(exitOK, "queues show mail --json"), `"key_rate": {`)
	require.Contains(t, command(exitOK, "queues set mail key_rate=none"), "jobq undo 2")
	require.Regexp(t, `key_rate +none\n`, command(exitOK, "queues show mail"))
	require.Regexp(t, `\nrate +100/s\nburst +10\n`, command(exitOK, "queues show mail"), "the queue's own stays")
	command(exitOK, "undo 2")
	require.Regexp(t, `key_rate +5/s\nkey_rate_burst +2\n`, command(exitOK, "queues show mail"))
	require.Contains(t, command(exitOK, "audit"), "key_rate")
	command(exitOK, "queues set mail key_rate=10/30s")
	require.Regexp(t, `key_rate +10/30s\nkey_rate_burst +1\n`, command(exitOK, "queues show mail"), "with the burst of its own")
	require.Contains(t, command(exitUsage, "queues set mail key_rate_burst=2"), "key_rate_burst: needs a key_rate beside it")
	require.Contains(t, command(exitUsage, "queues set mail key_rate=5/s key_rate_burst=0"), `key_rate_burst: must be a number of at least 1, not "0"`)
	require.Contains(t, command(exitUsage, "queues set mail key_rate=5"), "key_rate: must be like 100/s")
	require.Contains(t, command(exitUsage, "queues set mail key_rate=2000000/s"), "key_rate_jobs must be 1 to 1000000")
}

// What ends the groups of a queue's keys is set, shown, taken away and taken back; and what cannot be meant is refused.
func TestKeySeparatorCommands(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	command := func(want int, line ...string) string {
		t.Helper()
		out, stderr, code := invoke(t, "", append(line, "--database-url", url)...)
		require.Equal(t, want, code, "%s: %s", line, stderr)
		return out + stderr
	}
	set := func(want int, flags ...string) string {
		t.Helper()
		return command(want, append([]string{"queues", "set", "exports"}, flags...)...)
	}
	require.Contains(t, set(exitOK, "key_separator=/"), "jobq undo 1")
	require.Contains(t, set(exitOK, "key_separator=/"), "is already set")
	require.Regexp(t, `key_separator +/\n`, command(exitOK, "queues", "show", "exports"))
	require.Regexp(t, `exports .* key_separator=/`, command(exitOK, "queues", "list"))
	require.Contains(t, command(exitOK, "queues", "show", "exports", "--json"), `"key_separator": "/"`)
	require.Contains(t, set(exitOK, "key_separator=none"), "jobq undo 2")
	require.Regexp(t, `key_separator +none\n`, command(exitOK, "queues", "show", "exports"))
	require.NotContains(t, command(exitOK, "queues", "list", "--json"), "key_separator")
	require.Contains(t, command(exitOK, "audit", "--json"), "key_separator")
	command(exitOK, "undo", "2")
	require.Regexp(t, `key_separator +/\n`, command(exitOK, "queues", "show", "exports"))
	require.Contains(t, set(exitOK, "key_separator=::", "key_limit=2"), "jobq undo 5")
	require.Regexp(t, `exports .* key_limit=2 key_separator=::`, command(exitOK, "queues", "list"))
	require.Contains(t, set(exitUsage, "key_separator="), "key_separator: must be 1 to 8 characters, or none")
	require.Contains(t, set(exitUsage, "key_separator=123456789"), "key_separator: must be 1 to 8 characters, or none")
	require.Regexp(t, `key_separator +::\n`, command(exitOK, "queues", "show", "exports"), "what is refused changes nothing")
}

// Jobs are given a partition key, shown with it and found by it; and the limit of the keys of
// a queue is set, shown, taken away and taken back.
func TestPartitionKeyCommands(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	command := func(want int, line string) string {
		t.Helper()
		out, stderr, code := invoke(t, "", append(strings.Fields(line), "--database-url", url)...)
		require.Equal(t, want, code, "%s: %s", line, stderr)
		return out + stderr
	}
	command(exitOK, "enqueue export --partition-key customer-17")
	command(exitOK, "enqueue export")
	_, stderr, code := invoke(t, `{"kind": "export", "partition_key": "customer-18"}`, "enqueue", "--ndjson", "--database-url", url)
	require.Equal(t, exitOK, code, stderr)
	_, stderr, code = invoke(t, `{"kind": "export", "partition_key": ""}`, "enqueue", "--ndjson", "--database-url", url)
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "partition_key must be 1 to 255 characters")
	require.Regexp(t, `partition key +customer-17\n`, command(exitOK, "show 1"))
	require.NotContains(t, command(exitOK, "show 2"), "partition key")
	require.Equal(t, "1\n", command(exitOK, "list partition:customer-17 -o id"))
	require.Equal(t, "3\n1\n", command(exitOK, "list partition:customer-* -o id"))
	require.Equal(t, "2\n", command(exitOK, "list -o id -partition:customer-*"))

	require.Contains(t, command(exitOK, "queues set default key_limit=2"), "jobq undo 1")
	require.Regexp(t, `key_limit +2\n`, command(exitOK, "queues show default"))
	require.Regexp(t, `default .* key_limit=2`, command(exitOK, "queues list"))
	require.Contains(t, command(exitOK, "queues set default key_limit=none"), "jobq undo 2")
	require.Regexp(t, `key_limit +none\n`, command(exitOK, "queues show default"))
	command(exitOK, "undo 2")
	require.Contains(t, command(exitOK, "queues show default --json"), `"key_limit": 2`)
	require.Contains(t, command(exitUsage, "queues set default key_limit=0"), `key_limit: must be a number of at least 1, or none, not "0"`)

	require.Contains(t, command(exitUsage, "queues set default key_order=hold"), "key_order needs key_limit 1")
	require.Contains(t, command(exitOK, "queues set default key_order=hold key_limit=1"), "jobq undo 5")
	require.Regexp(t, `key_order +hold\n`, command(exitOK, "queues show default"))
	require.Regexp(t, `default .* key_limit=1 key_order=hold`, command(exitOK, "queues list"))
	require.Contains(t, command(exitUsage, "queues set default key_limit=none"), "key_order needs key_limit 1")
	require.Contains(t, command(exitUsage, "queues set default key_order=strict"), `key_order: must be hold, pass, stop or none, not "strict"`)
	command(exitOK, "queues set default key_order=none key_limit=none")
	require.Regexp(t, `key_order +none\n`, command(exitOK, "queues show default"))
	command(exitOK, "undo 6")
	require.Contains(t, command(exitOK, "queues show default --json"), `"key_order": "hold"`)
	require.Contains(t, command(exitUsage, "queues set default key_limit=10001"), "key_limit must be 1 to 10000")
}
