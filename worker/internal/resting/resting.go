// Package resting decides when a worker leaves a kind to others: when its own runs of the kind fail one after the other, while
// those of other workers succeed. Then the machine is the likely cause: a full disk, a missing library, a broken GPU.
//
// For example, with two workers of which bad has a full disk, and After 5:
//
//	12:00:00  bad fails its fifth run in a row. It claims no more of the kind, and beats at once. Nobody has
//	          ended a run since its first failure, so it is not known yet whose fault it is
//	12:00:08  good beats, and has completed 7 runs since: bad is the cause. It rests until 12:00:30
//	12:00:30  bad runs one job, which fails: it rests for a minute; then for two, and so on, an hour at most
//	14:10:00  the disk has room again: its next run succeeds, and it claims as before
//
// If the runs of others fail as well, it goes on at once: the jobs are the cause, or what they all need. Later in the same row
// it asks again now and then, and goes on meanwhile.
package resting

import (
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// RestMin is how long a kind rests at first. Each further rest is twice as long, up to RestMax.
	RestMin = 30 * time.Second
	RestMax = time.Hour
	// windowMax is of how many of its last runs a worker tells others.
	windowMax = 20
	// askEvery is the shortest time between two questions about a kind that fails everywhere.
	askEvery = 10 * time.Second
	// chance is how improbable a row of failures must be, at the rate at which the runs of others fail.
	chance = 1e-4
)

// Outcomes is what a worker tells others of a kind.
type Outcomes struct {
	OK     int   `json:"ok"`     // of the last windowMax runs
	Failed int   `json:"failed"` // likewise
	OKMs   int64 `json:"ok_ms"`  // how long ago the last one has completed; -1: none has
	EndMs  int64 `json:"end_ms"` // how long ago the last one ended
	Rests  bool  `json:"rests,omitempty"`
}

// Others is what other workers that live say of a kind.
type Others struct {
	Live       int           // how many have the kind and do not leave it to others
	OK, Failed int           // of the last runs of those of which one has ended since
	LastOK     time.Duration // how long ago one of theirs has completed; negative: none has
}

// Verdict is what came of an answer, for the log.
type Verdict int

// The verdicts.
const (
	Unchanged Verdict = iota
	Rests             // others succeed
	Resumes           // they do not
)

// Kinds is the memory of one worker.
type Kinds struct {
	// After is after how many failures in a row others are asked; not positive: never.
	After int

	open  atomic.Int64 // how many kinds rest, or wait for an answer
	mu    sync.Mutex
	kinds map[string]*kind // guarded by mu
}

type kind struct {
	window, runs uint32    // the last runs, 1 for a failure, the latest at bit 0; and how many they are
	endAt, okAt  time.Time // okAt is zero if none has completed
	streak       int       // failures since one has completed
	since        time.Time // when the first of these ended
	askFrom      int       // ask again at so many
	askedAt      time.Time
	asks         bool // it goes on, and waits for an answer
	rests        bool
	sure         bool // others have been seen to succeed
	rest         time.Duration
	until        time.Time
	tries        bool // one job runs, to see
}

