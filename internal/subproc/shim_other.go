//go:build !linux

package subproc

import (
	"os"
	"syscall"
)

const maxRSSUnit = 1 // getrusage counts in bytes on Darwin

func selfPath() (string, error) { return os.Executable() }

func programAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// What follows needs Linux: elsewhere a process that leaves its group and
// session outlives the job.
func becomeSubreaper() {}
func awaitExit(int)    {}
func endDescendants()  {}
func killDescendants() {}

// killSession does nothing: without /proc, the program's group has to do.
func killSession(int) {}
