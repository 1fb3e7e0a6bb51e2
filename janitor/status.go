package janitor

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// Status is what a janitor has done since it started.
type Status struct {
	Leading bool
	Reaped  int64 // runs whose lease had ended, taken away from their workers
	Passes  int64 // passes of recovery that came to their end
	Errors  int64 // events of type monitor.EventError
	// LookedAt is when it last asked what is due; zero before the first time. While it works,
	// it asks at least once in Config.ScanInterval.
	LookedAt time.Time
	// ChoresDone is when this janitor last finished each chore. A chore that it
	// has not finished yet is not there.
	ChoresDone map[string]time.Time
}

// Status returns the totals so far. It does not talk to the database.
func (j *Janitor) Status() Status {
	s := Status{Leading: j.Leading(), Reaped: j.tally.reaped.Load(), Passes: j.tally.passes.Load(), Errors: j.tally.errors.Load()}
	if at := j.tally.lookedAt.Load(); at != nil {
		s.LookedAt = *at
	}
	j.tally.mu.Lock()
	defer j.tally.mu.Unlock()
	s.ChoresDone = maps.Clone(j.tally.done)
	return s
}

// tally counts what a janitor does, for Status.
type tally struct {
	reaped, passes, errors atomic.Int64
	lookedAt               atomic.Pointer[time.Time]

	mu   sync.Mutex
	done map[string]time.Time // by chore; guarded by mu
}

func (t *tally) looked(at time.Time) { t.lookedAt.Store(&at) }

func (t *tally) did(c *chore) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done == nil {
		t.done = make(map[string]time.Time)
	}
	t.done[c.name] = c.done
}
