//go:build !linux

package clock

import "time"

var processStart = time.Now()

// SinceBoot counts on where the clock that Go offers does; it may stand still
// while the machine sleeps, and then the wall clock is further on.
func SinceBoot() time.Duration {
	now := time.Now()
	return max(now.Sub(processStart), now.Round(0).Sub(processStart.Round(0)))
}