// Ended notes how a run has ended. ask says that others are to be asked now; resumed, that the kind may be claimed again.
func (k *Kinds) Ended(name string, failed, completed bool, now time.Time) (ask, resumed bool) {
	if k.After <= 0 || !failed && !completed {
		return false, false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kinds == nil {
		k.kinds = make(map[string]*kind)
	}
	x := k.kinds[name]
	if x == nil {
		x = &kind{}
		k.kinds[name] = x
	}
	x.window, x.runs, x.endAt = x.window<<1&(1<<windowMax-1), min(x.runs+1, windowMax), now
	if completed {
		x.okAt, x.streak = now, 0
		return false, k.resumeLocked(x)
	}
	x.window |= 1
	if x.streak++; x.streak == 1 {
		x.since, x.askFrom = now, k.After
	}
	switch {
	case x.tries:
		x.tries, x.rest = false, min(2*x.rest, RestMax)
		x.until = now.Add(x.rest)
		return true, false
	case x.rests || x.streak < x.askFrom && (x.streak < k.After || now.Sub(x.askedAt) < askEvery):
		return false, false
	}
	if !x.asks {
		k.open.Add(1)
	}
	x.askedAt = now
	if x.asks = x.askFrom > k.After; !x.asks {
		x.beginRest(now)
	}
	return true, false
}

func (x *kind) beginRest(now time.Time) {
	x.asks, x.rests, x.sure, x.rest, x.until = false, true, false, RestMin, now.Add(RestMin)
}

func (k *Kinds) resumeLocked(x *kind) bool {
	rested := x.rests
	if x.rests || x.asks {
		k.open.Add(-1)
	}
	x.asks, x.rests, x.sure, x.tries = false, false, false, false
	return rested
}

// Claimable returns those of the kinds whose jobs may be claimed now. It does not change the slice, and may return it.
func (k *Kinds) Claimable(names []string, now time.Time) []string {
	if k.open.Load() == 0 {
		return names
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	may := make([]string, 0, len(names))
	for _, name := range names {
		if x := k.kinds[name]; x == nil || !x.rests || !x.tries && !now.Before(x.until) {
			may = append(may, name)
		}
	}
	return may
}

// Begin says whether a job of the kind that was claimed may run. After a rest, one may: then tries is true.
func (k *Kinds) Begin(name string, now time.Time) (may, tries bool) {
	if k.open.Load() == 0 {
		return true, false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	x := k.kinds[name]
	switch {
	case x == nil || !x.rests:
		return true, false
	case x.tries || now.Before(x.until):
		return false, false
	}
	x.tries = true
	return true, true
}

// Untried takes back Begin, for a run that has ended without a failure and without a success.
func (k *Kinds) Untried(name string) {
	if k.open.Load() == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if x := k.kinds[name]; x != nil {
		x.tries = false
	}
}

// Open are the kinds about which others are to be asked, with how long ago the first failure of the row was.
func (k *Kinds) Open(now time.Time) map[string]time.Duration {
	if k.open.Load() == 0 {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	open := make(map[string]time.Duration)
	for name, x := range k.kinds {
		if x.rests || x.asks {
			open[name] = now.Sub(x.since)
		}
	}
	return open
}

// Answered decides about a kind by what others say. since is what Open has returned for it. It also returns how many runs
// have failed in a row, and how long the kind rests from now.
func (k *Kinds) Answered(name string, since time.Duration, others Others, now time.Time) (verdict Verdict, streak int, rest time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	x := k.kinds[name]
	if x == nil || !x.rests && !x.asks {
		return Unchanged, 0, 0
	}
	streak = x.streak
	ended := others.OK + others.Failed
	succeeds := others.LastOK >= 0 && others.LastOK < since
	// Laplace's rule: others have completed 20 of 20, so the next one fails with 1 in 22.
	isRare := math.Pow(float64(others.Failed+1)/float64(ended+2), float64(x.streak)) <= chance
	switch {
	case others.Live > 0 && succeeds && isRare:
		if x.sure {
			return Unchanged, streak, 0
		}
		if x.asks {
			x.beginRest(now)
		}
		x.sure = true
		return Rests, streak, max(x.until.Sub(now), 0)
	case others.Live > 0 && (ended == 0 || others.Failed == 0):
		return Unchanged, streak, 0 // not known yet
	}
	x.askFrom, x.askedAt = 2*x.streak, now
	if k.resumeLocked(x) {
		return Resumes, streak, 0
	}
	return Unchanged, streak, 0
}

// Wake is how long until the first rest is over; negative if none rests.
func (k *Kinds) Wake(name string, now time.Time) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if x := k.kinds[name]; x != nil && x.rests {
		return max(x.until.Sub(now), 0)
	}
	return -1
}

// Resting says of each kind that rests how many runs have failed in a row, and whether others were seen to succeed.
func (k *Kinds) Resting() map[string]bool {
	if k.open.Load() == 0 {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	resting := make(map[string]bool)
	for name, x := range k.kinds {
		if x.rests {
			resting[name] = x.sure
		}
	}
	return resting
}

// Told is what this worker tells others of each kind of which runs have ended.
func (k *Kinds) Told(now time.Time) map[string]Outcomes {
	k.mu.Lock()
	defer k.mu.Unlock()
	told := make(map[string]Outcomes, len(k.kinds))
	for name, x := range k.kinds {
		failed := bits.OnesCount32(x.window)
		o := Outcomes{OK: int(x.runs) - failed, Failed: failed, OKMs: -1, EndMs: now.Sub(x.endAt).Milliseconds(), Rests: x.rests}
		if !x.okAt.IsZero() {
			o.OKMs = now.Sub(x.okAt).Milliseconds()
		}
		told[name] = o
	}
	return told
}
