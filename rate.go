package jobq

import (
	"fmt"
	"time"
)

// Rate is how many jobs of a queue, or of each of its partition keys, may start in each period, over
// all workers. In any span of time, at most Jobs start for each Period of it, and Burst more. The zero
// value is no rate.
type Rate struct {
	// Jobs is how many, 1 to 1,000,000.
	Jobs int `json:"jobs"`
	// Period is in how much time: 1 second to 30 days.
	Period time.Duration `json:"period_ns"`
	// Burst is how many may start at once when few have started before: 1 to 1,000,000.
	// 0 for the default, as many as in a tenth of a second, and 1 at least.
	Burst int `json:"burst"`
}

// String is the rate without its burst, such as "100/1s".
func (r Rate) String() string { return fmt.Sprintf("%d/%s", r.Jobs, r.Period) }
