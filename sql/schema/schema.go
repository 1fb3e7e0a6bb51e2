// Package schema is jobq's present SQL, a file for each subject: its tables with their indexes and comments, its triggers, and its
// functions. `make generate` makes the migration 001_initial of it. After the first release a change is written twice, here and
// as a migration of its own: what is now can be read in one place, and what was stays as it was. A test compares both.
package schema

import (
	"embed"
	"strings"
)

//go:embed *.sql
var files embed.FS

// subjects are the files, in an order in which they can be run: a table that a function returns, or that the body of an SQL
// function names, is made before the function.
var subjects = []string{
	"types", "json", "generation", "turn", "queue", "kind", "lease", "progress", "job", "move", "worker", "wake",
	"unique", "end", "claim", "key", "limit", "key_turn", "key_group", "key_each", "key_sets", "key_claim",
	"key_prune", "enqueue", "enqueue_many", "line", "why_lock", "change", "history", "sweep", "unreadable", "audit",
	"schedule", "schedule_fire", "dependency", "dependency_add", "graph", "step", "emit", "wait", "own",
	"why_waiting", "why", "act", "act_worker", "dependent", "act_settings", "undo", "export", "stats", "watch", "event", "output",
	"access",
}

// Header is at the beginning of both files of the migration 001_initial.
const Header = "-- `make generate` writes this file from sql/schema.\nset local lock_timeout = '5s';\n"

// Initial is the migration 001_initial.
func Initial() string { return Header + SQL() }

// SQL makes everything in a schema that is there and empty. In it, `jobq.` stands for the schema, whatever its name is.
func SQL() string {
	var sql strings.Builder
	for _, subject := range subjects {
		text, err := files.ReadFile(subject + ".sql")
		if err != nil {
			panic("embedded SQL: " + err.Error()) // a broken build, not a run-time condition
		}
		sql.WriteString("\n")
		sql.Write(text)
	}
	return sql.String()
}
