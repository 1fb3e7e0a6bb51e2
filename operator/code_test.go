package operator_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/operator"
)

// Every code with which the SQL functions refuse stands for an error in Go, and
// docs/sql.md explains it. Nothing else is raised, but by the triggers of a plain
// INSERT, and to whoever is to try again.
func TestCodes(t *testing.T) {
	t.Parallel()
	docs, err := os.ReadFile("../docs/sql.md")
	require.NoError(t, err)
	files, err := filepath.Glob("../sql/schema/*.sql")
	require.NoError(t, err)
	used := make(map[string]bool)
	for _, name := range files {
		content, err := os.ReadFile(name) // #nosec G304 -- our own
		require.NoError(t, err)
		for _, raised := range regexp.MustCompile(`raise (\S+(?: '\w+')?) using`).FindAllStringSubmatch(string(content), -1) {
			if raised[1] == "unique_violation" {
				require.Regexp(t, "enqueue|unique", name)
				continue
			}
			// To the janitor, as a lock_timeout is; for a job that moves too fast to be found; and
			// to a janitor whose transaction keeps its snapshot. And to who may not read jobs.
			if slices.Contains([]string{"lock_not_available", "serialization_failure", "invalid_transaction_state", "insufficient_privilege"}, raised[1]) {
				require.Equal(t, 1, strings.Count(string(content), raised[0]))
				continue
			}
			require.Regexp(t, `^sqlstate 'JQ\d{3}'$`, raised[1], name)
		}
		for _, code := range regexp.MustCompile(`'(JQ\d+)'`).FindAllStringSubmatch(string(content), -1) {
			if code[1] != "JQ000" { // undoes what generation_check has locked, and reaches nobody
				used[code[1]] = true
			}
		}
	}
	require.Len(t, used, 5)
	for code := range used {
		if code != "JQ005" { // to programs that end their own runs, and never for an action
			require.Error(t, operator.Code(code).Err(), code)
		}
		require.Contains(t, string(docs), "`"+code+"`")
	}
	require.NoError(t, operator.Code("").Err())
}

// A code of a later version leaves the reason, and says nothing about the code.
func TestErrOfUnknownCode(t *testing.T) {
	t.Parallel()
	require.NoError(t, operator.ActedJob{}.Err())
	require.EqualError(t, operator.ActedJob{Problem: "it is frozen", Code: "JQ999"}.Err(), "it is frozen")
	require.EqualError(t, operator.ActedJob{Problem: "it is frozen"}.Err(), "it is frozen")
	require.EqualError(t, operator.ActedJob{Problem: "no job 7", Code: operator.CodeNotFound}.Err(), "no job 7")
	require.EqualError(t, operator.ActedJob{Problem: "it runs", Code: operator.CodeConflict}.Err(), "conflict: it runs")
}
