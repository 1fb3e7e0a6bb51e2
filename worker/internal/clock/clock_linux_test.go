package clock

import (
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// The clock that is asked seldom tells the same time as the one that it stands
// for, in many goroutines at once.
func TestSinceBootIsBoottime(t *testing.T) {
	t.Parallel()
	boottime := func() time.Duration {
		var spec syscall.Timespec
		_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&spec)), 0)
		require.Zero(t, errno)
		return time.Duration(spec.Nano())
	}
	var reading sync.WaitGroup
	for range 4 {
		reading.Go(func() {
			for range 20_000 {
				before, now, after := boottime(), SinceBoot(), boottime()
				if now < before-bootPrecise || now > after+bootPrecise {
					t.Errorf("%s is not between %s and %s", now, before, after)
					return
				}
			}
		})
	}
	reading.Wait()
}
