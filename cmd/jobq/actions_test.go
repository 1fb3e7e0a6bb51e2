package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// The exit code follows from the code that the database gave, and never from
// words, which are for people and can quote a producer.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	for code, want := range map[jobq.Code]int{
		jobq.CodeInvalid: exitUsage, jobq.CodeNotFound: exitNotFound, jobq.CodeConflict: exitConflict, jobq.CodeDuplicate: exitConflict, "JQ999": exitError,
	} {
		for _, problem := range []string{"no such job", "unique", "unknown command", "anything"} {
			require.Equal(t, want, exitCode(problemError("requeue", jobq.ActedJob{ID: 7, Problem: problem, Code: code})), code)
		}
	}
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	held := query[int64](t, pool, "select jobq.enqueue('a', unique_key => 'k')")
	query[string](t, pool, "select jobq.cancel($1)::text", held)
	query[int64](t, pool, "select jobq.enqueue('a', unique_key => 'k')")
	_, err := pool.Exec(context.Background(), `insert into jobq.running (id, lease_token, lease_expires_at, started_at, run_at, created_at,
		priority, attempts, max_attempts, crashes, args_apart, queue, kind, lease_owner) values (77, 1, now(), now(), now(), now(), 0, 0, 1, 0, false, 'q', 'k', 'w')`)
	require.NoError(t, err)
	for line, want := range map[string]int{
		"requeue 99": exitNotFound, "cancel 99": exitNotFound, "delete 99": exitNotFound, "edit 99 --priority 1": exitNotFound, "edit 99": exitNotFound,
		"clone 99": exitNotFound, "show 99": exitNotFound, "logs 99": exitNotFound, "undo 99": exitNotFound, "audit resume 99": exitNotFound,
		"workers drain nobody": exitNotFound, "requeue 1": exitConflict, "requeue 77": exitConflict, "delete 77": exitConflict,
		"edit 77 --priority 1": exitConflict, "requeue 1 --json": exitConflict, "nonsense": exitUsage, "requeue x": exitUsage,
	} {
		out, stderr, code := invoke(t, "", append(strings.Fields(line), "--database-url", url)...)
		require.Equal(t, want, code, "%s: %s", line, stderr)
		if strings.HasSuffix(line, "--json") {
			var acted jobq.Acted
			require.NoError(t, json.Unmarshal([]byte(out), &acted))
			require.Equal(t, jobq.CodeDuplicate, acted.Jobs[0].Code)
		}
	}
}
