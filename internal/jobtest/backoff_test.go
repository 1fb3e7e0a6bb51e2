package jobtest_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A job whose backoff is not over when it is stored again waits for a janitor. So tests
// without one take AtOnce: a millisecond is enough most of the time only.
func TestShortBackoffsHaveAJanitor(t *testing.T) {
	t.Parallel()
	short := regexp.MustCompile(`Backoff(Base|Max):[^,}]*time\.(Nano|Micro|Milli)second`)
	files := 0
	require.NoError(t, filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path) // #nosec G304 -- a file of the repository
		files++
		if short.Match(content) {
			require.Regexp(t, `(?i)janitor`, string(content), "%s: give jobs jobtest.AtOnce as their backoff, or start a janitor", path)
		}
		return err
	}))
	require.Greater(t, files, 100)
}
