//go:build unix

package measure

import (
	"syscall"
	"time"
)

// ClientCPU is the CPU time of this process.
func ClientCPU() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0 // there is no reason for it to fail
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
