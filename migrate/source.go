package migrate

import (
	"fmt"
	"io/fs"
	"path"
	"strings"
	"testing/fstest"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/sql/migrations"
)

// line is the name under which rivermigrate knows our migrations. Its own is
// called main, and is special to it.
const line = "jobq"

// source is where the migration files are, as NNN_name.up.sql and .down.sql.
type source struct{ files fs.FS }

func embeddedSource() source { return source{files: migrations.FS} }

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
		rendered[path.Join("migration", line, name)] = &fstest.MapFile{Data: []byte(db.Render(string(content), schema.Name()))}
	}
	return rendered, nil
}

// SQL returns what Up would run for the config's schema, for those who want
// to read it or run it themselves, with psql: every migration above from, up
// to and including Target, or to the latest.
func SQL(config *Config, from int) (string, error) {
	if config == nil {
		config = &Config{}
	}
	schema, err := db.NewSchema(config.Schema)
	if err != nil {
		return "", fmt.Errorf("migration sql: %w", err)
	}
	files := embeddedSource().files
	names, err := fs.Glob(files, "*.up.sql")
	if err != nil {
		return "", fmt.Errorf("migration sql: %w", err)
	}
	var script strings.Builder
	fmt.Fprintf(&script, "create schema if not exists %s;\n%s;\n", quoted(schema), schema.SQL(createTable))
	for _, name := range names {
		var version int
		if _, err := fmt.Sscanf(name, "%d_", &version); err != nil {
			return "", fmt.Errorf("migration sql: file %s: %w", name, err)
		}
		if version <= from || (config.Target > 0 && version > config.Target) {
			continue
		}
		content, err := fs.ReadFile(files, name)
		if err != nil {
			return "", fmt.Errorf("migration sql: %w", err)
		}
		body := db.Render(string(content), schema.Name())
		record := schema.SQL(fmt.Sprintf("insert into jobq.jobq_migration (version) values (%d);", version))
		if isNonTransactional(body) {
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
