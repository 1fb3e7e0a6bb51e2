package postgres

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

const (
	// temporaryPrefix begins the names of temporary folders.
	temporaryPrefix = "jobq-server-"
	// halfMadeAge is when a temporary folder without a lock is given up.
	halfMadeAge = time.Hour
	// memoryFolder is a file system in memory, on Linux.
	memoryFolder = "/dev/shm"
	// memoryBytesMin must be free in it: containers often have only 64 MB.
	memoryBytesMin = 1 << 30
)

// newTemporaryFolder makes and locks a temporary folder, and removes those
// whose processes were killed: a server's folder has 40 MB and more.
func newTemporaryFolder(ctx context.Context, a account, inMemory bool) (*folder, error) {
	bases := []string{memoryFolder, os.TempDir(), "/tmp"}
	for _, base := range slices.Compact(bases) {
		sweep(a, base)
	}
	if !inMemory || freeBytes(memoryFolder) < memoryBytesMin {
		bases = bases[1:]
	}
	for len(bases) > 1 && a.enters(ctx, bases[0]) != nil {
		bases = bases[1:] // root's TMPDIR may be root's alone
	}
	return makeTemporaryFolder(a, bases[0])
}

// freeBytes is what a file system has free, or 0 if there is none.
func freeBytes(path string) uint64 {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(path, &stat); err != nil {
		return 0
	}
	return uint64(stat.Bavail) * uint64(stat.Bsize) // #nosec G115 -- a size
}

func makeTemporaryFolder(a account, base string) (*folder, error) {
	for {
		path, err := os.MkdirTemp(base, temporaryPrefix)
		if err != nil {
			return nil, err
		}
		f := &folder{path: path, account: a, temporary: true}
		if f.lock, err = a.tryLock(f.ownerLock()); err != nil {
			return nil, errors.Join(err, os.RemoveAll(path))
		}
		if f.lock == nil {
			continue // swept by another process before it had its lock
		}
		if err := errors.Join(a.give(path), f.makeSocketFolder()); err != nil {
			return nil, errors.Join(err, f.release())
		}
		return f, nil
	}
}

// sweep removes temporary folders that nobody runs a server in. What cannot be
// removed stays for the next sweep.
func sweep(a account, base string) {
	paths, _ := filepath.Glob(filepath.Join(base, temporaryPrefix+"*")) // the pattern is well formed
	for _, path := range paths {
		info, err := os.Lstat(path)
		if err != nil || !info.IsDir() {
			continue
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok || (int(stat.Uid) != a.uid && int(stat.Uid) != os.Getuid()) {
			continue
		}
		sweepFolder(a, path, info.ModTime())
	}
}

// sweepFolder removes one temporary folder if both its locks are free: a
// server whose owner was killed needs its files until it has shut down.
func sweepFolder(a account, path string, made time.Time) {
	f := &folder{path: path, account: a, temporary: true}
	f.socket = f.socketFolder()
	if _, err := os.Lstat(f.ownerLock()); errors.Is(err, fs.ErrNotExist) {
		if time.Since(made) > halfMadeAge {
			_ = os.RemoveAll(path) // tried again by the next sweep
		}
		return
	}
	owner, err := a.tryLock(f.ownerLock())
	if err != nil || owner == nil {
		return
	}
	server, err := a.tryLock(f.serverLock())
	switch {
	case err != nil:
	case server == nil:
		f.signalOrphan(syscall.SIGINT) // where the kernel does not do it; swept the next time
	default:
		_ = f.remove() // tried again by the next sweep
		_ = server.Close()
	}
	_ = unlock(owner)
}
