package migrate

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// headerMark begins each line of a migration's header. These lines come first.
const headerMark = "-- jobq:"

// header is what a migration says of itself:
//
//	-- jobq:no-transaction
//	-- jobq:compatible-from 12
type header struct {
	// noTransaction says that the migration cannot run in a transaction, such as
	// CREATE INDEX CONCURRENTLY. Its statements run one by one; each ends with a
	// semicolon at the end of a line. They run in a session of their own, which ends
	// with the migration, so that a `set` holds only for the statements after it. If
	// one fails, those before it stay done, and the next try runs all of them again. So
	// the migration must begin by removing what it makes: an index that was not built
	// to its end is there, but invalid.
	noTransaction bool
	// compatibleFrom says that programs work with the tables after the migration if
	// they know this version or a later one. Without it, they must know the migration
	// itself, which is always safe. docs/decisions/0026-rolling-upgrades.md says what must
	// be true of a migration with an earlier version here. 0 means that it says nothing.
	compatibleFrom int
}

// parseHeader reads the header of a migration.
func parseHeader(sql string) (header, error) {
	var h header
	for line := range strings.Lines(sql) {
		said, ok := strings.CutPrefix(line, headerMark)
		if !ok {
			break
		}
		name, value, _ := strings.Cut(strings.TrimSpace(said), " ")
		switch {
		case name == "no-transaction" && value == "":
			h.noTransaction = true
		case name == "compatible-from":
			version, err := strconv.Atoi(value)
			if err != nil || version < 1 {
				return header{}, fmt.Errorf("%q: a version is a number from 1", strings.TrimSpace(line))
			}
			h.compatibleFrom = version
		default:
			return header{}, fmt.Errorf("%q: a migration says %sno-transaction and %scompatible-from N", strings.TrimSpace(line), headerMark, headerMark)
		}
	}
	return h, nil
}

// compatibleFrom reads what all migrations of a folder say of compatibility, by
// version. One that says nothing is compatible from itself on.
func compatibleFrom(files fs.FS, folder string) (map[int]int, error) {
	names, err := fs.Glob(files, folder+"*.up.sql")
	if err != nil {
		return nil, err
	}
	from := make(map[int]int, len(names))
	for _, name := range names {
		content, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		number, _, _ := strings.Cut(path.Base(name), "_")
		version, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("migration %s: its name must begin with its number", path.Base(name))
		}
		h, err := parseHeader(string(content))
		if err == nil && h.compatibleFrom > version {
			err = fmt.Errorf("compatible from version %d, which is later than its own", h.compatibleFrom)
		}
		if err != nil {
			return nil, fmt.Errorf("migration %s: %w", path.Base(name), err)
		}
		from[version] = cmp.Or(h.compatibleFrom, version)
	}
	return from, nil
}
