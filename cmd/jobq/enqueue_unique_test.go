package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

// The flags, and the member of a line, make unique keys, keep them, and say what is done when they are
// held, as the answers and the exit code do.
func TestEnqueueUnique(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	enqueue := func(input string, args ...string) (stdout, stderr string, code int) {
		return invoke(t, input, append([]string{"enqueue", "--database-url", url, "--json"}, args...)...)
	}
	for _, c := range []struct {
		input string
		args  []string
		want  string
	}{
		{"", []string{"sync", `{"id": 7, "at": 1}`, "--unique-by", "id,none", "--unique-window", "3000d"}, `{"id":1,"duplicate":false}`},
		{"", []string{"sync", `{"id": 7, "at": 2}`, "--unique-by", "id", "--unique-window", "3000d"}, `{"id":1,"duplicate":true}`},
		{"", []string{"sync", `{"id": 7, "at": 3}`, "--unique-by", "id", "--unique-window", "3000d", "--on-conflict", "replace", "--delay", "1h"}, `{"id":1,"duplicate":true,"replaced":true}`},
		{`{"kind": "sync", "args": {"id": 7, "at": 4}, "uniqueness": {"by": ["id"], "window": "3000d", "on_conflict": "replace"}}`, []string{"--ndjson"}, `{"id":1,"duplicate":true,"replaced":true}`},
		{`{"id": 8}`, []string{"sync", "-", "--unique-by", "*", "--unique-for", "2d"}, `{"id":5,"duplicate":false}`},
		{`{"kind": "sync", "args": {"id": 8}, "uniqueness": {"by": ["*"], "for": "2d"}}`, []string{"--ndjson"}, `{"id":5,"duplicate":true}`},
	} {
		stdout, stderr, code := enqueue(c.input+"\n", c.args...)
		require.Equal(t, 0, code, stderr)
		require.JSONEq(t, c.want, stdout, c.args)
	}
	var args string
	var kept int
	require.NoError(t, pool.QueryRow(context.Background(), "select (select args::text from jobq.pending where id = 1), count(*) from jobq.unique_key where kept_until > now()").Scan(&args, &kept))
	require.JSONEq(t, `{"id": 7, "at": 4}`, args)
	require.Equal(t, 2, kept)

	_, stderr, code := enqueue("", "sync", `{"id": 8}`, "--unique-by", "id", "--on-conflict", "fail")
	require.Equal(t, exitConflict, code)
	require.Contains(t, stderr, "unique key is held by another job: unique_key '{\"id\": 8}' of kind 'sync' is held by unfinished job 5")
	for want, flags := range map[string][]string{
		"--unique-by is empty":                {"--unique-by", ""},
		"args have none of the fields":        {"--unique-by", "idd"},
		"give unique_key or by, and not both": {"--unique-by", "id", "--unique-key", "x"},
		"give window or for, and not both":    {"--unique-by", "id", "--unique-for", "1h", "--unique-window", "3000d"},
		"uniqueness needs unique_key, or by":  {"--unique-for", "1h"},
		"must be skip, replace or fail":       {"--unique-by", "id", "--on-conflict", "raise"},
		"--unique-window must be":             {"--unique-by", "id", "--unique-window", "0s"},
	} {
		_, stderr, code := enqueue("", append([]string{"sync", `{"id": 9}`}, flags...)...)
		require.Equal(t, exitUsage, code, want)
		require.Contains(t, stderr, want)
	}
}
