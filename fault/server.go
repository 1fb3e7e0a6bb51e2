package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// server is a PostgreSQL that a scenario has to itself, to copy, promote, fill
// up or give another clock.
type server struct {
	bin, dir string // of programs, and of data and socket
	owner    *syscall.Credential
	env      []string
	settings []string
	process  *exec.Cmd
	ended    chan struct{}
}

// newServer makes an empty cluster in the folder.
func (c *cluster) newServer(ctx context.Context, dir string, settings ...string) (*server, error) {
	s, err := c.serverIn(dir, settings...)
	if err != nil {
		return nil, err
	}
	return s, s.do(ctx, "initdb", "-D", s.data(), "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8", "--locale", "C")
}

// serverIn is a server whose cluster comes from elsewhere.
func (c *cluster) serverIn(dir string, settings ...string) (*server, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // the pattern is right
	slices.Sort(found)
	if len(found) == 0 {
		return nil, errors.New("no PostgreSQL programs in /usr/lib/postgresql")
	}
	s := &server{bin: found[len(found)-1], dir: dir, settings: settings}
	if err := os.MkdirAll(dir, 0o755); err != nil { // #nosec G301 -- the server's user goes through it
		return nil, err
	}
	if os.Getuid() != 0 {
		return s, nil
	}
	postgres, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, err1 := strconv.ParseUint(postgres.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(postgres.Gid, 10, 32)
	s.owner = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return s, errors.Join(err1, err2, os.Chown(dir, int(uid), int(gid))) // #nosec G115 -- 32 bits
}

func (s *server) data() string   { return filepath.Join(s.dir, "data") }
func (s *server) socket() string { return filepath.Join(s.dir, ".s.PGSQL.5432") }

func (s *server) url(database string) string {
	return fmt.Sprintf("postgres://postgres@/%s?host=%s&port=5432", database, s.dir)
}

func (s *server) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, filepath.Join(s.bin, name), args...) // #nosec G204 -- PostgreSQL's programs
	command.Dir = "/"
	command.Env = append([]string{"PATH=/usr/bin:/bin", "LC_ALL=C"}, s.env...)
	command.SysProcAttr = &syscall.SysProcAttr{Credential: s.owner, Pdeathsig: syscall.SIGINT}
	return command
}

func (s *server) do(ctx context.Context, name string, args ...string) error {
	if out, err := s.command(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

// start starts the server and waits until it answers.
func (s *server) start(ctx context.Context) error {
	args := []string{"-D", s.data(), "-k", s.dir, "-c", "listen_addresses=", "-c", "shared_buffers=32MB", "-c", "max_connections=200"}
	for _, setting := range s.settings {
		args = append(args, "-c", setting)
	}
	s.process, s.ended = s.command(context.WithoutCancel(ctx), "postgres", args...), make(chan struct{})
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) // #nosec G304 -- a scratch folder
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the server has its own
	s.process.Stdout, s.process.Stderr = log, log
	if err := s.process.Start(); err != nil {
		return err
	}
	go func() {
		_ = s.process.Wait() // how it ended is in its log
		close(s.ended)
	}()
	for end := time.Now().Add(patience); time.Now().Before(end); pause(ctx, 50*time.Millisecond) {
		conn, err := pgx.Connect(ctx, s.url("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		if !s.runs() {
			break
		}
	}
	content, _ := os.ReadFile(filepath.Join(s.dir, "log")) // empty: no more to say
	return fmt.Errorf("the server in %s does not start: %s", s.dir, content)
}

func (s *server) runs() bool {
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

// end ends the server: SIGINT at once but in order, SIGKILL as a crash.
func (s *server) end(signal syscall.Signal) {
	if s.process == nil {
		return
	}
	_ = s.process.Process.Signal(signal) // ended already: fine
	<-s.ended
}

// copyOf makes a streaming standby of the server, in another folder.
func (c *cluster) copyOf(ctx context.Context, primary *server, dir string, settings ...string) (*server, error) {
	s, err := c.serverIn(dir, settings...)
	if err != nil {
		return nil, err
	}
	return s, s.do(ctx, "pg_basebackup", "-h", primary.dir, "-U", "postgres", "-D", s.data(), "-R", "-X", "stream", "-c", "fast")
}

// What some scenarios need of the machine.

func root() error {
	if os.Getuid() != 0 {
		return errors.New("needs root, to mount a small disk")
	}
	return nil
}

func hostnames() error {
	if out, err := exec.Command("unshare", "--uts", "hostname", "web-1").CombinedOutput(); err != nil {
		return fmt.Errorf("needs root, to give processes other hostnames: %w: %s", err, out)
	}
	return nil
}

func fakeTime() error {
	if faketimeLibrary() == "" {
		return errors.New("needs libfaketime (apt-get install faketime)")
	}
	return nil
}

func faketimeLibrary() string {
	for _, pattern := range []string{"/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib/faketime/libfaketimeMT.so.1"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 { // the pattern is right
			return found[0]
		}
	}
	return ""
}

// fakeClock has the server take its clock from a file, as an offset such as +3600.
func (s *server) fakeClock(offset string) error {
	file := filepath.Join(s.dir, "clock")
	s.env = []string{"LD_PRELOAD=" + faketimeLibrary(), "FAKETIME_TIMESTAMP_FILE=" + file, "FAKETIME_NO_CACHE=1", "DONT_FAKE_MONOTONIC=1"}
	return s.setClock(offset)
}

func (s *server) setClock(offset string) error {
	file := filepath.Join(s.dir, "clock")
	if err := os.WriteFile(file+".new", []byte(strings.TrimSpace(offset)+"\n"), 0o644); err != nil { // #nosec G306 -- the server reads it
		return err
	}
	return os.Rename(file+".new", file)
}
