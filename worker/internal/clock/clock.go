// Package clock tells the time that leases are kept in.
package clock

import (
	"math"
	"time"
)

// Never is an instant that does not come, and a time that does not pass.
const Never time.Duration = math.MaxInt64
