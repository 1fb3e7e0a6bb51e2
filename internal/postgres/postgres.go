// Package postgres runs a private PostgreSQL server: for `jobq dev`, for the
// demo and for tests. It listens on a unix socket that only its user can
// reach, so any number of them run side by side, and it dies with the process
// that started it. Binaries are those of the machine, else downloaded ones; as
// root the server runs as another user, since PostgreSQL refuses root.
//
// A lasting server belongs to a folder. The first process that starts it runs
// it, and whoever comes later uses that one for as long as it is there.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	superuser    = "postgres"
	startTimeout = 60 * time.Second
	readyPoll    = 10 * time.Millisecond
	lockPoll     = 50 * time.Millisecond
	socketPort   = 5432 // only names the socket: nothing listens on TCP for it
)

// Config says what server to run. The zero value is a fresh one that is gone
// afterwards, as tests want it.
type Config struct {
	// DataDir is the folder of a lasting server: its data, log, locks and
	// socket. It is made if need be. Default: a temporary folder that Stop
	// removes, and that a later Start removes if this process gets killed.
	DataDir string
	// InMemory puts the temporary folder into memory where there is a gigabyte
	// to spare for it (Linux: /dev/shm), which makes tests with many databases
	// much faster: a database has 300 files. Default: false, since a user's
	// data may be large. Ignored with DataDir.
	InMemory bool
	// Durable keeps what a crash of the machine must not lose. Default: false,
	// since tests do without fsync and are many times faster for it; what was
	// committed survives a crash of the server in any case.
	Durable bool
	// TCP makes the server listen on 127.0.0.1 too, for clients that cannot use
	// a unix socket. Every user of the machine reaches the loopback, and a
	// superuser of the database runs programs as the server's user: so TCP asks
	// for a password (SCRAM), which is made once per folder and is in the URL.
	TCP bool
	// Port is the TCP port. Default: the one of last time if it is free, else
	// any free one. Ignored without TCP.
	Port int
	// Settings are more of postgresql.conf, and go before this package's own but
	// for where the server listens. Default: none.
	Settings map[string]string
	// Logger is told what takes long or goes wrong. Default: nobody is.
	Logger *slog.Logger
}

// Owner is the process that runs a server.
type Owner struct {
	PID     int    `json:"pid"`
	Program string `json:"program"` // without its folder and arguments, which may hold secrets
}

func (o Owner) String() string { return fmt.Sprintf("process %d (%s)", o.PID, o.Program) }

// Server is a running PostgreSQL server: a child of this process or, when it
// was found running, of its Owner.
type Server struct {
	config   Config
	folder   *folder
	binaries Binaries
	port     int    // of the socket and, with TCP, of 127.0.0.1
	password string // empty without TCP
	owner    *Owner // nil when this process runs the server

	mu sync.Mutex
	// guarded by mu
	process *process // nil when the server is down
	stopped bool
}

// Start makes the folder if need be and starts the server, or finds the one
// that runs there. ctx bounds the start, at most a minute, not the server's
// life.
func Start(ctx context.Context, config Config) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{config: config, port: socketPort}
	if err := s.start(ctx); err != nil {
		return nil, fmt.Errorf("private PostgreSQL: %w", errors.Join(err, s.abandon()))
	}
	return s, nil
}

func (s *Server) start(ctx context.Context) error {
	account, err := serverAccount()
	if err != nil {
		return err
	}
	if s.config.DataDir == "" {
		s.folder, err = newTemporaryFolder(ctx, account, s.config.InMemory)
	} else {
		s.folder, err = openFolder(account, s.config.DataDir)
	}
	if err != nil {
		return err
	}
	if err := account.enters(ctx, s.folder.path); err != nil {
		return err
	}
	if s.folder.lock == nil {
		if err := s.claim(ctx); err != nil || s.owner != nil {
			return err
		}
	}
	if s.binaries, err = binaries(ctx, account, s.folder.major(), s.config.Logger); err != nil {
		return err
	}
	if err := s.initialize(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.config.TCP {
		return s.launch(ctx)
	}
	return s.launchTCP(ctx)
}

// URL is how to connect to a database of the server as its superuser: over TCP
// if the server was asked to listen there, else over the unix socket. It stays
// the same until Stop, and for a lasting server from one start to the next
// unless its TCP port was taken meanwhile.
func (s *Server) URL(database string) string {
	if s.password == "" {
		return s.SocketURL(database)
	}
	address := url.URL{
		Scheme: "postgres", User: url.UserPassword(superuser, s.password),
		Host: "127.0.0.1:" + strconv.Itoa(s.port), Path: "/" + database, RawQuery: "sslmode=disable",
	}
	return address.String()
}

// SocketURL is URL over the unix socket, whether or not there is TCP. Only the
// server's user and root can enter the socket's folder, so it needs no password.
func (s *Server) SocketURL(database string) string {
	// libpq takes a plus sign for itself, where Go means a space.
	host := strings.ReplaceAll(url.QueryEscape(s.folder.socket), "+", "%20")
	return fmt.Sprintf("postgres://%s@/%s?host=%s&port=%d", superuser, url.PathEscape(database), host, s.port)
}

// Version is the server's version, such as 15.4, or empty when another process
// runs the server.
func (s *Server) Version() string { return s.binaries.Version }

// Owner is the other process that runs the server, or nil when this one does.
// The server goes when its owner does: see Wait.
func (s *Server) Owner() *Owner { return s.owner }

// PID is the postmaster's process id, or 0 when the server is down or another
// process runs it.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil || hasExited(s.process) {
		return 0
	}
	return s.process.pid
}

// SocketFile is the server's unix socket.
func (s *Server) SocketFile() string {
	return filepath.Join(s.folder.socket, ".s.PGSQL."+strconv.Itoa(s.port))
}
