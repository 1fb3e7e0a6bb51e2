package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// program is a jobq that was built.
type program struct {
	name   string // of the commit
	path   string
	tables int // the version of the tables that it makes
}

// buildBoth builds jobq of a commit, and of the working tree. With the same version of the tables, that
// of the working tree gets further migrations.
func buildBoth(ctx context.Context, from, folder string) (old, next program, err error) {
	root, err := output(ctx, ".", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return old, next, err
	}
	commit, err := output(ctx, root, "git", "rev-parse", "--short", "--verify", from+"^{commit}")
	if err != nil {
		return old, next, err
	}
	source := filepath.Join(folder, "source")
	if err := os.Mkdir(source, 0o755); err != nil { // #nosec G301 -- sources, which anybody may read
		return old, next, err
	}
	if _, err := output(ctx, root, "sh", "-c", `git archive "$0" | tar -x -C "$1"`, commit, source); err != nil {
		return old, next, err
	}
	old = program{name: "jobq of " + commit, path: filepath.Join(folder, "old")}
	next = program{name: "jobq of this working tree", path: filepath.Join(folder, "next")}
	if old.tables, err = tablesOf(source); err != nil {
		return old, next, err
	}
	if next.tables, err = tablesOf(root); err != nil {
		return old, next, err
	}
	if err := checkSame(source, root); err != nil {
		return old, next, fmt.Errorf("upgrade from %s: %w", commit, err)
	}
	var overlay []string
	if old.tables == next.tables {
		file, count, err := overlayLater(root, folder, next.tables)
		if err != nil {
			return old, next, err
		}
		overlay, next.tables = []string{"-overlay", file}, next.tables+count
	}
	if err := build(ctx, source, old.path); err != nil {
		return old, next, err
	}
	return old, next, build(ctx, root, next.path, overlay...)
}

func build(ctx context.Context, source, path string, more ...string) error {
	args := append([]string{"build", "-o", path}, more...)
	_, err := output(ctx, source, "env", append([]string{"CGO_ENABLED=0", "go"}, append(args, "./cmd/jobq")...)...)
	return err
}

// migrationFolder is where a working tree has its migrations.
const migrationFolder = "sql/migrations"

// tablesOf is the version of the tables that the sources make.
func tablesOf(source string) (int, error) {
	files, err := filepath.Glob(filepath.Join(source, migrationFolder, "*.up.sql"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s has no migrations", source)
	}
	return len(files), err
}

// checkSame refuses to upgrade from sources whose migrations are others than those of the working tree: `jobq migrate up`
// would not run them again, so the programs of the working tree would meet tables and functions that they do not know.
// Migrations were changed in place until the first release.
func checkSame(source, root string) error {
	files, err := filepath.Glob(filepath.Join(source, migrationFolder, "*.sql"))
	if err != nil {
		return err
	}
	for _, file := range files {
		was, err := os.ReadFile(file) // #nosec G304 -- of our own repository
		if err != nil {
			return err
		}
		name := filepath.Join(migrationFolder, filepath.Base(file))
		is, err := os.ReadFile(filepath.Join(root, name)) // #nosec G304 -- of our own repository
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if !bytes.Equal(was, is) {
			return fmt.Errorf("%s has changed since: name a commit with the same migrations, such as HEAD or the last release", name)
		}
	}
	return nil
}

// overlayLater writes what go build takes for further files of the migrations' folder, and returns how many
// migrations these are.
func overlayLater(root, folder string, from int) (file string, count int, err error) {
	replace := map[string]string{}
	for i, m := range later(from) {
		name := fmt.Sprintf("%03d_%s", from+1+i, m.name)
		for direction, sql := range map[string]string{"up": m.up, "down": m.down} {
			file := fmt.Sprintf("%s.%s.sql", name, direction)
			if err := os.WriteFile(filepath.Join(folder, file), []byte(sql), 0o600); err != nil {
				return "", 0, err
			}
			replace[filepath.Join(root, migrationFolder, file)] = filepath.Join(folder, file)
		}
		count++
	}
	content, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", 0, err
	}
	file = filepath.Join(folder, "overlay.json")
	return file, count, os.WriteFile(file, content, 0o600)
}

// output is what a program prints; its error has what it says of it.
func output(ctx context.Context, folder, name string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, name, args...) // #nosec G204 -- our own programs
	command.Dir = folder
	var said strings.Builder
	command.Stderr = &said
	content, err := command.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return strings.TrimSpace(string(content)), err
}
