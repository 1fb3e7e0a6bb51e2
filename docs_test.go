package jobq_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

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

// testLink is a link to a test of jobq, by its name.
var testLink = regexp.MustCompile(`\[(Test\w+)\]\(([^)]+_test\.go)\)`)

// A link that names a test leads to it, also when the test was moved or renamed.
func TestLinkedTestsExist(t *testing.T) {
	t.Parallel()
	found := 0
	err := filepath.WalkDir("docs", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".md") {
			return err
		}
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, link := range testLink.FindAllStringSubmatch(string(text), -1) {
			found++
			target := filepath.Join(filepath.Dir(path), link[2])
			code, err := os.ReadFile(target)
			require.NoError(t, err, path)
			if !strings.Contains(string(code), "\nfunc "+link[1]+"(") {
				t.Errorf("%s links to %s in %s, which is not there", path, link[1], target)
			}
		}
		return nil
	})
	require.NoError(t, err)
	require.Positive(t, found)
}

// In the table of features beside other queues, each cell of ours links to a test of what it says. What jobq lacks has none, nor have
// the databases, for which docs/postgresql.md has a table.
func TestFeaturesHaveTests(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/internals/evidence/other-queues.md")
	require.NoError(t, err)
	found := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 9 {
			continue
		}
		feature, ours := strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2])
		if feature == "" || feature == "databases" || strings.HasPrefix(feature, "--") || strings.HasPrefix(ours, "not yet") {
			continue
		}
		found++
		if !testLink.MatchString(ours) {
			t.Errorf("docs/internals/evidence/other-queues.md: what jobq has of %q links to no test", feature)
		}
	}
	require.Greater(t, found, 40)
}

// Every decision says its context, its choice and its price, in this order, and the list of decisions
// has it. Without the price, nobody who argues it again knows what was weighed.
func TestDecisionsHaveTheirForm(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile("docs/decisions/README.md")
	require.NoError(t, err)
	pages, err := filepath.Glob("docs/decisions/0*.md")
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	form := regexp.MustCompile(`(?s)\A# (\d{4}): .*\n##+ Context\n.*\n##+ Choice\n.*\n##+ Price\n`)
	for _, page := range pages {
		name := filepath.Base(page)
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		parts := form.FindStringSubmatch(string(text))
		if len(parts) == 0 || parts[1] != name[:4] {
			t.Errorf("%s does not begin with its number, or lacks one of Context, Choice and Price, as headings in this order", page)
		}
		if !strings.Contains(string(list), "| ["+name[:4]+"]("+name+") | ") {
			t.Errorf("docs/decisions/README.md does not list %s", name)
		}
	}
}

// The Go code of the README is in examples/quickstart, which is run by a test.
func TestReadmeProgram(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	program, err := os.ReadFile("examples/quickstart/main.go")
	require.NoError(t, err)
	_, code, found := strings.Cut(string(readme), "\n```go\n")
	require.True(t, found)
	code, _, _ = strings.Cut(code, "```\n")
	require.Contains(t, code, "w.Run(ctx)")
	require.Contains(t, string(program), code, "README.md has Go code that examples/quickstart/main.go has not")
}

// README and guides are short, and user documentation names none of jobq's tests: what proves a promise is in
// docs/internals. Words are counted outside of code blocks, but for README, of which all are.
func TestDocsAreShort(t *testing.T) {
	t.Parallel()
	const readmeMax, guideMax, allMax = 900, 800, 50_000
	// reference are pages that are complete, and looked things up in.
	reference := []string{
		"cli", "configuration", "doctor", "encryption-reference", "flow-rules", "metrics-reference", "migrate", "postgresql", "program-contract", "sql", "steps-reference",
		"troubleshoot", "tui", "tui-keys", "tui-reference", "why-reference",
	}
	testName := regexp.MustCompile(`\bTest[A-Z][a-zA-Z]{6,}|\w+_test\.go`)
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	require.LessOrEqual(t, len(strings.Fields(string(readme))), readmeMax, "words of README.md")
	require.NotRegexp(t, testName, string(readme))
	pages, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	all := 0
	for _, page := range pages {
		content, err := os.ReadFile(page)
		require.NoError(t, err)
		words := wordsOutsideCode(string(content))
		all += words
		name := strings.TrimSuffix(filepath.Base(page), ".md")
		if !slices.Contains(reference, name) {
			require.LessOrEqual(t, words, guideMax, "words of %s", page)
		}
		if match := testName.FindString(string(content)); match != "" && name != "testing" { // which has a user's test
			t.Errorf("%s names %s: it belongs into docs/internals/evidence", page, match)
		}
	}
	require.LessOrEqual(t, all, allMax, "words of docs/*.md")
}

func wordsOutsideCode(page string) (words int) {
	fenced := false
	for line := range strings.Lines(page) {
		switch trimmed := strings.TrimSpace(line); {
		case strings.HasPrefix(trimmed, "```") || strings.HasPrefix(trimmed, "~~~"):
			fenced = !fenced
		case fenced || strings.HasPrefix(line, "    "):
		default:
			for word := range strings.FieldsSeq(line) {
				if strings.ContainsFunc(word, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) { // and not the | of a table
					words++
				}
			}
		}
	}
	return words
}
