//go:build !unix

package measure

import "time"

// ClientCPU is not known here.
func ClientCPU() time.Duration { return 0 }
