package clock

import (
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const (
	// clockBoottime is CLOCK_BOOTTIME of linux/time.h.
	clockBoottime = 7
	// bootFresh is for how long the two clocks are taken to be as far apart as
	// when they were last compared: a machine that was suspended meanwhile is
	// noticed that much later, as if it had been suspended that much later.
	bootFresh = time.Millisecond
	// bootPrecise is how long reading both may take: else the process was not
	// running in between, and they do not belong together.
	bootPrecise = 100 * time.Microsecond
)

var (
	processStart = time.Now()
	// bootAhead is how far CLOCK_BOOTTIME is ahead of the time since
	// processStart; bootCompared is when that was found, by the latter.
	bootAhead, bootCompared atomic.Int64
)

// SinceBoot is the time since the machine booted, sleep included. Deadlines
// are kept in it: the wall clock can be set, and the monotonic clock that Go
// uses stands still while a machine is suspended, which would let a worker
// believe in a lease that ended hours ago. Go's clock costs no system call,
// and so it is asked in between.
func SinceBoot() time.Duration {
	now := time.Since(processStart)
	if compared := time.Duration(bootCompared.Load()); compared > 0 && now-compared < bootFresh {
		return now + time.Duration(bootAhead.Load())
	}
	var spec syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&spec)), 0); errno != 0 { // #nosec G103 -- the system call's calling convention
		panic("clock_gettime(CLOCK_BOOTTIME): " + errno.Error()) // in Linux since 2.6.39
	}
	boot := time.Duration(spec.Nano())
	if time.Since(processStart)-now < bootPrecise {
		bootAhead.Store(int64(boot - now))
		bootCompared.Store(int64(now))
	}
	return boot
}
