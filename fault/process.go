package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a jobq of its own, with a role of its own in the database and a
// proxy of its own on the way there.
type process struct {
	lab     *lab
	role    string
	args    []string
	command *exec.Cmd
	proxy   *proxy
	log     *logFile
	ended   chan struct{}
	stopped bool // by SIGSTOP
}

// logFile is what a process writes, for the scenario to read while it grows.
type logFile struct {
	mu      sync.Mutex
	content bytes.Buffer
}

func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.content.Write(p)
}

func (l *logFile) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.content.String(), text)
}

func (l *logFile) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.content.String()
}

// hostname makes a process believe that its machine is called that.
type hostname string

// start starts a jobq with the arguments.
func (l *lab) start(host hostname, args ...string) (*process, error) {
	role, err := l.role()
	if err != nil {
		return nil, err
	}
	p := &process{lab: l, role: role, args: args, log: &logFile{}, ended: make(chan struct{})}
	if p.proxy, err = startProxy(l.socket); err != nil {
		return nil, err
	}
	url := fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable&connect_timeout=2", role, p.proxy.address(), l.database)
	if l.connections > 0 {
		url += fmt.Sprintf("&pool_max_conns=%d", l.connections)
	}
	name, args := l.binary, append(append([]string{}, args...), "--database-url", url)
	if host != "" {
		args = append([]string{"--uts", "sh", "-c", `hostname "$0" && exec "$@"`, string(host), name}, args...)
		name = "unshare"
	}
	p.command = exec.Command(name, args...) // #nosec G204 -- the program under test
	p.command.Stdout, p.command.Stderr = p.log, p.log
	p.command.Env = append(append(os.Environ(), "JOBQ_MUTANT="+l.mutant), l.environ...)
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.command.Start(); err != nil {
		p.proxy.close()
		return nil, err
	}
	go func() {
		_ = p.command.Wait() // how it ended is in the log
		close(p.ended)
	}()
	l.mu.Lock()
	l.processes = append(l.processes, p)
	l.mu.Unlock()
	return p, nil
}

func (p *process) pid() int { return p.command.Process.Pid }

func (p *process) alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// kill ends the process as a crash would.
func (p *process) kill() {
	p.lab.mu.Lock()
	p.lab.run.Died[p.pid()] = time.Now()
	p.lab.mu.Unlock()
	_ = p.command.Process.Signal(syscall.SIGKILL) // ended already: fine
	<-p.ended
	p.proxy.close()
}

func (p *process) freeze() {
	p.stopped = true
	_ = p.command.Process.Signal(syscall.SIGSTOP) // ended already: fine
}

func (p *process) thaw() {
	p.stopped = false
	_ = p.command.Process.Signal(syscall.SIGCONT) // likewise
}

// end asks the process to end, and waits for it.
func (p *process) end() error {
	if !p.alive() {
		p.proxy.close()
		return nil
	}
	p.thaw()
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	err := p.lab.within(drainPatience, "the end of "+p.args[0], func() (bool, error) { return !p.alive(), nil })
	if err != nil {
		p.kill()
		return err
	}
	p.proxy.close()
	return nil
}
