package postgres

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// tryLock opens a file, makes it if need be, and locks it for this process.
// The file is nil when somebody else has it.
func (a account) tryLock(path string) (*os.File, error) {
	_, err := os.Lstat(path)
	fresh := errors.Is(err, os.ErrNotExist)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600) // #nosec G304 -- below the server's folder
	if err != nil {
		return nil, err
	}
	if fresh {
		// The same user without sudo must be able to lock it later.
		if err := a.give(path); err != nil {
			return nil, errors.Join(err, file.Close())
		}
	}
	if err := lock(file); err != nil {
		if closeErr := file.Close(); closeErr != nil || !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock on %s: %w", path, errors.Join(err, closeErr))
		}
		return nil, nil
	}
	// Between open and lock a sweep may have removed the file: a lock on what
	// is no longer there protects nothing.
	held, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if named, err := os.Lstat(path); err != nil || !os.SameFile(held, named) {
		return nil, file.Close()
	}
	return file, nil
}

func lock(file *os.File) error {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) // #nosec G115 -- a descriptor
}

// unlock gives a lock back at once, even while a program that is just being
// started still has a copy of the descriptor.
func unlock(file *os.File) error {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_UN) // #nosec G115 -- a descriptor
	return errors.Join(err, file.Close())
}
