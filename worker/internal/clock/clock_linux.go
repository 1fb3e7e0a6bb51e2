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
	// bootFresh is for how long a comparison of the two clocks is used. So a
	// suspension of the machine is noticed up to that much later.
	bootFresh = time.Millisecond
	// bootPrecise is how long it may take to read both clocks. If it takes longer,
	// the process did not run in between, and the difference is not used again.
	bootPrecise = 100 * time.Microsecond
)

var (
	processStart = time.Now()
	// bootAhead is how far CLOCK_BOOTTIME is ahead of the time since
	// processStart. bootCompared is when that was found, as a time since processStart.
	bootAhead, bootCompared atomic.Int64
)

// SinceBoot is the time since the machine booted, including the time for which it
// was suspended. It is the clock for deadlines. The wall clock can be set. Go's
// monotonic clock stands still while the machine is suspended, so a worker would
// rely on a lease that ended hours ago. CLOCK_BOOTTIME costs a system call, and
// Go's clock none, so SinceBoot mostly reads Go's clock and adds bootAhead.
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
