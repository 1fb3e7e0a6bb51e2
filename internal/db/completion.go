package db

import (
	"encoding/json"
	"time"
)

// Slot is one job's place in a lease, whose id is the job's token.
type Slot struct {
	ID    int64 // the job's
	Token int64
	Slot  int16
	// ClaimedAt tells the lease from an earlier one with the same id, which a
	// standby may not have heard of.
	ClaimedAt time.Time
}

// Completion is a run that succeeded.
type Completion struct {
	Slot
	Kind   string
	Waited time.Duration // from when the job could run to its claim
	// OnRow makes it end on its own row of run: a job with a unique key or stored
	// progress must, and one that was claimed 32 seconds ago or more. So does one
	// with a result, output or usage.
	OnRow bool
	// Retried says that it was sent before, with an unknown outcome: the server may
	// work on that still, and store it in the lease. So while the lease refuses it,
	// it is busy, and does not end on its own row as well, unless OnRow says so; and
	// then only while nobody has the lease locked.
	Retried bool
	Result  json.RawMessage // nil for none
	Output  string          // "" for none
	Usage   json.RawMessage // of a program; nil for none
	Ran     time.Duration   // how long the run took; 0 when that is not known
}

// isPlain says whether the lease alone is to know of the end.
func (c *Completion) isPlain() bool {
	return !c.OnRow && c.Result == nil && c.Output == "" && c.Usage == nil
}

// Ending is a run that did not simply succeed; see RunEnd.
type Ending struct {
	Slot
	Outcome string
	Error   string
	Output  string
	Delay   Delay
	Final   bool
	Started bool
	Ran     time.Duration   // how long the run took, if it started; 0 when that is not known
	Quiet   bool            // released, and workers are not to look for it at the head
	Usage   json.RawMessage // of a program; nil for none
}

// ranUs is how long the run took, as RunEnd has it: below 0 when it never started.
func (e Ending) ranUs() int64 {
	if !e.Started {
		return -1
	}
	return max(e.Ran.Microseconds(), 0)
}
