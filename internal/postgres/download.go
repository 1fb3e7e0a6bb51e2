package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	embedded "github.com/fergusstrange/embedded-postgres"

	"github.com/jobq-dev/jobq/internal/sleep"
)

// downloadVersion is what is downloaded when no server is installed. Debian's own version may be another.
const (
	downloadVersion = embedded.V17
	downloadMajor   = 17
)

// source is a way to get a server's programs, into a folder that has them in bin.
type source struct {
	name string
	// get fills the folder. It may leave rubbish in the scratch folder.
	get func(ctx context.Context, scratch, folder string) error
}

// sources are the ways, in the order in which they are tried. Not every network has all of them.
func sources() []source {
	return []source{
		{string(downloadVersion), func(_ context.Context, scratch, folder string) error { return fromLibrary("", scratch, folder) }},
		{"debian", fromDebian},
		{"npm", fromNPM},
	}
}

// cacheFolder keeps downloads.
func cacheFolder() (string, error) {
	if os.Getuid() == 0 { // root's home is closed to the user that the server runs as
		return "/var/cache/jobq/postgres", nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "jobq", "postgres"), nil
}

// download puts a server's programs into a folder of the cache, under a
// temporary name first, one process at a time. It tries one source after the
// other. When ctx is done first, the transfer goes on behind the
// caller's back until it ends by itself, since the library cannot cancel it.
func download(ctx context.Context, cache string, sources []source) error {
	if err := os.MkdirAll(cache, 0o755); err != nil { // #nosec G301 -- the server's user must read it
		return err
	}
	lock, err := awaitLock(ctx, filepath.Join(cache, "download.lock"))
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		err := fetch(ctx, cache, sources)
		done <- errors.Join(err, unlock(lock))
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func awaitLock(ctx context.Context, path string) (*os.File, error) {
	for {
		lock, err := account{}.tryLock(path)
		if lock != nil || err != nil {
			return lock, err
		}
		if err := sleep.For(ctx, lockPoll); err != nil {
			return nil, fmt.Errorf("another process's download: %w", err)
		}
	}
}

// fetch gets the programs from the first source that has them.
func fetch(ctx context.Context, cache string, sources []source) error {
	for _, source := range sources {
		if isComplete(filepath.Join(cache, source.name, "bin")) {
			return nil // another process was quicker
		}
	}
	var failures []error
	for _, source := range sources {
		err := fetchFrom(ctx, cache, source)
		if err == nil {
			return nil
		}
		failures = append(failures, fmt.Errorf("%s: %w", source.name, err))
	}
	return errors.Join(failures...)
}

func fetchFrom(ctx context.Context, cache string, from source) error {
	scratch, err := os.MkdirTemp(cache, "partial-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()     // nothing but what was not needed
	if err := os.Chmod(scratch, 0o755); err != nil { // #nosec G302 -- the server's user must read it
		return err
	}
	unpacked := filepath.Join(scratch, "unpacked")
	getErr := from.get(ctx, scratch, unpacked)
	if !isComplete(filepath.Join(unpacked, "bin")) {
		return errors.Join(getErr, errors.New("the download has no PostgreSQL server"))
	}
	if err := openToAll(unpacked); err != nil {
		return err
	}
	return os.Rename(unpacked, filepath.Join(cache, from.name))
}

// fromLibrary has the library download, check and unpack; from its own repository unless
// another is given. It does that only on the
// way to a server of its own, which would not start as root, so it gets a
// place for the data where none can be made; what counts is whether the
// programs are there afterwards.
func fromLibrary(repository, scratch, folder string) error {
	obstacle := filepath.Join(scratch, "file")
	if err := os.WriteFile(obstacle, nil, 0o600); err != nil {
		return err
	}
	config := embedded.DefaultConfig().Version(downloadVersion).Port(0).
		CachePath(scratch).BinariesPath(folder).RuntimePath(filepath.Join(scratch, "run")).
		DataPath(filepath.Join(obstacle, "data")).Logger(io.Discard)
	if repository != "" {
		config = config.BinaryRepositoryURL(repository)
	}
	return embedded.NewDatabase(config).Start()
}

func isComplete(folder string) bool {
	for _, program := range []string{"initdb", "postgres"} {
		if _, err := os.Stat(filepath.Join(folder, program)); err != nil {
			return false
		}
	}
	return true
}

// openToAll lets every user read, whatever root's umask is.
func openToAll(root string) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		mode := info.Mode().Perm() | 0o444
		if entry.IsDir() || mode&0o100 != 0 {
			mode |= 0o111
		}
		return os.Chmod(path, mode) // #nosec G122 -- nobody else can write to a folder that was just unpacked
	})
}
