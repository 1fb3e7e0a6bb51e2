package tui

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// No escape code is written by hand, and none is looked for or replaced in what
// was drawn: styles come from the theme, which Lip Gloss renders. Method: the
// sources of the whole UI are searched, tests apart.
func TestNoEscapeCodes(t *testing.T) {
	t.Parallel()
	written := regexp.MustCompile(`(?i)\\x1b|\\033|\\u001b|\\e\[|"\[\d*m|\x1b|\bansi\.(Strip|NewStyle|Style|SGR|Reset)|strings\.NewReplacer`)
	files := 0
	require.NoError(t, filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		files++
		source, err := os.ReadFile(path) // #nosec G304 -- of this folder
		require.NoError(t, err)
		require.Empty(t, written.FindAllString(string(source), -1), path)
		return nil
	}))
	require.Greater(t, files, 20)
}
