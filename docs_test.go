package jobq_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// markdownLink is a link or picture of a page: ](target).
var markdownLink = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)\s]*)?\)`)

// A page that the map of the documentation does not lead to is not found by anybody,
// and a link to a file that was moved leads nowhere. Method: follow the links of all
// pages, from README and docs/README.md on.
func TestEveryPageIsReached(t *testing.T) {
	t.Parallel()
	reached := map[string]bool{}
	next := []string{"README.md", "docs/README.md"}
	for len(next) > 0 {
		page := next[0]
		next = next[1:]
		if reached[page] {
			continue
		}
		reached[page] = true
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, link := range markdownLink.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(link[1], "://") {
				continue
			}
			target := filepath.Join(filepath.Dir(page), link[1])
			info, err := os.Stat(target)
			if err != nil {
				t.Errorf("%s links to %s, which is not there", page, link[1])
				continue
			}
			if info.IsDir() {
				target = filepath.Join(target, "README.md")
			}
			if _, err := os.Stat(target); err == nil && strings.HasSuffix(target, ".md") {
				next = append(next, target)
			}
		}
	}
	err := filepath.WalkDir("docs", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".md") && !reached[path] {
			t.Errorf("no link leads from README.md or docs/README.md to %s", path)
		}
		return err
	})
	require.NoError(t, err)
}
