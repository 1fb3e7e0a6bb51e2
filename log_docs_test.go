package jobq_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// logLine is a row of a table of docs/troubleshoot.md that explains a log line.
var logLine = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (?:INFO|WARN|ERROR)")

// anyText stands for the parts of a message that are only known at run time.
const anyText = ".+"

// Somebody who looks a log line up in docs/troubleshoot.md finds it. Method: read the
// messages of all warnings and errors from the sources, and compare them with the page,
// both ways. Parts of a message that are only known at run time stand for any text.
func TestEveryWarningIsExplained(t *testing.T) {
	t.Parallel()
	messages := map[string]string{} // where each was found
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if slices.Contains([]string{"fault", "bench", "examples", "internal/faulttest", "internal/pgtest", ".git"}, filepath.ToSlash(path)) {
				return fs.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			warnings(t, path, messages)
		}
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, len(messages), 30, "the sources have warnings")

	page, err := os.ReadFile("docs/troubleshoot.md")
	require.NoError(t, err)
	explained := map[string]bool{}
	for _, row := range logLine.FindAllStringSubmatch(string(page), -1) {
		explained[row[1]] = false
	}
	constant := map[string]bool{} // lines that a constant message explains, which are none of a computed one
	for line := range explained {
		_, constant[line] = messages[regexp.QuoteMeta(line)]
	}
	for pattern, path := range messages {
		computed := strings.Contains(pattern, anyText)
		found := false
		for line := range explained {
			if (!computed || !constant[line]) && regexp.MustCompile("^"+pattern+"$").MatchString(line) {
				explained[line], found = true, true
			}
		}
		if !found {
			t.Errorf("docs/troubleshoot.md does not explain %q of %s", pattern, path)
		}
	}
	for line, logged := range explained {
		if !logged {
			t.Errorf("docs/troubleshoot.md explains %q, which nothing logs as a warning or an error", line)
		}
	}
}

// warnings adds the messages that a file logs as warnings or errors, or at a level that
// it computes, as regular expressions.
func warnings(t *testing.T, path string, messages map[string]string) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	for _, declaration := range file.Decls {
		ast.Inspect(declaration, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			message := logged(call)
			if message == nil {
				return true
			}
			patterns := texts(file, declaration, message)
			if len(patterns) == 0 {
				t.Errorf("%s: cannot read the message of this log line: use a constant", files.Position(call.Pos()))
			}
			for _, pattern := range patterns {
				messages[pattern] = path
			}
			return true
		})
	}
}

// logged returns the message of a call of a logger's method, or nil for any other call.
func logged(call *ast.CallExpr) ast.Expr {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	name := ""
	switch receiver := method.X.(type) {
	case *ast.Ident:
		name = receiver.Name
	case *ast.SelectorExpr:
		name = receiver.Sel.Name
	}
	if !slices.Contains([]string{"log", "logger", "slog"}, strings.ToLower(name)) {
		return nil
	}
	place, ok := map[string]int{"Warn": 0, "Error": 0, "WarnContext": 1, "ErrorContext": 1, "Log": 2, "LogAttrs": 2}[method.Sel.Name]
	if !ok || len(call.Args) <= place {
		return nil
	}
	return call.Args[place]
}

// texts returns what a message can be: a constant, a format, a constant with something
// behind it, or a name that is one of these somewhere in its function, or that is an argument
// of the function.
func texts(file *ast.File, in ast.Decl, message ast.Expr) (patterns []string) {
	switch message := message.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(message.Value)
		if err != nil {
			return nil
		}
		return []string{regexp.MustCompile(`%[a-z]`).ReplaceAllString(regexp.QuoteMeta(text), anyText)}
	case *ast.BinaryExpr:
		for _, text := range texts(file, in, message.X) {
			patterns = append(patterns, text+anyText)
		}
	case *ast.CallExpr: // fmt.Sprintf
		return texts(file, in, message.Args[0])
	case *ast.Ident:
		ast.Inspect(in, func(node ast.Node) bool {
			assign, ok := node.(*ast.AssignStmt)
			if !ok || len(assign.Lhs) != len(assign.Rhs) {
				return true
			}
			for i, left := range assign.Lhs {
				if name, ok := left.(*ast.Ident); ok && name.Name == message.Name {
					patterns = append(patterns, texts(file, in, assign.Rhs[i])...)
				}
			}
			return true
		})
		return append(patterns, arguments(file, in, message.Name)...)
	}
	return patterns
}

// arguments returns the texts that calls in the file give for a parameter of the function.
func arguments(file *ast.File, in ast.Decl, parameter string) (patterns []string) {
	function, ok := in.(*ast.FuncDecl)
	if !ok {
		return nil
	}
	place := -1
	at := 0
	for _, field := range function.Type.Params.List {
		for _, name := range field.Names {
			if name.Name == parameter {
				place = at
			}
			at++
		}
	}
	if place < 0 {
		return nil
	}
	for _, declaration := range file.Decls {
		ast.Inspect(declaration, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			if callee, ok := call.Fun.(*ast.SelectorExpr); ok && callee.Sel.Name == function.Name.Name && len(call.Args) > place {
				patterns = append(patterns, texts(file, declaration, call.Args[place])...)
			}
			return true
		})
	}
	return patterns
}
