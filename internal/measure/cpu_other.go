//go:build !unix

package measure

import "time"

// clientCPU is not known here.
func clientCPU() time.Duration { return 0 }
