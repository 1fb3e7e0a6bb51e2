package worker

import (
	"syscall"
	"time"
	"unsafe"
)

// clockBoottime is CLOCK_BOOTTIME of linux/time.h.
const clockBoottime = 7

// sinceBoot is the time since the machine booted, sleep included. Deadlines
// are kept in it: the wall clock can be set, and the monotonic clock that Go
// uses stands still while a machine is suspended, which would let a worker
// believe in a lease that ended hours ago.
func sinceBoot() time.Duration {
	var spec syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&spec)), 0); errno != 0 { // #nosec G103 -- the system call's calling convention
		panic("clock_gettime(CLOCK_BOOTTIME): " + errno.Error()) // in Linux since 2.6.39
	}
	return time.Duration(spec.Nano())
}
