package jobq_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// layers are all packages of jobq, from the lowest. A package imports what is in the lines above its own, and nothing of its own
// line: siblings do not know each other. docs/internals/codebase.md says what each is for. Tests import what they like.
var layers = []string{
	"internal/coding internal/debian internal/identity internal/measure internal/mutant internal/printable internal/schedule",
	"internal/sleep internal/storable internal/traceparent internal/watch internal/when sql/migrations sql/schema tui/command internal/yamlerr",
	"internal/db internal/postgres internal/subproc sql/schema/initial worker/internal/clock worker/internal/excerpt worker/internal/resting worker/internal/unreadable",
	"internal/settings migrate internal/dberror internal/doctor internal/filter internal/inbox internal/listen internal/testall",
	"internal/await internal/pgtest internal/steps",
	".", // package jobq
	"monitor operator keyring jobqsql worker/internal/ahead worker/internal/digest worker/internal/leases worker/internal/line worker/internal/waking",
	"janitor internal/catalogue internal/format internal/jobedit internal/jobtest tui/theme",
	"worker internal/auditline internal/config tui/widget tui/data",
	"worker/programs/internal/breaker worker/programs/internal/failure worker/programs/internal/template",
	"worker/programs metrics tracing jobqtest tui/polling tui/request",
	"tui/overlay tui/screen",
	"tui/commandline",
	"tui/acting",
	"tui/editing",
	"tui",
	"cmd/jobq/internal/bench cmd/jobq/internal/crashtest cmd/jobq/internal/demo",
	"cmd/jobq examples/crashtest examples/gosql examples/gotransaction examples/order examples/quickstart examples/start",
}

// alone are imports that only some may have: imported, by whom, why. A name stands for all that is below it as well; one that
// ends with .go for a file, and = for this package without what is below.
var alone = [][3]string{
	{"github.com/prometheus", "metrics", "programs that do not serve metrics do not link it"},
	{"golang.org/x/crypto", "keyring", "only programs with keys link the cipher"},
	{"go.opentelemetry.io", "tracing", "only programs that are traced link it; they choose their SDK"},
	{"github.com/riverqueue", "migrate", "only migrations need River"},
	{"migrate", "cmd/jobq jobqtest internal/pgtest", "programs that enqueue or work do not link River"},
	{"janitor", "worker/janitor.go worker/config.go metrics cmd/jobq", "worker and janitor meet in rows"},
	{"worker", "worker metrics tracing jobqtest cmd/jobq examples", "what reads and what acts for people runs no jobs"},
	{"internal/subproc", "worker/programs internal/config cmd/jobq", "package programs runs programs"},
	{"internal/db", "=. internal monitor operator janitor migrate worker jobqtest cmd/jobq", "what is above has no SQL"},
	{"github.com/jackc/pgx", "=. internal monitor operator janitor migrate worker jobqsql jobqtest cmd/jobq examples", "what is above has no SQL"},
	{"text/tabwriter", "", "it counts characters; the table of cmd/jobq counts cells of a terminal"},
	{"charm.land", "tui", "what draws is in the terminal UI"},
	{"tui/overlay", "=tui", "overlays are asked for with requests"},
}

// never are other imports that the layers would allow: importer, imported, why.
var never = [][3]string{
	{"internal/db", "internal/printable internal/when internal/coding internal/watch", "it is SQL and its types"},
	{"internal/doctor", "internal/sleep migrate", "it looks at rows and catalogs"},
	{"worker/programs", "github.com/jackc/pgx internal/db", "the worker stores what programs say"},
	{"worker/internal/line", "github.com/jackc/pgx worker/internal/clock", "it is told the time, and talks to nobody"},
	{"worker/internal/leases", "github.com/jackc/pgx internal/db worker/internal/clock", "it is told the time, and talks to nobody"},
	{"metrics", "internal operator", "it reads what users can read"},
	{"jobqsql", "internal github.com/jackc/pgx/v5/stdlib github.com/lib/pq", "it gives the client a transaction, and callers choose their driver"},
	{"tracing", "internal/db monitor operator go.opentelemetry.io/otel/sdk", "it sees what middleware sees"},
	{"tui/command", "charm.land", "commands and their keys are words"},
	{"tui/data", "charm.land", "what is known draws nothing"},
	{"tui/theme", "charm.land/bubbletea", "styles know no messages"},
	{"jobqtest", "github.com/stretchr/testify testing internal/pgtest internal/postgres", "applications choose their test framework and server"},
	{"examples", "internal", "examples use what users can use"},
}

func TestLayers(t *testing.T) {
	t.Parallel()
	rank := map[string]int{}
	for i, line := range layers {
		for name := range strings.FieldsSeq(line) {
			rank[name] = i
		}
	}
	for file, imports := range importsByFile(t) {
		mine, known := rank[path.Dir(file)]
		if !known {
			t.Errorf("%s is in no layer: add it to layers", path.Dir(file))
		}
		for _, imported := range imports {
			if theirs, ours := rank[imported]; ours && theirs >= mine {
				t.Errorf("%s imports %s, which is not below it", file, imported)
			}
			for _, rule := range alone {
				if isIn(imported, rule[0]) && !isInOne(file, rule[1]) {
					t.Errorf("%s imports %s: %s", file, imported, rule[2])
				}
			}
			for _, rule := range never {
				if isInOne(file, rule[0]) && isInOne(imported, rule[1]) {
					t.Errorf("%s imports %s: %s", file, imported, rule[2])
				}
			}
		}
	}
}

func isInOne(name, those string) bool {
	return slices.ContainsFunc(strings.Fields(those), func(that string) bool { return isIn(name, that) })
}

func isIn(name, that string) bool {
	if only, ok := strings.CutPrefix(that, "="); ok {
		return path.Dir(name) == only
	}
	return name == that || strings.HasPrefix(name, that+"/")
}

// importsByFile has no tests, and nothing of other modules and of examples that are a single program.
func importsByFile(t *testing.T) map[string][]string {
	t.Helper()
	const module = "github.com/jobq-dev/jobq"
	found := map[string][]string{}
	require.NoError(t, filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() && slices.Contains([]string{"bench", "fault", "bin", "docs", "tools", ".git"}, name) {
			return filepath.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		imports := []string{}
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if imported == module {
				imported = "."
			}
			imports = append(imports, strings.TrimPrefix(imported, module+"/"))
		}
		found[name] = imports
		return nil
	}))
	require.NotEmpty(t, found["worker/worker.go"])
	return found
}
