package main

import (
	"context"
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/sql/migrations"
)

// objectPattern finds what a statement of sql/migrations makes or alters.
var objectPattern = regexp.MustCompile(`^(create|alter) (table|sequence|index|function|view|trigger) (?:jobq\.)?(\w+)`)

// object is one statement of sql/migrations.
type object struct {
	file, verb, kind, name string // verb, kind and name are empty for what is neither made nor altered
	sql                    string
}

// objects are the statements of sql/migrations, in their order, with the schema's
// name as package migrate writes it: functions are then the same to the letter.
func objects() ([]object, error) {
	files, err := fs.Glob(migrations.FS, "*.up.sql")
	if err != nil {
		return nil, err
	}
	var all []object
	for _, file := range files {
		content, err := fs.ReadFile(migrations.FS, file)
		if err != nil {
			return nil, err
		}
		for _, sql := range statements(string(content)) {
			found := object{file: file, sql: db.Render(sql, db.DefaultSchema)}
			if match := objectPattern.FindStringSubmatch(sql); match != nil {
				found.verb, found.kind, found.name = match[1], match[2], match[3]
			}
			all = append(all, found)
		}
	}
	return all, nil
}

// statements splits SQL after each line that ends with a semicolon, unless that
// is within the body of a function ($$). Comments between statements are left out.
func statements(sql string) (all []string) {
	var lines []string
	inBody := false
	for _, line := range strings.Split(sql, "\n") {
		if len(lines) == 0 && (strings.HasPrefix(line, "--") || strings.TrimSpace(line) == "") {
			continue
		}
		lines = append(lines, line)
		if strings.Count(line, "$$")%2 == 1 {
			inBody = !inBody
		}
		code, _, _ := strings.Cut(line, " --")
		if !inBody && strings.HasSuffix(strings.TrimSpace(code), ";") {
			all = append(all, strings.Join(lines, "\n"))
			lines = nil
		}
	}
	return all
}

// exists says whether the schema has an object of this kind and name.
func (o object) exists(ctx context.Context, tx pgx.Tx) (exists bool, err error) {
	query := "select to_regclass(format('jobq.%I', $1::text)) is not null"
	switch o.kind {
	case "function":
		query = "select exists (select from pg_proc p where p.pronamespace = 'jobq'::regnamespace and p.proname = $1)"
	case "trigger":
		query = `select exists (select from pg_trigger t join pg_class c on c.oid = t.tgrelid
			where c.relnamespace = 'jobq'::regnamespace and t.tgname = $1)`
	}
	err = tx.QueryRow(ctx, query, o.name).Scan(&exists)
	return exists, err
}

// makeMissing makes those of the objects that the schema lacks, each by its
// statement in sql/migrations. What alters a table is run if the table was made.
func makeMissing(ctx context.Context, tx pgx.Tx, all []object) error {
	made := make(map[string]bool)
	for _, o := range all {
		run := o.verb == "alter" && made[o.name]
		if o.verb == "create" {
			exists, err := o.exists(ctx, tx)
			if err != nil {
				return err
			}
			run = !exists
		}
		if !run {
			continue
		}
		if _, err := tx.Exec(ctx, o.sql); err != nil {
			return fmt.Errorf("%s, %s %s: %w", o.file, o.kind, o.name, err)
		}
		made[o.name] = true
	}
	return nil
}
