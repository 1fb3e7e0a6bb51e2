package jobq_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// publicPackages are the folders of the packages that applications import.
var publicPackages = []string{".", "worker", "worker/programs", "operator", "monitor", "janitor", "migrate", "jobqsql", "keyring", "metrics", "tracing"}

// The name of a constant begins with that of its type, so that an editor shows all values of a type together: without
// Code, State or Type at its end, as in ReasonScheduled of a ReasonCode.
func TestConstantsBeginWithTheirType(t *testing.T) {
	t.Parallel()
	looked := 0
	for _, dir := range publicPackages {
		names, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			require.NoError(t, err)
			wrong, count := misnamed(file)
			require.Empty(t, wrong, name)
			looked += count
		}
	}
	require.Greater(t, looked, 60, "there are more constants than were found")

	file, err := parser.ParseFile(token.NewFileSet(), "wrong.go", "package p\n\ntype Sort string\n\ntype StepType string\n\n"+
		"const (\n\tNewest Sort = \"a\"\n\tSortOldest Sort = \"b\"\n\tother Sort = \"c\"\n\tStepPlain StepType = \"d\"\n\tLimit = 3\n)\n", 0)
	require.NoError(t, err)
	wrong, count := misnamed(file)
	require.Equal(t, []string{"Newest"}, wrong)
	require.Equal(t, 3, count)
}

// misnamed returns the exported constants of named types whose names do not begin with it, and how many it has looked at.
func misnamed(file *ast.File) (wrong []string, looked int) {
	ast.Inspect(file, func(node ast.Node) bool {
		declared, ok := node.(*ast.GenDecl)
		if !ok || declared.Tok != token.CONST {
			return true
		}
		for _, spec := range declared.Specs {
			values, ok := spec.(*ast.ValueSpec)
			if !ok {
				continue
			}
			of, ok := values.Type.(*ast.Ident)
			if !ok || !of.IsExported() {
				continue
			}
			begin := of.Name
			for _, ending := range []string{"Code", "State", "Type"} {
				if begin != ending {
					begin = strings.TrimSuffix(begin, ending)
				}
			}
			exported := slices.DeleteFunc(slices.Clone(values.Names), func(name *ast.Ident) bool { return !name.IsExported() })
			for _, name := range exported {
				looked++
				if !strings.HasPrefix(name.Name, begin) {
					wrong = append(wrong, name.Name)
				}
			}
		}
		return true
	})
	return wrong, looked
}
