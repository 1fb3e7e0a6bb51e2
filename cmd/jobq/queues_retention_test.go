package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

// How long finished jobs are kept is set for a queue and for failed jobs of all queues; what would delete jobs needs --yes, and
// undo puts the old value back.
func TestQueuesSetRetention(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	command := func(want int, args ...string) string {
		t.Helper()
		out, stderr, code := invoke(t, "", append(args, "--database-url", url)...)
		require.Equal(t, want, code, stderr)
		return out + stderr
	}
	set := func(want int, args ...string) string {
		return command(want, append([]string{"queues", "set", "audit"}, args...)...)
	}
	shows := func(text string) {
		t.Helper()
		require.Regexp(t, `ended jobs kept +`+text+`\n`, command(exitOK, "queues", "show", "audit"))
	}
	require.Contains(t, set(exitOK, "retention=90d", "failed_retention=365d"), "jobq undo 1")
	shows("90d, failed and cancelled ones 365d")
	require.Contains(t, command(exitOK, "queues", "show", "audit", "--json"), `"retention_ns": 7776000000000000`)
	require.Contains(t, set(exitUsage, "retention=none"),
		"are kept for 90d now, and failed ones for 365d; with this, those that have ended longer than 7d and 365d ago are deleted within minutes, and no undo brings them back: add --yes")
	require.Contains(t, set(exitUsage, "retention=0s"), `retention: must be a duration such as 90s, 10m or 2d, or none, not "0s"`)
	require.Contains(t, set(exitUsage, "retention=1h", "--yes"), "retention must be 1 day to 10 years")
	require.Contains(t, set(exitUsage, "retention=90"), `retention: must be a duration such as 90s, 10m or 2d, or none, not "90"`)
	set(exitOK, "retention=none", "failed_retention=none", "--yes")
	shows("7d, as in all queues: jobq settings")
	require.Equal(t, "action 2 undone\n", command(exitOK, "undo", "2"))
	shows("90d, failed and cancelled ones 365d")
	set(exitOK, "retention=none", "failed_retention=none", "--yes")

	require.Equal(t, "failed_retention is 30d, and was none; take it back with: jobq undo 6\n", command(exitOK, "settings", "set", "failed_retention", "30d"))
	shows("7d, failed and cancelled ones 30d, as in all queues: jobq settings")
	require.Contains(t, command(exitUsage, "settings", "set", "failed_retention", "none"), "add --yes")
	require.Contains(t, command(exitOK, "settings", "set", "failed_retention", "none", "--yes"), "failed_retention is none, and was 30d")
}
