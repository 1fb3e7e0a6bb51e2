package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jobq-dev/jobq"
)

// exportFile is the file of a day that is being written: DIR/2026-11-02.ndjson.part. When it
// is whole it gets its name. It is locked against another export in the same folder.
type exportFile struct {
	dayExport
	dir, path string
	file      *os.File
	size      int64 // of the lines that are whole
}

// openExport opens the file of a day, or makes it.
func openExport(dir string, day time.Time) (*exportFile, error) {
	e := &exportFile{dayExport: dayExport{day: day}, dir: dir}
	e.path = e.named("", ".part")
	file, err := os.OpenFile(e.path, os.O_RDWR|os.O_CREATE, 0o600) // #nosec G304 -- the operator's own folder
	if err != nil {
		return nil, err
	}
	e.file = file
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) // #nosec G115 -- a descriptor
	if err == nil {                                                      // it may have got its name just before
		opened, statErr := file.Stat()
		named, lstatErr := os.Lstat(e.path)
		if err = errors.Join(statErr, lstatErr); err == nil && !os.SameFile(opened, named) {
			err = syscall.EWOULDBLOCK
		}
	}
	if err != nil {
		e.close()
		if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%s: another export is writing it", e.path)
		}
		return nil, fmt.Errorf("%s: %w", e.path, err)
	}
	return e, nil
}

// named is the path of a file of the day.
func (e *exportFile) named(number, suffix string) string {
	return filepath.Join(e.dir, e.day.Format(time.DateOnly)+number+".ndjson"+suffix)
}

// close closes the file. What is in it was synced, or is not counted on.
func (e *exportFile) close() { _ = e.file.Close() }

// discardEmpty removes the file when nothing is in it.
func (e *exportFile) discardEmpty() error {
	if e.size > 0 {
		return nil
	}
	return os.Remove(e.path)
}

// read finds out how far an export has come that was cut off: it may have ended in the
// middle of a line.
func (e *exportFile) read() error {
	reader := bufio.NewReaderSize(e.file, 1<<20)
	for {
		text, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var line exportLine
		if json.Unmarshal(text, &line) != nil || (line.Begin != nil) != (e.size == 0) || !e.take(line) {
			return nil // what comes from here on was not written whole
		}
		e.size += int64(len(text))
	}
}

// restart begins the file anew, for an export that has begun at that time.
func (e *exportFile) restart(schema string, began time.Time) error {
	e.dayExport, e.size = dayExport{day: e.day}, 0
	if err := e.rewind(); err != nil {
		return err
	}
	return e.begin(e.file, schema, began)
}

// rewind cuts off what is not whole, and goes to the end.
func (e *exportFile) rewind() error {
	if err := e.file.Truncate(e.size); err != nil {
		return err
	}
	_, err := e.file.Seek(e.size, io.SeekStart)
	return err
}

// complete writes what is missing, and gives the file its name once it is on the disk.
func (e *exportFile) complete(ctx context.Context, client *jobq.Client) error {
	if e.size > 0 {
		if err := e.rewind(); err != nil {
			return err
		}
	}
	buffered := bufio.NewWriterSize(e.file, 1<<20)
	err := e.write(ctx, client, buffered)
	if err = errors.Join(err, buffered.Flush()); err != nil { // the next export goes on with what is there
		return err
	}
	if err := e.file.Sync(); err != nil {
		return err
	}
	name := e.named("", "")
	for number := 2; ; number++ {
		if _, err := os.Lstat(name); errors.Is(err, os.ErrNotExist) {
			break
		} else if err != nil {
			return err
		}
		name = e.named(fmt.Sprintf(".%d", number), "")
	}
	if err := os.Rename(e.path, name); err != nil {
		return err
	}
	e.path = name
	return syncFolder(e.dir)
}

// syncFolder makes sure that the names in a folder are on the disk.
func syncFolder(path string) error {
	folder, err := os.Open(path) // #nosec G304 -- the operator's own folder
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
