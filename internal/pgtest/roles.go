package pgtest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// Roles is sql/roles.sql, without the commands of psql, which the server does not know. Tests run in the folder of
// their package: the file is above it, wherever that is.
func Roles(tb testing.TB) string {
	tb.Helper()
	path := filepath.Join("sql", "roles.sql")
	content, err := os.ReadFile(path)
	for up := 0; errors.Is(err, fs.ErrNotExist) && up < 5; up++ {
		path = filepath.Join("..", path)
		content, err = os.ReadFile(path)
	}
	require.NoError(tb, err)
	return regexp.MustCompile(`(?m)^\\.*\n`).ReplaceAllString(string(content), "")
}
