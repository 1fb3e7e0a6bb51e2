package postgres

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"github.com/jobq-dev/jobq/internal/sleep"
)

const (
	// fastStopTimeout is for a shutdown that ends sessions and writes a
	// checkpoint.
	fastStopTimeout = 20 * time.Second
	// immediateStopTimeout is for one that does neither. The postmaster itself
	// kills, after 5 s, whoever of its children does not obey.
	immediateStopTimeout = 8 * time.Second
	// orphansTimeout is for the children of a killed postmaster to notice. Most
	// do at once; autovacuum of PostgreSQL 14 may wait 10 s for statistics first.
	orphansTimeout = 15 * time.Second
)

// ErrForced means that the server had to be stopped as if it had crashed. It
// is stopped, and recovers at its next start.
var ErrForced = errors.New("the server did not shut down in time and was ended at once")

var (
	errNotOurs = errors.New("another process runs it")
	errDown    = errors.New("it does not run")
	errUp      = errors.New("it runs already")
	errStopped = errors.New("it was stopped for good")
)

// Stop shuts the server down, and removes what was temporary. It ends sessions
// and writes everything to disk, for at most 20 s or until ctx is done; then it
// ends the server by force (ErrForced). In any case nothing of the server is
// left when Stop returns. A server that another process runs is left alone. A
// second call does nothing.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || s.owner != nil {
		return nil
	}
	s.stopped = true
	var err error
	if s.process != nil {
		err = s.shutDown(ctx)
		s.config.Logger.Debug("stopped PostgreSQL", "folder", s.folder.path)
	}
	if err = errors.Join(err, s.leave()); err != nil {
		return fmt.Errorf("stop of the private PostgreSQL: %w", err)
	}
	return nil
}

// abandon cleans up after a start that went wrong.
func (s *Server) abandon() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	if s.process != nil {
		canceled, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.shutDown(canceled) // by force, as it must be
	}
	return s.leave()
}

// shutDown asks ever less kindly.
func (s *Server) shutDown(ctx context.Context) error {
	p := s.process
	s.process = nil
	if ctx.Err() == nil && s.signal(ctx, p, syscall.SIGINT, fastStopTimeout) {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	if s.signal(ctx, p, syscall.SIGQUIT, immediateStopTimeout) {
		return ErrForced
	}
	_ = syscall.Kill(p.pid, syscall.SIGKILL) // gone already: fine
	<-p.exited
	return ErrForced
}

// signal says whether the postmaster has ended in time.
func (s *Server) signal(ctx context.Context, p *process, sig syscall.Signal, timeout time.Duration) bool {
	if hasExited(p) {
		return true
	}
	_ = syscall.Kill(p.pid, sig) // gone already: then it has exited
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-p.exited:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// leave gives the folder free once the last process of the server has ended:
// the children of a killed postmaster outlive it a little.
func (s *Server) leave() error {
	if s.folder == nil || s.folder.lock == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), orphansTimeout)
	defer cancel()
	lock, err := s.awaitFree(ctx)
	if lock != nil {
		s.folder.freeSharedMemory(ctx)
		err = lock.Close()
	}
	return errors.Join(err, s.folder.release())
}

// freeSharedMemory frees the little System V shared memory that a killed server
// leaves until the next one in its folder, which a temporary folder never
// sees. There are only some thousand such pieces for all of the machine.
func (f *folder) freeSharedMemory(ctx context.Context) {
	if status, err := readPostmaster(f.data()); err == nil && f.temporary && status.sharedMemory != "" {
		_ = exec.CommandContext(ctx, "ipcrm", "-m", status.sharedMemory).Run() // #nosec G204 -- not worth an error
	}
}

// Kill ends the server as a crash would: SIGKILL to the postmaster. Its children
// end as soon as they notice, and Kill returns after the last, or with an error
// after 15 s. Stop or Relaunch must follow.
func (s *Server) Kill() error { return s.end(syscall.SIGKILL) }

// Halt ends the server at once, as `pg_ctl stop -m immediate`: all sessions
// are cut. Stop or Relaunch must follow.
func (s *Server) Halt() error { return s.end(syscall.SIGQUIT) }

func (s *Server) end(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owner != nil {
		return fmt.Errorf("end of the private PostgreSQL: %w", errNotOurs)
	}
	if s.process == nil {
		return fmt.Errorf("end of the private PostgreSQL: %w", errDown)
	}
	p := s.process
	if !s.signal(context.Background(), p, sig, immediateStopTimeout) {
		return fmt.Errorf("end of the private PostgreSQL: process %d still runs %s after its %s", p.pid, immediateStopTimeout, sig)
	}
	s.process = nil
	// Until its children notice, clients are still served.
	ctx, cancel := context.WithTimeout(context.Background(), orphansTimeout)
	defer cancel()
	lock, err := s.awaitFree(ctx)
	if err != nil {
		return fmt.Errorf("end of the private PostgreSQL: %w", err)
	}
	return lock.Close()
}

// Relaunch starts the server again, under the same URL and with the same data,
// after Kill, Halt or its own death.
func (s *Server) Relaunch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	err := errUp
	switch {
	case s.owner != nil:
		err = errNotOurs
	case s.stopped:
		err = errStopped
	case s.process == nil || hasExited(s.process):
		s.process = nil
		err = s.launch(ctx)
	}
	if err != nil {
		return fmt.Errorf("new start of the private PostgreSQL: %w", err)
	}
	return nil
}

// Wait returns nil when the server has ended, by whatever cause, or when the
// process that owned it has; and an error when ctx is done first.
func (s *Server) Wait(ctx context.Context) error {
	if s.owner == nil {
		s.mu.Lock()
		p := s.process
		s.mu.Unlock()
		if p == nil {
			return nil
		}
		select {
		case <-p.exited:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for {
		lock, err := s.folder.account.tryLock(s.folder.ownerLock())
		if lock != nil {
			return unlock(lock)
		}
		if err != nil {
			return err
		}
		if err := sleep.For(ctx, lockPoll); err != nil {
			return err
		}
	}
}
