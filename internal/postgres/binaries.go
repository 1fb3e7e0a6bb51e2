package postgres

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ErrNoBinaries means that this machine has no PostgreSQL server that could
// be found. The text says what to do.
var ErrNoBinaries = errors.New("no PostgreSQL server found: install one (Debian: apt-get install postgresql; macOS: brew install postgresql), or set JOBQ_PG_BIN to the folder that has initdb and postgres")

// usualFolders is where distributions put the server's programs, which are
// rarely in PATH.
var usualFolders = []string{
	"/usr/lib/postgresql/*/bin",         // Debian
	"/usr/pgsql-*/bin",                  // Red Hat, from postgresql.org
	"/usr/libexec/postgresql*",          // Alpine
	"/opt/homebrew/opt/postgresql*/bin", // macOS, Apple silicon
	"/usr/local/opt/postgresql*/bin",    // macOS, Intel
	"/Applications/Postgres.app/Contents/Versions/*/bin",
	"/usr/local/pgsql/bin", // from source
	"/usr/bin",
}

// FindBinaries returns the folder with initdb and postgres: JOBQ_PG_BIN, else
// the newest of those in PATH, where pg_config points, and the usual folders.
func FindBinaries(ctx context.Context) (string, error) {
	if folder := os.Getenv("JOBQ_PG_BIN"); folder != "" {
		if hasServer(folder) {
			return folder, nil
		}
		return "", errors.New("JOBQ_PG_BIN=" + folder + " has no initdb and postgres")
	}
	var candidates []string
	if path, err := exec.LookPath("postgres"); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil { // initdb stands beside the real one
			candidates = append(candidates, filepath.Dir(real))
		}
	}
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		candidates = append(candidates, strings.TrimSpace(string(out)))
	}
	for _, pattern := range usualFolders {
		matches, _ := filepath.Glob(pattern) // the patterns are well formed
		candidates = append(candidates, matches...)
	}
	candidates = slices.DeleteFunc(candidates, func(folder string) bool { return !hasServer(folder) })
	if len(candidates) == 0 {
		return "", ErrNoBinaries
	}
	return slices.MaxFunc(candidates, func(a, b string) int { return majorVersion(ctx, a) - majorVersion(ctx, b) }), nil
}

func hasServer(folder string) bool {
	for _, program := range []string{"initdb", "postgres"} {
		info, err := os.Stat(filepath.Join(folder, program)) // #nosec G703 -- the folder is named by whoever runs us
		if err != nil || info.IsDir() {
			return false
		}
	}
	return true
}

// majorVersion asks the server's program; 0 when it does not run here.
func majorVersion(ctx context.Context, folder string) int {
	out, err := exec.CommandContext(ctx, filepath.Join(folder, "postgres"), "--version").Output() // #nosec G204 -- found by hasServer
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(out)) // postgres (PostgreSQL) 15.4 (Debian …)
	if len(fields) < 3 {
		return 0
	}
	end := strings.IndexFunc(fields[2], func(char rune) bool { return char < '0' || char > '9' }) // 15.4, 19beta1
	if end < 0 {
		end = len(fields[2])
	}
	major, _ := strconv.Atoi(fields[2][:end]) // 0 when there are no digits
	return major
}
