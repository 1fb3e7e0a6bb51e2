package walk

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// block is a piece of code on a page: fenced, or indented by four blanks or more.
type block struct {
	heading  string // of its section
	line     int    // of the page, from 1, at which its text begins
	language string // as the fence says; empty for indented blocks
	text     string // without the fence and the indentation
}

// readBlocks finds the blocks of a page. Indented lines are a block only after an empty
// line, a heading or a fence: otherwise they continue a paragraph. An empty line ends an
// indented block.
func readBlocks(text string) (blocks []block) {
	var open *block
	fence, heading, paragraph := "", "", false // the open fence; whether a paragraph goes on
	end := func() {
		if open != nil {
			blocks, open = append(blocks, *open), nil
		}
	}
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case fence != "" && trimmed == fence:
			end()
			fence, paragraph = "", false
		case fence != "":
			open.text += line + "\n"
		case strings.HasPrefix(trimmed, "```") || strings.HasPrefix(trimmed, "~~~"):
			end()
			fence = trimmed[:3]
			open = &block{heading: heading, line: i + 2, language: strings.TrimPrefix(trimmed, fence)}
		case strings.HasPrefix(line, "    ") && trimmed != "" && !paragraph:
			if open == nil {
				open = &block{heading: heading, line: i + 1}
			}
			open.text += line + "\n"
		default:
			end()
			paragraph = trimmed != ""
			if strings.HasPrefix(line, "#") {
				heading, paragraph = strings.TrimSpace(strings.TrimLeft(line, "#")), false
			}
		}
	}
	end()
	for i, one := range blocks {
		if one.language == "" {
			blocks[i].text = unindent(one.text)
		}
	}
	return blocks
}

// unindent takes off what all lines have in front.
func unindent(text string) string {
	front := regexp.MustCompile(`^ *`).FindString(text)
	return strings.TrimPrefix(strings.ReplaceAll("\n"+text, "\n"+front, "\n"), "\n")
}

// What is a block is found wherever a page may have one, and nothing else is.
func TestReadBlocks(t *testing.T) {
	t.Parallel()
	page := "# One\nText\n    goes on\n\n    jobq why 1\n      --json\n\n    jobq list\n## Two\n```sh\njobq\n\n    jobq show 1\n```\n- item\n\n      psql\n\n  text\n" +
		"### Three\n    jobq stats\n~~~sh\n```\n~~~\n    jobq tui\n```yaml\na: 1\n```\n"
	require.Equal(t, []block{
		{"One", 5, "", "jobq why 1\n  --json\n"},
		{"One", 8, "", "jobq list\n"},
		{"Two", 11, "sh", "jobq\n\n    jobq show 1\n"},
		{"Two", 17, "", "psql\n"},
		{"Three", 21, "", "jobq stats\n"},
		{"Three", 23, "sh", "```\n"},
		{"Three", 25, "", "jobq tui\n"},
		{"Three", 27, "yaml", "a: 1\n"},
	}, readBlocks(page))
}

// readPage is the text of a page, named from the repository's root.
func readPage(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../" + name)
	require.NoError(t, err)
	return string(text)
}
