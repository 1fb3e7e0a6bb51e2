// Package postgres runs a private PostgreSQL server: for `jobq dev`, for the
// demo and for tests. It listens on a unix socket that only its user can
// reach, so that any number of them run side by side.
package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	superuser     = "postgres"
	readyPoll     = 10 * time.Millisecond
	startTimeout  = 60 * time.Second
	socketPort    = 5432 // names the socket; nothing listens on TCP for it
	logTailLength = 2000
)

// Config says what server to run. The zero value is a fresh one that is gone
// afterwards, as tests want it.
type Config struct {
	// DataDir keeps the data. Empty means a temporary folder that Stop removes.
	DataDir string
	// Durable keeps what a crash of the machine must not lose. Tests do without,
	// and so it is off by default.
	Durable bool
	// TCP makes the server listen on a free port of 127.0.0.1 too, for clients
	// that cannot use a unix socket. Whoever can log in to this machine can then
	// use it.
	TCP bool
	// Settings are added to the server's configuration.
	Settings map[string]string
	// Logger is told what takes long. Default: nothing is.
	Logger *slog.Logger
}

// Server is a running PostgreSQL server, a child of this process.
type Server struct {
	config    Config
	account   account
	binaries  string
	dataDir   string
	socketDir string
	temporary string // what Stop removes; empty for a lasting server
	port      int    // TCP, or 0
	lock      *os.File

	mu sync.Mutex
	// guarded by mu
	process *process
	stopped bool
}

// process is one life of the postmaster.
type process struct {
	pid    int
	exited chan struct{}
	log    *os.File
}

// Start makes the data folder if need be and starts the server. Its context
// bounds the start, not the server's life.
func Start(ctx context.Context, config Config) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{config: config}
	err := s.start(ctx)
	if err != nil {
		s.cleanUp()
		return nil, fmt.Errorf("private PostgreSQL: %w", err)
	}
	return s, nil
}

func (s *Server) start(ctx context.Context) error {
	var err error
	if s.account, err = serverAccount(); err != nil {
		return err
	}
	if s.binaries, err = binaries(ctx); err != nil {
		return err
	}
	if err := s.makeFolders(); err != nil {
		return err
	}
	if err := s.lockDataDir(); err != nil {
		return err
	}
	if err := s.initDataDir(ctx); err != nil {
		return err
	}
	if s.config.TCP {
		if s.port, err = freePort(ctx); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.launch(ctx)
}

// makeFolders makes a short socket folder, since the path of a socket has at
// most some hundred bytes, and the temporary data folder if there is no other.
func (s *Server) makeFolders() error {
	var err error
	if s.socketDir, err = os.MkdirTemp("/tmp", "jobq-pg-"); err != nil {
		return err
	}
	s.temporary = s.socketDir
	if err := s.account.own(s.socketDir); err != nil {
		return err
	}
	if s.config.DataDir == "" {
		s.dataDir = filepath.Join(s.socketDir, "data")
		return nil
	}
	if s.dataDir, err = filepath.Abs(s.config.DataDir); err != nil {
		return err
	}
	return s.account.own(filepath.Dir(s.dataDir))
}

// lockDataDir keeps two processes from making or using one data folder.
func (s *Server) lockDataDir() error {
	var err error
	if s.lock, err = os.OpenFile(s.dataDir+".lock", os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	if err := syscall.Flock(int(s.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil { // #nosec G115 -- a descriptor
		content, _ := os.ReadFile(s.lock.Name()) // only for the message
		return fmt.Errorf("the server on %s is in use by process %s: stop that, or use the URL that it printed", s.dataDir, strings.TrimSpace(string(content)))
	}
	if err := s.lock.Truncate(0); err != nil {
		return err
	}
	_, err = s.lock.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0)
	return err
}

// initDataDir makes the data folder, under another name first: a start that
// is cut off leaves nothing that looks like one.
func (s *Server) initDataDir(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(s.dataDir, "PG_VERSION")); err == nil {
		return nil
	}
	partial := s.dataDir + ".partial"
	if err := os.RemoveAll(partial); err != nil {
		return err
	}
	s.config.Logger.Info("making a PostgreSQL data folder", "folder", s.dataDir)
	command := exec.CommandContext(ctx, filepath.Join(s.binaries, "initdb"), "--pgdata", partial, "--username", superuser, // #nosec G204 -- found
		"--auth", "trust", "--no-locale", "--encoding", "UTF8", "--no-sync")
	command.SysProcAttr = &syscall.SysProcAttr{Credential: s.account.credential}
	command.Dir = s.socketDir
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, tail(out))
	}
	return os.Rename(partial, s.dataDir)
}

// settings is the server's command line.
func (s *Server) settings() []string {
	settings := map[string]string{
		"listen_addresses": "", "unix_socket_directories": s.socketDir, "port": strconv.Itoa(socketPort),
		"max_connections": "200", "log_destination": "stderr", "logging_collector": "off", "timezone": "UTC",
	}
	if s.config.TCP {
		settings["listen_addresses"], settings["port"] = "127.0.0.1", strconv.Itoa(s.port)
	}
	if !s.config.Durable {
		settings["fsync"], settings["synchronous_commit"], settings["full_page_writes"] = "off", "off", "off"
	}
	for name, value := range s.config.Settings {
		settings[name] = value
	}
	args := make([]string, 0, 2*len(settings)+2)
	for name, value := range settings {
		args = append(args, "-c", name+"="+value)
	}
	return append([]string{"-D", s.dataDir}, args...)
}

