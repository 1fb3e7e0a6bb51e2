package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a jobq that works on its own.
type process struct {
	name    string
	command *exec.Cmd
	said    saying
	ended   chan struct{}
	err     error // once it has ended: how
	worker  bool  // it runs jobs
	leaves  bool  // since it was told to
}

// saying is what a process has written, to be read while it grows.
type saying struct {
	mu      sync.Mutex
	content bytes.Buffer
}

func (s *saying) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.content.Write(p)
}

func (s *saying) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.content.String()
}

// start starts a program. It ends with the context at the latest, as a crash would end it.
func start(ctx context.Context, name, url string, p program, args ...string) (*process, error) {
	r := &process{name: name, ended: make(chan struct{})}
	r.command = exec.CommandContext(ctx, p.path, args...) // #nosec G204 -- the programs that are measured
	r.command.Env = environment(url, name)
	r.command.Stderr = &r.said
	if err := r.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		r.err = r.command.Wait()
		close(r.ended)
	}()
	return r, nil
}

// environment is that of a jobq. What could lead it to the caller's own tables is replaced.
func environment(url, name string) []string {
	url += "&application_name=" + name
	return append(os.Environ(), "DATABASE_URL="+url, "JOBQ_DATABASE_URL="+url, "JOBQ_LISTEN_URL=", "JOBQ_SCHEMA=jobq", "JOBQ_SESSIONS=auto", "JOBQ_CONTEXT=")
}

// check says whether it has ended by itself, which it must not.
func (p *process) check() error {
	if p.leaves {
		return nil
	}
	select {
	case <-p.ended:
		return fmt.Errorf("%s has ended: %w", p.name, errors.Join(p.err, errors.New(p.said.String())))
	default:
		return nil
	}
}

// stop makes it drain, and waits for its end.
func (p *process) stop() error {
	if err := p.check(); err != nil {
		return err
	}
	p.leaves = true
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	select {
	case <-p.ended:
	case <-time.After(patience):
		return fmt.Errorf("%s does not end", p.name)
	}
	if p.err != nil {
		return fmt.Errorf("%s was to end, and has failed: %w\n%s", p.name, p.err, p.said.String())
	}
	return nil
}

// complaints are the lines that it has written and that say that something went wrong.
func (p *process) complaints() []string {
	var all []string
	for line := range strings.Lines(p.said.String()) {
		if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") || strings.HasPrefix(line, "jobq:") {
			all = append(all, p.name+": "+strings.TrimSpace(line))
		}
	}
	return all
}
