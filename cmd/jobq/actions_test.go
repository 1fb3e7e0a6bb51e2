package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/operator"
)

// The exit code follows from the code that the database gave, and never from
// words, which are for people and can quote a producer.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	for code, want := range map[operator.Code]int{
		operator.CodeInvalid: exitUsage, operator.CodeNotFound: exitNotFound, operator.CodeConflict: exitConflict, operator.CodeDuplicate: exitConflict, "JQ999": exitError,
	} {
		for _, problem := range []string{"no such job", "unique", "unknown command", "anything"} {
			require.Equal(t, want, exitCode(problemError("requeue", operator.ActedJob{ID: 7, Problem: problem, Code: code})), code)
		}
	}
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	held := query[int64](t, pool, "select jobq.enqueue('a', unique_key => 'k')")
	query[string](t, pool, "select jobq.cancel($1)::text", held)
	query[int64](t, pool, "select jobq.enqueue('a', unique_key => 'k')")
	err := pgtest.InsertRunning(context.Background(), pool, 1, pgtest.Columns{"id": "77"})
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
			var acted operator.Acted
			require.NoError(t, json.Unmarshal([]byte(out), &acted))
			require.Equal(t, operator.CodeDuplicate, acted.Jobs[0].Code)
		}
	}
}

// Words of an error or of a problem decide nothing: they change, and can quote a
// producer. Method: the source of the command compares none.
func TestNoWordsDecide(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	words := regexp.MustCompile(`strings\.(Contains|HasPrefix|HasSuffix|EqualFold|Index)\(\w*(\.Error\(\)|\.Problem)|\.(Problem|Error\(\)) [!=]= "[^"]`)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		source, err := os.ReadFile(name)
		require.NoError(t, err)
		for number, line := range strings.Split(string(source), "\n") {
			if strings.Contains(line, "unsupported startup parameter") {
				continue // PgBouncer has no code for it
			}
			require.False(t, words.MatchString(line), "%s:%d: %s", name, number+1, line)
		}
	}
	require.True(t, words.MatchString(`case job.Problem == "no such job":`))
	require.True(t, words.MatchString(`strings.HasPrefix(err.Error(), "unknown command")`))
}
