//go:build !linux

package subproc

import (
	"os"
	"syscall"
	"time"
)

const (
	maxRSSUnit = 1 // getrusage counts in bytes on Darwin
	sendFlags  = 0 // package os has had SIGPIPE ignored for sockets
)

func selfPath() (string, error) { return os.Executable() }

func programAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// hasDeadlines: there is no clock here that two processes read alike.
const hasDeadlines = false

func sinceBoot() time.Duration { return 0 }

func dieWithParent() error { return nil }

// unread would have to be asked at the end that reads.
func unread(*os.File) int { return -1 }

func closeOnExecFrom(first int) { syscall.CloseOnExec(first) }

// reap waits for the program and kills its group. There is no waiting here
// without reaping: the group's number is soon free.
func reap(pid int, forget func()) (syscall.WaitStatus, syscall.Rusage, error) {
	status, usage, err := wait(pid)
	forget()
	_ = syscall.Kill(-pid, syscall.SIGKILL) // none left: fine
	return status, usage, err
}

// What follows needs Linux: elsewhere a process that leaves its group outlives
// the job.
func becomeSubreaper()                           {}
func endDescendants() []leftProcess              { return nil }
func signalDescendants(syscall.Signal) []process { return nil }
func stopDescendants() bool                      { return true }

// Conceal does nothing here.
func Conceal() {}

// AdoptOrphans does nothing here.
func AdoptOrphans() {}

type process struct{}

// endOrphans kills the program's group: without /proc, that has to do.
func endOrphans(_, group int) []leftProcess {
	if group > 0 {
		_ = syscall.Kill(-group, syscall.SIGKILL) // none left: fine
	}
	return nil
}

type adoption struct{}

var adopted adoption

func (adoption) start(start func() (int, error)) error {
	_, err := start()
	return err
}

func (adoption) forget(int) {}
func (adoption) reap()      {}
