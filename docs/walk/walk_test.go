// Package walk runs what the documentation tells its readers to run. It has only tests.
//
// Each page is read with a database, a folder and a shell of its own, from top to
// bottom, as a new user would: every command and statement in its code blocks is run.
// What cannot be run as it is written has a rule in pages_test.go: what is run instead,
// what has to be there first, or why it is not run. A block that is neither run nor
// excused fails, and so does a rule that no page needs any more.
package walk

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/config"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/internal/settings"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// walked are the pages: the first ones, and all of docs/.
func walked(t *testing.T) []string {
	t.Helper()
	names := []string{"README.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md"}
	err := filepath.WalkDir("../../docs", func(path string, entry fs.DirEntry, err error) error {
		name := strings.TrimPrefix(filepath.ToSlash(path), "../../")
		if err == nil && strings.HasSuffix(path, ".md") {
			names = append(names, name)
		}
		return err
	})
	require.NoError(t, err)
	return names
}

// Every command and code block of the documentation works as it is written, or has a
// reason for why it is not run here.
func TestEveryBlockRuns(t *testing.T) {
	t.Parallel()
	binaries := t.TempDir()
	out, err := exec.Command("go", "build", "-o", binaries, "../../cmd/jobq", "../../examples/start").CombinedOutput()
	require.NoError(t, err, string(out))
	names := walked(t)
	for name := range pages {
		require.Contains(t, names, name, "pages_test.go has rules for a page that is not there")
	}
	for _, name := range names {
		t.Run(strings.ReplaceAll(name, "/", "_"), func(t *testing.T) {
			t.Parallel()
			blocks := readBlocks(readPage(t, name))
			if len(blocks) == 0 {
				_, has := pages[name]
				require.False(t, has, "%s has no blocks any more: remove its rules in pages_test.go", name)
				return
			}
			v := newVisit(t, binaries, pages[name])
			if v.page.python3 && v.lacks("python", "python3 --version", "apt-get install python3") {
				return
			}
			for _, b := range blocks {
				v.block(name, b)
			}
			v.stopAll()
			for i, r := range v.page.rules {
				if !v.used[i] {
					t.Errorf("%s has no %q any more: remove its rule in pages_test.go", name, r.line)
				}
			}
		})
	}
}

// signature is how docs/sql.md writes a function: jobq.name(arguments) returns type.
var signature = regexp.MustCompile(`(?s)^jobq\.(\w+)\((.*?)\)\s+returns `)

// shellWords begin a line of a shell in the documentation.
var shellWords = regexp.MustCompile(`^(\$|jobq|psql|export|make|go|pg_dump|pg_restore|jq|ls|redis-cli|docker|useradd|install|systemctl|[*]/10|\(umask) `)

// sqlWords begin a statement.
var sqlWords = regexp.MustCompile(`(?i)^(select|insert|with|create|alter|grant|listen|set jobq\.actor) `)

// block does what a reader would do with the block.
func (v *visit) block(page string, b block) {
	v.Helper()
	v.where = page + ":" + b.heading
	first, _, _ := strings.Cut(b.text, "\n")
	if page == "docs/cli.md" && generated(b) {
		return
	}
	switch r := v.rule(first); {
	case r != nil && r.all:
		return
	case r != nil && r.file != "":
		require.Contains(v, lines(readPage(v.T, r.file)), lines(b.text), "%s is not %s", v.where, r.file)
		return
	case r != nil && r.saved != "":
		require.NoError(v, os.WriteFile(filepath.Join(v.folder, r.saved), []byte(b.text), 0o600))
		return
	}
	v.Logf("%s, line %d", page, b.line)
	switch text := v.page.replace(b.text); {
	case b.language == "yaml":
		v.yaml(text)
	case b.language == "json":
		require.True(v, json.Valid([]byte(text)), "%s is not JSON", text)
	case b.language == "python":
		v.python(text)
	case b.language == "sh" || b.language == "" && shellWords.MatchString(first+" "):
		v.shell(b.text)
	case signature.MatchString(b.text):
		for _, line := range signatures(b.text) {
			v.signature(line)
		}
	case b.language == "sql" || b.language == "" && sqlWords.MatchString(first):
		v.sql(b.text)
	case strings.HasPrefix(first, "state:") && b.language == "":
		v.run("jobq list -- '"+strings.TrimSpace(text)+"'", 0)
	default:
		v.Errorf("%s, line %d: the block that begins with %q is neither run nor excused: give it a rule in docs/walk/pages_test.go", page, b.line, first)
	}
	v.stopBlock()
}

