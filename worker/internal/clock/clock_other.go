//go:build !linux

package clock

import "time"

var processStart = time.Now()

// SinceBoot is the time since the process started, by Go's monotonic clock or by the wall
// clock, whichever is later. The monotonic clock may stand still while the machine is
// suspended.
func SinceBoot() time.Duration {
	now := time.Now()
	return max(now.Sub(processStart), now.Round(0).Sub(processStart.Round(0)))
}
