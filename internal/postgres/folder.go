package postgres

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// folder is where a server lives:
//
//	owner.lock    held by the process that runs the server, and says which
//	server.lock   held by the server's own processes, which inherit it: who
//	              gets it knows that nothing of an earlier server is left
//	data/         the cluster
//	run/          the socket, unless the path is too long for one
//	password      the superuser's, for TCP
//	port          the TCP port of last time
//	postgres.log  what the server says; postgres.log.old is the one before
type folder struct {
	path      string
	account   account
	socket    string   // the folder of the socket
	temporary bool     // Stop removes it
	lock      *os.File // owner.lock, once it is ours
}

// socketPathBytesMax is the shortest limit among systems (macOS 104, Linux
// 108) without the final NUL.
const socketPathBytesMax = 103

func (f *folder) data() string       { return filepath.Join(f.path, "data") }
func (f *folder) ownerLock() string  { return filepath.Join(f.path, "owner.lock") }
func (f *folder) serverLock() string { return filepath.Join(f.path, "server.lock") }
func (f *folder) password() string   { return filepath.Join(f.path, "password") }
func (f *folder) lastPort() string   { return filepath.Join(f.path, "port") }
func (f *folder) log() string        { return filepath.Join(f.path, "postgres.log") }

// openFolder makes or takes the folder of a lasting server.
func openFolder(a account, path string) (*folder, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	f := &folder{path: path, account: a}
	// Only what is made here is given away: the folders above may be anybody's.
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { // #nosec G301 -- the server's user passes through
		return nil, err
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		// The lock's file comes first: by it another process that comes now
		// knows the folder.
		if err := errors.Join(a.give(path), touch(f.ownerLock()), a.give(f.ownerLock())); err != nil {
			return nil, err
		}
	} else if _, err := os.Lstat(f.ownerLock()); err != nil {
		return nil, fmt.Errorf("%s is not empty and not a folder that jobq made: give another, and leave that one as it is", path)
	}
	return f, f.makeSocketFolder()
}

func touch(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600) // #nosec G304 -- below the server's folder
	if err != nil {
		return err
	}
	return file.Close()
}

// socketFolder is below the server's own if a socket's path fits there, and
// else in /tmp, where it is always the same one.
func (f *folder) socketFolder() string {
	below := filepath.Join(f.path, "run")
	longest := filepath.Join(below, ".s.PGSQL.65535")
	// Clients take a comma for the end of a host's name.
	if len(longest) <= socketPathBytesMax && !strings.ContainsAny(below, ",\"'\\\n") {
		return below
	}
	sum := sha256.Sum256([]byte(f.path))
	return fmt.Sprintf("/tmp/jobq-%d-%x", f.account.uid, sum[:8])
}

// makeSocketFolder makes the socket's folder, which only the account can enter.
func (f *folder) makeSocketFolder() error {
	f.socket = f.socketFolder()
	err := os.Mkdir(f.socket, 0o700)
	if err == nil {
		return f.account.give(f.socket)
	}
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	// Others can write to /tmp, so what is there already may be theirs.
	info, err := os.Lstat(f.socket)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || info.Mode().Perm()&0o077 != 0 || int(stat.Uid) != f.account.uid {
		return fmt.Errorf("%s is not a folder of %s alone: remove it", f.socket, f.account.name)
	}
	return nil
}

// major is the version that made the cluster, or 0 before there is one: no
// other can run it.
func (f *folder) major() int {
	content, err := os.ReadFile(filepath.Join(f.data(), "PG_VERSION"))
	if err != nil {
		return 0
	}
	major, _ := strconv.Atoi(strings.TrimSpace(string(content))) // 0: initdb and the server will say what is wrong
	return major
}

// write makes one of the small files, which only the account can read.
func (f *folder) write(path, content string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600) // #nosec G304 -- below the server's folder
	if err != nil {
		return err
	}
	_, err = file.WriteString(content)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	return f.account.give(path)
}

// release gives the folder free, or removes it if it was temporary.
func (f *folder) release() error {
	if f == nil || f.lock == nil {
		return nil
	}
	var err error
	if f.temporary {
		err = f.remove()
	}
	err = errors.Join(err, unlock(f.lock))
	f.lock = nil
	return err
}

func (f *folder) remove() error {
	return errors.Join(os.RemoveAll(f.path), os.RemoveAll(f.socket))
}
