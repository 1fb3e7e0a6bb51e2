package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// majorMin is the oldest PostgreSQL that jobq supports.
const majorMin = 14

// ErrNoBinaries means that no PostgreSQL server that can be used was found on
// this machine. Its text says what to do.
var ErrNoBinaries = errors.New("no PostgreSQL server (14 or later) found: install one (Debian: apt-get install postgresql; Fedora: dnf install postgresql-server; macOS: brew install postgresql), or set JOBQ_PG_BIN to the folder that has its initdb and postgres")

// Binaries are the programs of one PostgreSQL.
type Binaries struct {
	Folder  string // has initdb and postgres
	Version string // such as 15.4 or 19beta1
	Major   int
}

func (b Binaries) program(name string) string { return filepath.Join(b.Folder, name) }

// search says where to look for a server, and for which.
type search struct {
	account  account  // which must be able to run it
	major    int      // the only version that will do, or 0
	override string   // the only folder to look in, or empty
	path     []string // folders of PATH
	patterns []string // further folders, as patterns
	pgConfig bool     // whether to ask pg_config
}

// usualFolders is where a server's programs are, most often not in PATH.
func usualFolders() []string {
	return []string{
		"/usr/lib/postgresql/*/bin",         // Debian
		"/usr/pgsql-*/bin",                  // Red Hat, from postgresql.org
		"/usr/libexec/postgresql*",          // Alpine
		"/usr/lib/postgresql*/bin",          // SUSE
		"/opt/homebrew/opt/postgresql*/bin", // macOS, Apple silicon
		"/usr/local/opt/postgresql*/bin",    // macOS, Intel
		"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
		"/opt/local/lib/postgresql*/bin", // MacPorts
		"/Applications/Postgres.app/Contents/Versions/*/bin",
		"/Library/PostgreSQL/*/bin",
		"/usr/local/pgsql/bin", // from source
		"/usr/bin",
	}
}

// FindBinaries finds the server's programs: in JOBQ_PG_BIN if that is set, else
// the newest of PATH, of where pg_config points, of the usual folders and of
// an earlier download.
func FindBinaries(ctx context.Context) (Binaries, error) {
	account, err := serverAccount()
	if err != nil {
		return Binaries{}, err
	}
	return machineSearch(account, 0).find(ctx)
}

func machineSearch(a account, major int) search {
	patterns := usualFolders()
	if cache, err := cacheFolder(); err == nil {
		patterns = append(patterns, filepath.Join(escape(cache), "*", "bin"))
	}
	return search{
		account: a, major: major, override: os.Getenv("JOBQ_PG_BIN"), pgConfig: true,
		path: filepath.SplitList(os.Getenv("PATH")), patterns: patterns,
	}
}

// binaries finds the server's programs or, as the last resort, downloads them.
func binaries(ctx context.Context, a account, major int, log *slog.Logger) (Binaries, error) {
	s := machineSearch(a, major)
	found, err := s.find(ctx)
	if err == nil || s.override != "" || (major != 0 && major != downloadMajor) {
		return found, err
	}
	cache, cacheErr := cacheFolder()
	if cacheErr != nil {
		return Binaries{}, fmt.Errorf("%w (and there is no folder for a download: %w)", err, cacheErr)
	}
	log.Warn("downloading PostgreSQL: this machine has none", "folder", cache)
	if downloadErr := download(ctx, cache, sources()); downloadErr != nil {
		return Binaries{}, fmt.Errorf("%w (and the download did not work: %w)", err, downloadErr)
	}
	return s.find(ctx)
}

// Provide finds the server's programs as Start does, and downloads them if there are none.
func Provide(ctx context.Context, log *slog.Logger) (Binaries, error) {
	account, err := serverAccount()
	if err != nil {
		return Binaries{}, err
	}
	return binaries(ctx, account, 0, log)
}

