package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// What --rate takes is read, and written again in the same words.
func TestQueueRates(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]jobq.Rate{
		"100/s":  {Jobs: 100, Period: time.Second},
		"5/m":    {Jobs: 5, Period: time.Minute},
		"1000/h": {Jobs: 1000, Period: time.Hour},
		"10/30s": {Jobs: 10, Period: 30 * time.Second},
	} {
		rate, err := parseQueueRate("rate", text)
		require.NoError(t, err, text)
		require.Equal(t, want, rate, text)
		require.Equal(t, text, format.QueueRate(&rate))
	}
	for _, text := range []string{"", "100", "/s", "100/", "-1/s", "0/s", "1.5/s", "100/second/s", "1/-1s"} {
		_, err := parseQueueRate("rate", text)
		require.ErrorContains(t, err, "--rate must be like", text)
	}
}

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
	require.Contains(t, command(exitOK, "queues set mail --key-rate 5/s --key-rate-burst 2 --rate 100/s"), "jobq undo 1")
	require.Regexp(t, `key rate +5/s of each partition key, burst 2\n`, command(exitOK, "queues show mail"))
	require.Regexp(t, `mail .* 5/s a key, 100/s`, command(exitOK, "queues list"))
	require.Contains(t, command(exitOK, "queues show mail --json"), `"key_rate": {`)
	require.Contains(t, command(exitOK, "queues set mail --no-key-rate"), "jobq undo 2")
	require.Regexp(t, `key rate +none\n`, command(exitOK, "queues show mail"))
	require.Regexp(t, `rate +100/s, burst 10;`, command(exitOK, "queues show mail"), "the queue's own stays")
	command(exitOK, "undo 2")
	require.Regexp(t, `key rate +5/s of each partition key, burst 2\n`, command(exitOK, "queues show mail"))
	require.Contains(t, command(exitOK, "audit"), "key_rate")
	command(exitOK, "queues set mail --key-rate 10/30s")
	require.Regexp(t, `key rate +10/30s of each partition key, burst 1\n`, command(exitOK, "queues show mail"), "with the burst of its own")
	require.Contains(t, command(exitUsage, "queues set mail --key-rate-burst 2"), "--key-rate-burst needs --key-rate")
	require.Contains(t, command(exitUsage, "queues set mail --key-rate 5/s --key-rate-burst 0"), "--key-rate-burst must be 1 or more")
	require.Contains(t, command(exitUsage, "queues set mail --key-rate 5"), "--key-rate must be like 100/s")
	require.Contains(t, command(exitUsage, "queues set mail --key-rate 2000000/s"), "key_rate_jobs must be 1 to 1000000")
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
	require.Contains(t, set(exitOK, "--key-separator", "/"), "jobq undo 1")
	require.Contains(t, set(exitOK, "--key-separator", "/"), "is set so already")
	require.Regexp(t, `key separator +groups of keys by '/'\n`, command(exitOK, "queues", "show", "exports"))
	require.Regexp(t, `exports .* groups of keys by '/'`, command(exitOK, "queues", "list"))
	require.Contains(t, command(exitOK, "queues", "show", "exports", "--json"), `"key_separator": "/"`)
	require.Contains(t, set(exitOK, "--no-key-separator"), "jobq undo 2")
	require.Regexp(t, `key separator +none\n`, command(exitOK, "queues", "show", "exports"))
	require.NotContains(t, command(exitOK, "queues", "list", "--json"), "key_separator")
	require.Contains(t, command(exitOK, "audit", "--json"), "key_separator")
	command(exitOK, "undo", "2")
	require.Regexp(t, `key separator +groups of keys by '/'\n`, command(exitOK, "queues", "show", "exports"))
	require.Contains(t, set(exitOK, "--key-separator", "::", "--key-limit", "2"), "jobq undo 5")
	require.Regexp(t, `exports .* 2 a key, groups of keys by '::'`, command(exitOK, "queues", "list"))
	require.Contains(t, set(exitUsage, "--key-separator", ""), "--key-separator is empty")
	require.Contains(t, set(exitUsage, "--key-separator", "123456789"), "key_separator must be 1 to 8 characters")
	require.Regexp(t, `key separator +groups of keys by '::'\n`, command(exitOK, "queues", "show", "exports"), "what is refused changes nothing")
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

	require.Contains(t, command(exitOK, "queues set default --key-limit 2"), "jobq undo 1")
	require.Regexp(t, `key limit +2 of each partition key\n`, command(exitOK, "queues show default"))
	require.Regexp(t, `default .* 2 a key`, command(exitOK, "queues list"))
	require.Contains(t, command(exitOK, "queues set default --no-key-limit"), "jobq undo 2")
	require.Regexp(t, `key limit +none\n`, command(exitOK, "queues show default"))
	command(exitOK, "undo 2")
	require.Contains(t, command(exitOK, "queues show default --json"), `"key_limit": 2`)
	require.Contains(t, command(exitUsage, "queues set default --key-limit 0"), "--no-key-limit takes it away")

	require.Contains(t, command(exitUsage, "queues set default --key-order hold"), "key_order needs key_limit 1")
	require.Contains(t, command(exitOK, "queues set default --key-order hold --key-limit 1"), "jobq undo 5")
	require.Regexp(t, `key order +hold\n`, command(exitOK, "queues show default"))
	require.Regexp(t, `default .* 1 a key, in order`, command(exitOK, "queues list"))
	require.Contains(t, command(exitUsage, "queues set default --no-key-limit"), "key_order needs key_limit 1")
	require.Contains(t, command(exitUsage, "queues set default --key-order strict"), "key_order must be hold, pass or stop")
	command(exitOK, "queues set default --no-key-order --no-key-limit")
	require.Regexp(t, `key order +none\n`, command(exitOK, "queues show default"))
	command(exitOK, "undo 6")
	require.Contains(t, command(exitOK, "queues show default --json"), `"key_order": "hold"`)
	require.Contains(t, command(exitUsage, "queues set default --key-limit 10001"), "key_limit must be 1 to 10000")
}
