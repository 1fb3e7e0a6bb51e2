package postgres

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jobq-dev/jobq/internal/sleep"
)

// claim makes this process the owner of the folder, or finds the server of the
// process that is. While that one starts or stops its server, claim waits.
func (s *Server) claim(ctx context.Context) error {
	said := false
	for {
		lock, err := s.folder.account.tryLock(s.folder.ownerLock())
		if err != nil {
			return err
		}
		if lock != nil {
			s.folder.lock = lock
			return s.signOwner()
		}
		owner, err := readOwner(s.folder.ownerLock())
		if err == nil && s.attach(ctx) {
			s.owner = owner
			s.config.Logger.Info("found a running PostgreSQL", "owner", owner.String(), "folder", s.folder.path)
			return nil
		}
		if !said && owner != nil {
			said = true
			s.config.Logger.Warn("waiting for another process's PostgreSQL", "owner", owner.String(), "folder", s.folder.path)
		}
		if err := sleep.For(ctx, lockPoll); err != nil {
			if owner == nil {
				owner = &Owner{}
			}
			return fmt.Errorf("%s has the folder %s, but its server is not ready: %w", owner, s.folder.path, err)
		}
	}
}

// signOwner says in the lock's file who has it.
func (s *Server) signOwner() error {
	content, err := json.Marshal(Owner{PID: os.Getpid(), Program: filepath.Base(os.Args[0])})
	if err != nil {
		return err
	}
	if err := s.folder.lock.Truncate(0); err != nil {
		return err
	}
	_, err = s.folder.lock.WriteAt(content, 0)
	return err
}

func readOwner(path string) (*Owner, error) {
	content, err := os.ReadFile(path) // #nosec G304 -- below the server's folder
	if err != nil {
		return nil, err
	}
	var owner Owner
	if err := json.Unmarshal(content, &owner); err != nil {
		return nil, err // it was just being written
	}
	return &owner, nil
}

// attach takes over what the owner's server says about itself, if it is ready.
func (s *Server) attach(ctx context.Context) bool {
	status, err := readPostmaster(s.folder.data())
	if err != nil || !status.ready || !status.answers(ctx) {
		return false
	}
	s.folder.socket, s.port = status.socketFolder, status.port
	if s.config.TCP && status.tcp {
		password, err := os.ReadFile(s.folder.password())
		if err != nil {
			return false
		}
		s.password = string(password)
	}
	return true
}

// postmaster is what a server writes about itself in postmaster.pid.
type postmaster struct {
	pid          int
	port         int
	socketFolder string
	tcp          bool
	sharedMemory string // its id, or empty
	ready        bool
}

func readPostmaster(data string) (*postmaster, error) {
	content, err := os.ReadFile(filepath.Join(data, "postmaster.pid")) // #nosec G304 -- below the server's folder
	if err != nil {
		return nil, err
	}
	lines := strings.Split(string(bytes.TrimSpace(content)), "\n")
	status := &postmaster{}
	if status.pid, err = strconv.Atoi(strings.TrimSpace(lines[0])); err != nil {
		return nil, err
	}
	// pid, data folder, start time, port, socket folder, address, shared
	// memory, status: written bit by bit while the server starts.
	if len(lines) < 8 {
		return status, nil
	}
	if status.port, err = strconv.Atoi(lines[3]); err != nil {
		return nil, err
	}
	status.socketFolder, status.tcp = lines[4], lines[5] != ""
	if memory := strings.Fields(lines[6]); len(memory) == 2 { // key and id
		status.sharedMemory = memory[1]
	}
	status.ready = strings.HasPrefix(lines[7], "ready")
	return status, nil
}

// answers tells a server from what a killed one left behind.
func (p *postmaster) answers(ctx context.Context) bool {
	dialer := net.Dialer{Timeout: time.Second}
	conn, err := dialer.DialContext(ctx, "unix", filepath.Join(p.socketFolder, ".s.PGSQL."+strconv.Itoa(p.port)))
	if err != nil {
		return false
	}
	_ = conn.Close() // nothing was sent
	return true
}

// awaitFree waits until nothing is left of an earlier server in the folder and
// returns the lock for the next. Linux has told the server of a killed jobq to
// shut down; elsewhere this does.
func (s *Server) awaitFree(ctx context.Context) (*os.File, error) {
	signals, due := []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT}, time.Now()
	for {
		lock, err := s.folder.account.tryLock(s.folder.serverLock())
		if lock != nil || err != nil {
			return lock, err
		}
		if len(signals) > 0 && !time.Now().Before(due) && s.folder.signalOrphan(signals[0]) {
			s.config.Logger.Warn("stopping a PostgreSQL without an owner", "signal", signals[0].String(), "folder", s.folder.path)
			signals, due = signals[1:], time.Now().Add(fastStopTimeout)
		}
		if err := sleep.For(ctx, readyPoll); err != nil {
			return nil, fmt.Errorf("processes of an earlier server still run in %s: %w", s.folder.path, err)
		}
	}
}

// signalOrphan signals a postmaster whose owner is dead, and says whether
// there was one. The caller has the owner's lock and found the server's taken.
func (f *folder) signalOrphan(sig syscall.Signal) bool {
	status, err := readPostmaster(f.data())
	return err == nil && leadsGroup(status.pid) && syscall.Kill(status.pid, sig) == nil
}

// leadsGroup holds for postmasters that this package started, and for few of
// the processes that could have a dead one's pid by now.
func leadsGroup(pid int) bool {
	group, err := syscall.Getpgid(pid)
	return err == nil && group == pid
}
