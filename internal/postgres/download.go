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

// downloadVersion is what is downloaded when no server is installed.
const (
	downloadVersion = embedded.V17
	downloadMajor   = 17
)

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
// temporary name first, one process at a time. The repository is the library's
// own unless given. When ctx is done first, the transfer goes on behind the
// caller's back until it ends by itself, since the library cannot cancel it.
func download(ctx context.Context, cache, repository string) error {
	if err := os.MkdirAll(cache, 0o755); err != nil { // #nosec G301 -- the server's user must read it
		return err
	}
	lock, err := awaitLock(ctx, filepath.Join(cache, "download.lock"))
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		err := fetch(cache, repository)
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

// fetch has the library download, check and unpack. It does that only on the
// way to a server of its own, which would not start as root, so it gets a
// place for the data where none can be made; what counts is whether the
// programs are there afterwards.
func fetch(cache, repository string) error {
	final := filepath.Join(cache, string(downloadVersion))
	if isComplete(filepath.Join(final, "bin")) {
		return nil // another process was quicker
	}
	scratch, err := os.MkdirTemp(cache, "partial-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }() // nothing but what was not needed
	obstacle := filepath.Join(scratch, "file")
	if err := os.WriteFile(obstacle, nil, 0o600); err != nil {
		return err
	}
	unpacked := filepath.Join(scratch, "unpacked")
	config := embedded.DefaultConfig().Version(downloadVersion).Port(0).
		CachePath(scratch).BinariesPath(unpacked).RuntimePath(filepath.Join(scratch, "run")).
		DataPath(filepath.Join(obstacle, "data")).Logger(io.Discard)
	if repository != "" {
		config = config.BinaryRepositoryURL(repository)
	}
	startErr := embedded.NewDatabase(config).Start()
	if !isComplete(filepath.Join(unpacked, "bin")) {
		return errors.Join(startErr, errors.New("the download has no PostgreSQL server"))
	}
	if err := openToAll(unpacked); err != nil {
		return err
	}
	return os.Rename(unpacked, final)
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
