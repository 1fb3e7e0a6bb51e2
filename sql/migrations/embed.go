// Package migrations holds the SQL files that make and change jobq's schema.
// Package migrate runs them; others only ask which version is the newest.
package migrations

import (
	"embed"
	"strconv"
	"strings"
)

// FS has NNN_name.up.sql and NNN_name.down.sql, numbered from 1 without gaps.
// In them, `jobq.` stands for the schema, whatever its name is.
//
//go:embed *.sql
var FS embed.FS

// Latest is the number of the newest migration: the schema version that this
// build works with.
func Latest() int {
	entries, err := FS.ReadDir(".")
	if err != nil {
		panic("embedded migrations: " + err.Error()) // a broken build, not a run-time condition
	}
	latest := 0
	for _, entry := range entries {
		number, _, _ := strings.Cut(entry.Name(), "_")
		if version, err := strconv.Atoi(number); err == nil {
			latest = max(latest, version)
		}
	}
	return latest
}