// lines is a text without the indentation of its lines.
func lines(text string) string {
	return regexp.MustCompile(`(?m)^[ \t]+`).ReplaceAllString(text, "")
}

// generated says whether a block of docs/cli.md is a command's usage or its flags,
// which TestCLIDocs writes from the command itself.
func generated(b block) bool {
	return b.language == "text" || b.language == "" &&
		(strings.HasPrefix(b.text, "-") || strings.HasSuffix(b.text, " [flags]\n") ||
			regexp.MustCompile(`^`+regexp.QuoteMeta(b.heading)+`( [(\[A-Z].*)?\n$`).MatchString(b.text))
}

// yaml reads a file of settings, of workers or of the terminal UI.
func (v *visit) yaml(text string) {
	v.Helper()
	_, err := config.Parse([]byte(text))
	if strings.HasPrefix(text, "contexts:") {
		_, err = settings.Parse([]byte(text))
	}
	require.NoError(v, err, text)
}

// signatures joins what goes on in the next line.
func signatures(text string) (lines []string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, " ") && len(lines) > 0 {
			lines[len(lines)-1] += " " + strings.TrimSpace(line)
			continue
		}
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

// signature compares a function as the page writes it with the function itself. An
// ellipsis stands for arguments in between.
func (v *visit) signature(line string) {
	v.Helper()
	if v.rule(line) != nil {
		return
	}
	parts := signature.FindStringSubmatch(line)
	require.NotNil(v, parts, line)
	var names []string
	require.NoError(v, v.pool.QueryRow(v.Context(), `select coalesce((select array_agg(name order by place) from unnest(proargnames, coalesce(proargmodes, array_fill('i'::"char", array[cardinality(proargnames)])))
			with ordinality as argument(name, mode, place) where mode = 'i'), '{}')
		from pg_proc where pronamespace = 'jobq'::regnamespace and proname = $1`, parts[1]).Scan(&names), line)
	have := "|" + strings.Join(names, "|") + "|"
	want := regexp.QuoteMeta("|" + strings.Join(strings.FieldsFunc(parts[2], func(r rune) bool { return r == ',' || r == ' ' }), "|") + "|")
	require.Regexp(v, "^"+strings.ReplaceAll(want, `\|…\|`, `\|.*`)+"$", have, "%s; its arguments are %s", line, have)
}

// sql runs statements: line by line where rules say so of a line, and in one piece else.
func (v *visit) sql(text string) {
	v.Helper()
	var run []string
	for line := range strings.Lines(text) {
		r := v.rule(line)
		if r != nil {
			v.prepare(r)
		}
		switch {
		case r != nil && r.excused != "":
		case r != nil && r.instead != "":
			run = append(run, r.instead)
		default:
			run = append(run, strings.TrimSuffix(v.page.replace(line), "\n"))
		}
	}
	// One statement a line needs no semicolon on the page.
	if !slices.ContainsFunc(run, func(line string) bool { return strings.HasPrefix(line, " ") || !sqlWords.MatchString(line) }) {
		for i, line := range run {
			run[i] = strings.TrimSuffix(strings.TrimSpace(regexp.MustCompile(`\s+--.*`).ReplaceAllString(line, "")), ";") + ";"
		}
	}
	_, err := v.pool.Exec(v.Context(), strings.Join(run, "\n"))
	require.NoError(v, err, strings.Join(run, "\n"))
}

// python lets a worker run the block as a handler.
func (v *visit) python(text string) {
	v.Helper()
	require.NotEmpty(v, v.page.python, "%s: the page needs a rule that says how its Python block is run", v.where)
	if v.lacks("python", "python3 -c 'import psycopg' || /usr/bin/python3 -c 'import psycopg'", "apt-get install python3-psycopg") {
		return
	}
	require.NoError(v, os.WriteFile(filepath.Join(v.folder, "charge.py"), []byte("import os\nimport psycopg\n"+text), 0o600))
	v.run(v.page.python, 0)
}
