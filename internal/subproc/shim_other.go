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
func becomeSubreaper() {}
func endDescendants()  {}
func killDescendants() {}

// killSession does nothing: without /proc, the program's group has to do.
func killSession(int) {}
