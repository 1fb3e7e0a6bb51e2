//go:build jobq_mutant

package mutant

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every mutant finds what it changes: one that does not ends its program, which
// must not pass for a broken promise.
func TestMutantsApply(t *testing.T) {
	files, err := filepath.Glob("../db/*.sql.go")
	require.NoError(t, err)
	var queries []string
	for _, file := range files {
		content, err := os.ReadFile(file) // #nosec G304 -- our own
		require.NoError(t, err)
		queries = append(queries, strings.Split(string(content), "`")...)
	}
	require.NotEmpty(t, changes)
	for name := range changes {
		t.Setenv("JOBQ_MUTANT", name)
		changed := 0
		for _, query := range queries {
			if !strings.HasPrefix(query, "-- name: ") {
				continue
			}
			var mutated string
			require.NotPanics(t, func() { mutated = SQL(query) })
			if mutated != query {
				changed++
			}
		}
		require.Equal(t, len(changes[name]) > 0, changed > 0, name)
	}
}
