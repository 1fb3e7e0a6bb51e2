package jobq_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// configStruct are the names of structs that a caller fills in.
var configStruct = regexp.MustCompile(`^([A-Z]\w*)?(Config|Options|Params)$|^(Batch|Command|Stream|HTTP|Attributes|Settings|QueueSettings)$`)

// saysDefault is a comment that says what a field is when nobody sets it.
var saysDefault = regexp.MustCompile(`[Dd]efaults?\b|\bRequired\b|\brequired\b`)

// TestConfigFieldsAreDocumented refuses an exported field of a struct that callers fill
// in when its comment does not say its default, or that it is required.
func TestConfigFieldsAreDocumented(t *testing.T) {
	t.Parallel()
	fields := 0
	for _, dir := range []string{".", "worker", "worker/programs", "monitor", "operator", "janitor", "migrate"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			content, err := os.ReadFile(name)
			require.NoError(t, err)
			for _, field := range undocumented(t, name, content, &fields) {
				t.Errorf("%s: say in a comment what it is, its unit, its limits, and its default: \"Default …\" or \"Required\"", field)
			}
		}
	}
	require.Greater(t, fields, 60, "there are more structs than were found")

	const wrong = "package p\n\ntype RunConfig struct {\n\tA int\n\t// B is a number.\n\tB int\n\t// C is one too. Default 1.\n\tC int\n\td int\n}\n\ntype Other struct{ A int }\n"
	require.Equal(t, []string{"wrong.go:4: RunConfig.A", "wrong.go:6: RunConfig.B"}, undocumented(t, "wrong.go", []byte(wrong), &fields))
}

// undocumented returns the fields of a file that do not say their default, and adds
// how many it has looked at.
func undocumented(t *testing.T, name string, content []byte, looked *int) (found []string) {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, content, parser.ParseComments)
	require.NoError(t, err)
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.TypeSpec)
		if !ok || !configStruct.MatchString(spec.Name.Name) {
			return true
		}
		structure, ok := spec.Type.(*ast.StructType)
		if !ok {
			return true
		}
		for _, field := range structure.Fields.List {
			names := []string{"an embedded struct"}
			if len(field.Names) > 0 {
				names = nil
			}
			for _, each := range field.Names {
				if each.IsExported() {
					names = append(names, each.Name)
				}
			}
			*looked += len(names)
			if saysDefault.MatchString(field.Doc.Text()) {
				continue
			}
			for _, each := range names {
				found = append(found, set.Position(field.Pos()).String()+" "+spec.Name.Name+"."+each)
			}
		}
		return true
	})
	for i := range found { // the column says nothing
		found[i] = regexp.MustCompile(`^(\S+?:\d+):\d+ `).ReplaceAllString(found[i], "$1: ")
	}
	return found
}
