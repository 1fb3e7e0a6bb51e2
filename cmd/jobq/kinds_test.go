package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/monitor"
)

// Kinds are listed, paused and resumed; a misspelt one is refused, unless it is said to
// be new.
func TestKindsCommand(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	command := func(want int, args ...string) string {
		t.Helper()
		out, stderr, code := invoke(t, "", append(append([]string{"kinds"}, args...), "--database-url", url)...)
		require.Equal(t, want, code, stderr)
		return out + stderr
	}
	query[int](t, pool, `with s as (insert into jobq.stat_delta (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
		values (date_trunc('minute', now()), 'q', 'Encode', 1200, 0, 0, 0, 0, 1, 0) returning 1) select count(*)::int from s`)
	require.Contains(t, command(exitNotFound, "pause", "Encdoe"), "did you mean Encode? (--new pauses a kind before its first job)")
	require.Contains(t, command(exitNotFound, "resume", "Encdoe"), "did you mean Encode?")
	require.Equal(t, "kind Encode is paused; take it back with: jobq undo 1\n", command(exitOK, "pause", "Encode", "--reason", "broken"))
	require.Equal(t, "kind Encode is already paused\n", command(exitOK, "pause", "Encode"))
	require.Equal(t, "kind Import is paused; take it back with: jobq undo 2\n", command(exitOK, "pause", "Import", "--new"))
	require.Regexp(t, `Encode +0 +0 +1,200 +0 +0 +0 +\d+m?s ago by .*: broken`, command(exitOK, "list"))
	var kinds []monitor.Kind
	require.NoError(t, json.Unmarshal([]byte(command(exitOK, "list", "--json")), &kinds))
	require.Len(t, kinds, 2)
	query[int64](t, pool, "select jobq.enqueue('Only waits')")
	require.Regexp(t, `Only waits +0 +1 +0 +0`, command(exitOK, "list"), "no worker has it, and no job of it has ended")
	require.JSONEq(t, `{"kind": "Encode", "audit_id": 3, "changed": true}`, command(exitOK, "resume", "Encode", "--json"))
	require.Equal(t, "kind Encode is already running\n", command(exitOK, "resume", "Encode"))
	out, stderr, code := invoke(t, "", "settings", "set", "quarantine_crashes", "3", "--database-url", url)
	require.Zero(t, code, stderr)
	require.Equal(t, "quarantine_crashes is 3, and was 5; take it back with: jobq undo 4\n", out)
	_, stderr, code = invoke(t, "", "settings", "set", "quarantine_crashes", "three", "--database-url", url)
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "must be a number from 0 to 1000")
}
