package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

// The settings are shown and changed, each with its old value in the audit; what
// would delete jobs needs --yes.
func TestSettingsCommand(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	command := func(want int, args ...string) string {
		t.Helper()
		out, stderr, code := invoke(t, "", append(args, "--database-url", url)...)
		require.Equal(t, want, code, stderr)
		return out + stderr
	}
	require.Regexp(t, `finished_retention +7d +how long jobs are kept`, command(exitOK, "settings"))
	require.Equal(t, "finished_retention is 30d, and was 7d; take it back with: jobq undo 1\n", command(exitOK, "settings", "set", "finished_retention", "30d"))
	require.Equal(t, "finished_retention is 30d already\n", command(exitOK, "settings", "set", "finished_retention", "720h"))
	require.Contains(t, command(exitUsage, "settings", "set", "finished_retention", "2d"), "add --yes")
	require.Contains(t, command(exitUsage, "settings", "set", "finished_retention", "2"), "2 has no unit: write 2s")
	require.Contains(t, command(exitUsage, "settings", "set", "finished_retention", "23h", "--yes"), "finished_retention must be 1 day to 10 years")
	require.Contains(t, command(exitUsage, "settings", "set", "finished_retention", "4000d"), "finished_retention must be 1 day to 10 years")
	require.Contains(t, command(exitUsage, "settings", "finished_retentoin"), "did you mean finished_retention?")
	var stored struct {
		AuditID           int64         `json:"audit_id"`
		FinishedRetention time.Duration `json:"finished_retention_ns"`
	}
	require.NoError(t, json.Unmarshal([]byte(command(exitOK, "settings", "set", "finished_retention", "36h", "--yes", "--json")), &stored))
	require.Equal(t, int64(2), stored.AuditID)
	require.Equal(t, 36*time.Hour, stored.FinishedRetention)
	require.NoError(t, json.Unmarshal([]byte(command(exitOK, "settings", "--json")), &stored))
	require.Equal(t, 36*time.Hour, stored.FinishedRetention)
	require.Equal(t, "action 2 undone\n", command(exitOK, "undo", "2"))
	require.Contains(t, command(exitOK, "settings", "finished_retention"), " 30d ")
}