// find returns the newest server that can be used.
func (s search) find(ctx context.Context) (Binaries, error) {
	var usable []Binaries
	var reasons []string
	for _, folder := range s.candidates(ctx) {
		found, err := s.examine(ctx, folder)
		if err != nil {
			reasons = append(reasons, err.Error())
			continue
		}
		usable = append(usable, found)
	}
	if len(usable) > 0 {
		return slices.MaxFunc(usable, func(a, b Binaries) int { return compareVersions(a.Version, b.Version) }), nil
	}
	if s.override != "" {
		return Binaries{}, fmt.Errorf("JOBQ_PG_BIN: %s", strings.Join(reasons, "; "))
	}
	err := ErrNoBinaries
	if s.major != 0 {
		err = fmt.Errorf("PostgreSQL %d made the data, and only that one can run them: %w", s.major, err)
	}
	if len(reasons) > 0 {
		err = fmt.Errorf("%w (not usable: %s)", err, strings.Join(reasons, "; "))
	}
	return Binaries{}, err
}

// candidates are the folders that have a server's programs, each once.
func (s search) candidates(ctx context.Context) []string {
	if s.override != "" {
		return []string{s.override}
	}
	folders := slices.Clone(s.path)
	if s.pgConfig {
		if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
			folders = append(folders, strings.TrimSpace(string(out)))
		}
	}
	for _, pattern := range s.patterns {
		matches, _ := filepath.Glob(pattern) // the patterns are well formed
		folders = append(folders, matches...)
	}
	var candidates []string
	for _, folder := range folders {
		// What is in PATH is often a link to where all of the server is.
		program, err := filepath.EvalSymlinks(filepath.Join(folder, "postgres"))
		if err != nil || !filepath.IsAbs(program) {
			continue
		}
		if folder = filepath.Dir(program); !slices.Contains(candidates, folder) {
			candidates = append(candidates, folder)
		}
	}
	return candidates
}

// examine runs a server's program for its version, as the account that will
// run the server: programs below root's home cannot be, for one.
func (s search) examine(ctx context.Context, folder string) (Binaries, error) {
	found := Binaries{Folder: folder}
	if _, err := os.Stat(found.program("initdb")); err != nil {
		return found, fmt.Errorf("%s has no initdb and postgres", folder)
	}
	command := exec.CommandContext(ctx, found.program("postgres"), "--version") // #nosec G204 -- what a server is run by
	command.Dir, command.Env = "/", environment()
	command.SysProcAttr = &syscall.SysProcAttr{Credential: s.account.credential}
	out, err := command.Output()
	if err != nil {
		return found, fmt.Errorf("%s as %s: %w", found.program("postgres"), s.account.name, err)
	}
	fields := strings.Fields(string(out)) // postgres (PostgreSQL) 15.4 (Debian …)
	if len(fields) < 3 {
		return found, fmt.Errorf("%s says no version", found.program("postgres"))
	}
	found.Version = fields[2]
	found.Major = versionParts(found.Version)[0]
	switch {
	case found.Major < majorMin:
		return found, fmt.Errorf("%s is PostgreSQL %s, older than %d", folder, found.Version, majorMin)
	case s.major != 0 && found.Major != s.major:
		return found, fmt.Errorf("%s is PostgreSQL %s, but PostgreSQL %d made the data", folder, found.Version, s.major)
	}
	return found, nil
}

// versionParts are a version's major and minor number. 19beta1 comes before 19.0.
func versionParts(version string) [2]int {
	major, minor, released := strings.Cut(version, ".")
	digits := func(text string) int {
		end := strings.IndexFunc(text, func(char rune) bool { return char < '0' || char > '9' })
		if end >= 0 {
			text = text[:end]
		}
		number, _ := strconv.Atoi(text) // 0 without digits
		return number
	}
	if !released {
		return [2]int{digits(major), -1}
	}
	return [2]int{digits(major), digits(minor)}
}

func compareVersions(a, b string) int {
	left, right := versionParts(a), versionParts(b)
	return slices.Compare(left[:], right[:])
}
