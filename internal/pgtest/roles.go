package pgtest

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// Roles is sql/roles.sql for a test two folders below the root, without the commands of psql, which the server does not know.
func Roles(tb testing.TB) string {
	tb.Helper()
	content, err := os.ReadFile("../../sql/roles.sql")
	require.NoError(tb, err)
	return regexp.MustCompile(`(?m)^\\.*\n`).ReplaceAllString(string(content), "")
}
