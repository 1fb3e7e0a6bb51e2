package migrate

import (
	"fmt"
	"io/fs"
	"strings"
	"testing/fstest"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/sql/migrations"
)

// migrationFolder is where rivermigrate looks for the files.
const migrationFolder = "migration/" + line + "/"

// line is the name under which rivermigrate knows our migrations. Its own line is called
// main, which it treats in a special way.
const line = "jobq"

// source is where the migration files are, as NNN_name.up.sql and .down.sql.
type source struct{ files fs.FS }

// orEmbedded is the migrations of this build, unless a test has its own.
func (s source) orEmbedded() source {
	if s.files == nil {
		return source{files: migrations.FS}
	}
	return s
}

// render returns the files for one schema, where rivermigrate looks for them.
func (s source) render(schema *db.Schema) (fs.FS, error) {
	names, err := fs.Glob(s.files, "*.sql")
	if err != nil {
		return nil, err
	}
	rendered := make(fstest.MapFS, len(names))
	for _, name := range names {
		content, err := fs.ReadFile(s.files, name)
		if err != nil {
			return nil, err
		}
		rendered[migrationFolder+name] = &fstest.MapFile{Data: []byte(db.Render(string(content), schema.Name()))}
	}
	return rendered, nil
}

// scriptHead says how to run the script so that it stops at the first error. By default, psql
// would go on with the next migration.
const scriptHead = `-- jobq, schema %s: migrations %d to %d, with the record of each.
-- Run it with: psql -v ON_ERROR_STOP=1 -f FILE
`

// SQL returns what Up would run for the config's schema, to read it or to run it with
// psql: each migration with a version above from, up to Target, or to the latest without
// a Target. With from 0, it also makes the schema. For a single migration, from is
// Target - 1. The result is empty when there is nothing to run. A nil config means the
// defaults.
func SQL(config *Config, from int) (string, error) {
	script, err := writeScript(config, from)
	if err != nil {
		return "", fmt.Errorf("migration sql: %w", err)
	}
	return script, nil
}

func writeScript(config *Config, from int) (string, error) {
	if config == nil {
		config = &Config{}
	}
	schema, err := db.NewSchema(config.Schema)
	if err != nil {
		return "", err
	}
	files := config.source.orEmbedded().files
	names, err := fs.Glob(files, "*.up.sql") // sorted, and so by number
	if err != nil {
		return "", err
	}
	compatible, err := compatibleFrom(files, "")
	if err != nil {
		return "", err
	}
	latest, target := len(names), config.Target // numbered from 1 without gaps
	if target == 0 {
		target = latest
	}
	if from < 0 || target > latest || from > target {
		return "", fmt.Errorf("no versions above %d up to %d: versions are 1 to %d", from, target, latest)
	}
	if from == target {
		return "", nil
	}
	var script strings.Builder
	fmt.Fprintf(&script, scriptHead, schema.Name(), from+1, target)
	if from == 0 {
		fmt.Fprintf(&script, "\ncreate schema if not exists %s;\n%s;\n", quoted(schema), schema.SQL(createTable))
	}
	for version := from + 1; version <= target; version++ {
		name := names[version-1]
		content, err := fs.ReadFile(files, name)
		if err != nil {
			return "", err
		}
		body := strings.TrimSpace(db.Render(string(content), schema.Name()))
		record := schema.SQL(fmt.Sprintf("insert into jobq.jobq_migration (version, compatible_from) values (%d, %d);", version, compatible[version]))
		if header, err := parseHeader(body); err != nil {
			return "", fmt.Errorf("migration %s: %w", name, err)
		} else if header.noTransaction {
			fmt.Fprintf(&script, "\n-- %s\n%s\n%s\n", name, body, record)
			continue
		}
		fmt.Fprintf(&script, "\n-- %s\nbegin;\n%s\n%s\ncommit;\n", name, body, record)
	}
	return script.String(), nil
}

func quoted(schema *db.Schema) string {
	return strings.TrimSuffix(db.Render("jobq.", schema.Name()), ".")
}
