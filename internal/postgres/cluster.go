package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// initialize makes the cluster if there is none, under another name first: a
// start that is cut off leaves nothing that looks like one.
func (s *Server) initialize(ctx context.Context) error {
	f := s.folder
	if f.major() != 0 {
		return nil
	}
	if _, err := os.Lstat(f.data()); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is there but not PostgreSQL's: %w", f.data(), errors.Join(err, fs.ErrExist))
	}
	partial := f.data() + ".partial"
	if err := os.RemoveAll(partial); err != nil {
		return err
	}
	if err := f.write(f.password(), rand.Text()); err != nil {
		return err
	}
	s.config.Logger.Info("making a PostgreSQL cluster", "folder", f.path, "version", s.binaries.Version)
	// Trust on the socket, since its folder lets nobody else in.
	args := []string{
		"--pgdata", partial, "--username", superuser, "--pwfile", f.password(),
		"--auth-local", "trust", "--auth-host", "scram-sha-256",
		"--encoding", "UTF8", "--locale", "C", "--no-instructions",
	}
	if !s.config.Durable {
		args = append(args, "--no-sync")
	}
	command := exec.CommandContext(ctx, s.binaries.program("initdb"), args...) // #nosec G204 -- found by find
	s.prepare(command, syscall.SIGKILL)
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = time.Second
	// The kernel kills it when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, tail(out))
	}
	return os.Rename(partial, f.data())
}

// prepare makes a command run as the server's user, in a process group of its
// own (Ctrl-C is for jobq, which stops the server after its work), and get the
// signal when this process dies.
func (s *Server) prepare(command *exec.Cmd, death syscall.Signal) {
	command.Dir = s.folder.path
	command.Env = environment()
	command.SysProcAttr = &syscall.SysProcAttr{Credential: s.folder.account.credential, Setpgid: true}
	dieWithParent(command.SysProcAttr, death)
}

// environment leaves out what would change the server (PG*, LC_*) and secrets:
// programs that SQL runs inherit it.
func environment() []string {
	env := []string{"LC_ALL=C", "TZ=UTC"}
	for _, name := range []string{"PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// arguments is the server's command line, which goes before its files.
func (s *Server) arguments() []string {
	settings := map[string]string{
		"max_connections": "200", "log_destination": "stderr", "logging_collector": "off",
		"log_line_prefix": "%m [%p] %d ", "timezone": "UTC", "cluster_name": "jobq",
	}
	if !s.config.Durable {
		// Commits stay synchronous, which costs little without fsync: tests kill
		// servers and look for what was committed.
		settings["fsync"], settings["full_page_writes"] = "off", "off"
	}
	if s.folder.temporary {
		// Shared memory of a killed server is removed with the folder then, and
		// does not stay in /dev/shm for ever.
		settings["dynamic_shared_memory_type"] = "mmap"
	}
	maps.Copy(settings, s.config.Settings)
	settings["unix_socket_directories"] = `"` + s.folder.socket + `"` // quoted: it may have spaces
	settings["listen_addresses"], settings["port"] = "", strconv.Itoa(s.port)
	if s.config.TCP {
		settings["listen_addresses"] = "127.0.0.1"
	}
	args := []string{"-D", s.folder.data()}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	return args
}

// portsMax is how many free ports are tried: each may be taken between the
// moment it was found free and the server's start.
const portsMax = 5

// launchTCP launches the server with a TCP port.
func (s *Server) launchTCP(ctx context.Context) error {
	password, err := os.ReadFile(s.folder.password())
	if err != nil {
		return err
	}
	s.password, s.port = string(password), s.config.Port
	if s.port != 0 {
		return s.launch(ctx)
	}
	last, _ := os.ReadFile(s.folder.lastPort())                // absent the first time
	wanted, _ := strconv.Atoi(strings.TrimSpace(string(last))) // 0 is any
	for range portsMax {
		if s.port, err = freePort(ctx, wanted); err != nil {
			return err
		}
		if err = s.launch(ctx); err == nil {
			return s.folder.write(s.folder.lastPort(), strconv.Itoa(s.port))
		}
		if s.process != nil || !strings.Contains(err.Error(), "Address already in use") {
			return err
		}
		wanted = 0
	}
	return err
}

// freePort is the wanted port of the loopback if it is free, else one that is.
func freePort(ctx context.Context, wanted int) (int, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(wanted)))
	if err != nil && wanted != 0 {
		listener, err = config.Listen(ctx, "tcp", "127.0.0.1:0")
	}
	if err != nil {
		return 0, err
	}
	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		return 0, errors.Join(fmt.Errorf("%s is no TCP address", listener.Addr()), listener.Close())
	}
	return address.Port, listener.Close()
}

// removeStale removes what a killed server left and the next would take for a
// running one, if some other process has its pid by now (as in containers). The
// caller has the server's lock, so no server of this package runs; one that was
// started here by hand has its socket elsewhere and keeps its file.
func (f *folder) removeStale() error {
	paths, _ := filepath.Glob(filepath.Join(escape(f.socket), ".s.PGSQL.*")) // the pattern is well formed
	if status, err := readPostmaster(f.data()); err == nil && status.socketFolder == f.socket {
		paths = append(paths, filepath.Join(f.data(), "postmaster.pid"))
	}
	var errs error
	for _, path := range paths {
		errs = errors.Join(errs, os.Remove(path))
	}
	return errs
}

// escape makes a path stand for itself in a pattern.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