// launch starts the postmaster and waits until it takes connections.
func (s *Server) launch(ctx context.Context) error {
	log, err := os.Create(filepath.Join(s.socketDir, "postgres.log")) // #nosec G304 -- our own folder
	if err != nil {
		return err
	}
	command := exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(s.binaries, "postgres"), s.settings()...) // #nosec G204 -- found; it outlives ctx
	command.Dir, command.Stdout, command.Stderr = s.socketDir, log, log
	// A group of its own: Ctrl-C is for jobq, which stops the server when the
	// work on it has ended.
	command.SysProcAttr = &syscall.SysProcAttr{Credential: s.account.credential, Setpgid: true}
	dieWithParent(command.SysProcAttr)
	started, p := make(chan error), &process{exited: make(chan struct{}), log: log}
	go func() {
		// The death signal is bound to the thread, so the thread must live as
		// long as the server.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := command.Start()
		started <- err
		if err == nil {
			_ = command.Wait() // how it ended shows in its log
			close(p.exited)
		}
	}()
	if err := <-started; err != nil {
		return errors.Join(err, log.Close())
	}
	p.pid = command.Process.Pid
	s.process = p
	return s.awaitReady(ctx, p)
}

// awaitReady waits for the word "ready" in line 8 of postmaster.pid.
func (s *Server) awaitReady(ctx context.Context, p *process) error {
	ticker := time.NewTicker(readyPoll)
	defer ticker.Stop()
	for {
		content, _ := os.ReadFile(filepath.Join(s.dataDir, "postmaster.pid")) // absent at first
		lines := bytes.Split(content, []byte("\n"))
		if len(lines) >= 8 && string(lines[0]) == strconv.Itoa(p.pid) && bytes.HasPrefix(lines[7], []byte("ready")) {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("the server ended at once: %s", s.logTail())
		case <-ctx.Done():
			return fmt.Errorf("the server is not ready: %w: %s", ctx.Err(), s.logTail())
		case <-ticker.C:
		}
	}
}

// URL is how to connect to a database of the server as its superuser.
func (s *Server) URL(database string) string {
	if s.port != 0 {
		return fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", superuser, s.port, url.PathEscape(database))
	}
	query := url.Values{"host": {s.socketDir}, "port": {strconv.Itoa(socketPort)}}
	return fmt.Sprintf("postgres://%s@/%s?%s", superuser, url.PathEscape(database), query.Encode())
}

// Kill ends the server as a crash would: SIGKILL to the postmaster, whose
// children then end too.
func (s *Server) Kill() error { return s.end(syscall.SIGKILL) }

// Halt ends the server at once, as `pg_ctl stop -m immediate`.
func (s *Server) Halt() error { return s.end(syscall.SIGQUIT) }

func (s *Server) end(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return errors.New("private PostgreSQL: it does not run")
	}
	if err := syscall.Kill(s.process.pid, sig); err != nil {
		return fmt.Errorf("private PostgreSQL: %w", err)
	}
	<-s.process.exited
	return s.forget()
}

// Relaunch starts the server again after Kill or Halt, under the same URL.
func (s *Server) Relaunch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil || s.stopped {
		return errors.New("private PostgreSQL: only one that was killed can be started again")
	}
	for {
		err := s.launch(ctx)
		if err == nil {
			return nil
		}
		// Children of a killed postmaster may hold its shared memory for a moment.
		if s.process != nil {
			err = errors.Join(err, s.forget())
		}
		if ctx.Err() != nil {
			return fmt.Errorf("private PostgreSQL: %w", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * readyPoll):
		}
	}
}

// forget closes what belongs to a postmaster that has ended.
func (s *Server) forget() error {
	log := s.process.log
	s.process = nil
	return log.Close()
}

// Stop shuts the server down: it ends sessions and closes the data properly,
// and in less than no time when it must. What was temporary is removed. A
// second call does nothing.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	s.stopped = true
	defer s.cleanUp()
	if s.process == nil {
		return nil
	}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGKILL} {
		if err := syscall.Kill(s.process.pid, sig); errors.Is(err, syscall.ESRCH) {
			break
		}
		select {
		case <-s.process.exited:
			return s.forget()
		case <-ctx.Done():
		}
	}
	<-s.process.exited
	return errors.Join(ctx.Err(), s.forget())
}

// cleanUp removes what was temporary and gives the data folder free.
func (s *Server) cleanUp() {
	if s.process != nil { // a start that failed
		_ = syscall.Kill(s.process.pid, syscall.SIGKILL) // gone already: fine
		<-s.process.exited
		_ = s.forget()
	}
	if s.temporary != "" {
		_ = os.RemoveAll(s.temporary) // below /tmp, where others clean up too
	}
	if s.lock != nil {
		_ = s.lock.Close() // which unlocks
	}
}

func (s *Server) logTail() string {
	content, err := os.ReadFile(filepath.Join(s.socketDir, "postgres.log")) // #nosec G304 -- our own
	if err != nil {
		return err.Error()
	}
	return tail(content)
}

func tail(text []byte) string {
	return strings.TrimSpace(string(text[max(0, len(text)-logTailLength):]))
}

// freePort is a TCP port of the loopback that is free now.
func freePort(ctx context.Context) (int, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	port := listener.Addr().(*net.TCPAddr).Port
	return port, listener.Close()
}
