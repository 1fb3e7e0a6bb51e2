package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"github.com/jobq-dev/jobq/internal/sleep"
)

const (
	// logBytesMax is when a start puts the log aside.
	logBytesMax = 8 << 20
	// tailBytes is how much of an output goes into an error.
	tailBytes = 2000
)

// process is one life of the postmaster.
type process struct {
	pid    int
	exited chan struct{}
}

// launch starts the postmaster and waits until it takes connections. After an
// error s.process is set only if it still runs.
func (s *Server) launch(ctx context.Context) error {
	lock, err := s.awaitFree(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }() // the server has it by then; closed, not unlocked
	if err := s.folder.removeStale(); err != nil {
		return err
	}
	log, err := s.folder.openLog()
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // only ever read here
	begin, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	p, err := s.spawn(ctx, lock, log)
	if err != nil {
		return err
	}
	s.process = p
	if err := s.awaitReady(ctx, p); err != nil {
		if hasExited(p) {
			s.process = nil
		}
		text, _ := io.ReadAll(io.NewSectionReader(log, begin, logBytesMax)) // only for the message
		return fmt.Errorf("%w: %s", err, tail(text))
	}
	s.config.Logger.Debug("started PostgreSQL", "pid", p.pid, "version", s.binaries.Version, "folder", s.folder.path)
	return nil
}

// spawn starts the postmaster from a goroutine that lasts as long as it does:
// the death signal comes when the thread ends that started the process, so the
// goroutine keeps its thread to itself.
func (s *Server) spawn(ctx context.Context, lock, log *os.File) (*process, error) {
	command := exec.CommandContext(context.WithoutCancel(ctx), s.binaries.program("postgres"), s.arguments()...) // #nosec G204 -- found by find
	s.prepare(command, syscall.SIGINT)
	command.Stdout, command.Stderr = log, log
	command.ExtraFiles = []*os.File{lock}
	started, p := make(chan error), &process{exited: make(chan struct{})}
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := command.Start()
		started <- err
		if err == nil {
			_ = command.Wait() // how it ended is in its log
			close(p.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	p.pid = command.Process.Pid
	return p, nil
}

// awaitReady waits for the server's own word that it is ready.
func (s *Server) awaitReady(ctx context.Context, p *process) error {
	for {
		status, err := readPostmaster(s.folder.data())
		if err == nil && status.pid == p.pid && status.ready {
			return nil
		}
		if hasExited(p) {
			return errors.New("the server ended at once")
		}
		if err := sleep.For(ctx, readyPoll); err != nil {
			return fmt.Errorf("the server is not ready: %w", err)
		}
	}
}

func hasExited(p *process) bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// openLog opens the log to append, after putting a long one aside.
func (f *folder) openLog() (*os.File, error) {
	if info, err := os.Lstat(f.log()); err == nil && info.Size() > logBytesMax {
		if err := os.Rename(f.log(), f.log()+".old"); err != nil {
			return nil, err
		}
	}
	log, err := os.OpenFile(f.log(), os.O_RDWR|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.account.give(f.log()); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return log, nil
}

func tail(text []byte) string {
	return string(bytes.TrimSpace(text[max(0, len(text)-tailBytes):]))
}
